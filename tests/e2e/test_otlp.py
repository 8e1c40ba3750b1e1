"""Tests the export of spans and metrics: a receiver parses each body by the messages of opentelemetry-proto, as a collector does."""

import base64
import binascii
import http.server
import json
import threading
import time
import unittest
import urllib.request

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

import harness
import secure

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "planted-secret-4711"


def hex_to_base64(spans):
    """OTLP's JSON has hexadecimal IDs, where that of Protobuf has base64."""
    for span in spans:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(binascii.unhexlify(span[key])).decode()


class Collector:
    """A receiver of OTLP/HTTP. `status` is what it answers; `hangs` makes it answer nothing."""

    def __init__(self):
        self.status, self.hangs = 200, threading.Event()
        self.spans, self.metrics, self.bodies, self.refused = [], [], [], 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                while collector.hangs.is_set():
                    time.sleep(0.05)
                if collector.status == 200:
                    collector.take(self.path, body)
                else:
                    collector.refused += 1
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except BrokenPipeError:
                    pass  # The daemon did not wait for the answer.

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/base/"

    def take(self, path, body):
        self.bodies.append(body.decode())
        document = json.loads(body)
        if path == "/base/v1/traces":
            for scope in document["resourceSpans"][0]["scopeSpans"]:
                hex_to_base64(scope["spans"])
            message = json_format.ParseDict(document, trace_service_pb2.ExportTraceServiceRequest())
            self.spans += message.resource_spans[0].scope_spans[0].spans
        elif path == "/base/v1/metrics":
            message = json_format.ParseDict(document, metrics_service_pb2.ExportMetricsServiceRequest())
            self.metrics += message.resource_metrics[0].scope_metrics[0].metrics
        else:
            raise AssertionError(path)

    def of(self, name):
        return [span for span in self.spans if span.name == name]

    def stop(self):
        self.hangs.clear()
        self.server.shutdown()
        self.server.server_close()


class Otlp(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.collector = Collector()
        self.addCleanup(self.collector.stop)

    def start_traced(self, *flags):
        return self.start("--workers-program", str(harness.FAKE_WORKER), "--otlp-endpoint", self.collector.endpoint, *flags)

    def test_a_job_is_a_trace_below_its_caller_over_both_transports(self):
        daemon = self.start_traced("--log-format", "json")
        body = json.dumps({"job_id": "ok-http", "spec": harness.spec()}).encode()
        urllib.request.urlopen(urllib.request.Request(
            f"http://{daemon.http}/v1/jobs", body, {"Content-Type": "application/json", "traceparent": CALLER}),
            timeout=harness.LONG).close()
        with grpc.insecure_channel(daemon.grpc) as channel:
            client = secure.Client(channel, SECRET)
            client.metadata.append(("traceparent", CALLER.replace("-01", "-03")))
            request, _ = secure.messages("Train")
            spec = json_format.ParseDict({"spec": harness.spec()}, request()).spec
            client.call("Train", job_id="ok-grpc", spec=spec)
        daemon.train("ok-alone", harness.spec())
        ended = harness.wait_for("three traces", lambda: len(self.collector.of("genesis.job")) == 3 and self.collector.of("genesis.job"))
        by_job = {attribute.value.string_value: span for span in ended for attribute in span.attributes
                  if attribute.key == "genesis.job.id"}
        for job_id in ("ok-http", "ok-grpc"):
            self.assertEqual(by_job[job_id].trace_id.hex(), "0af7651916cd43dd8448eb211c80319c")
            self.assertEqual(by_job[job_id].parent_span_id.hex(), "b7ad6b7169203331")
        self.assertEqual(by_job["ok-alone"].parent_span_id, b"")
        for name in ("genesis.job.queued", "genesis.job.starting", "genesis.job.running"):
            stays = self.collector.of(name)
            self.assertEqual(len(stays), 3, name)
            for span in stays:
                self.assertIn(span.parent_span_id, {each.span_id for each in ended})
                self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
        records = [json.loads(line) for line in daemon.log().splitlines()]
        traces = {record["job_id"]: record["trace_id"] for record in records if "job_id" in record}
        self.assertEqual(traces["ok-http"], "0af7651916cd43dd8448eb211c80319c")
        self.assertEqual(traces["ok-alone"], by_job["ok-alone"].trace_id.hex())
        for text in (*self.collector.bodies, daemon.log()):
            self.assertNotIn(SECRET, text)

    def test_a_receiver_that_is_down_or_hangs_costs_no_job_and_gets_the_spans_later(self):
        self.collector.status = 503
        daemon = self.start_traced()
        daemon.train("ok-1", harness.spec())
        self.assertEqual(daemon.wait_for_end("ok-1")["state"], "JOB_STATE_SUCCEEDED")
        harness.wait_for("a refusal", lambda: self.collector.refused)
        self.collector.status = 200
        harness.wait_for("the trace", lambda: self.collector.of("genesis.job"))
        self.collector.hangs.set()
        daemon.train("ok-2", harness.spec())
        self.assertEqual(daemon.wait_for_end("ok-2")["state"], "JOB_STATE_SUCCEEDED")
        # The daemon ends although its receiver hangs.
        self.assertEqual(daemon.stop(), 0)

    def test_spans_that_the_receiver_refuses_for_good_are_dropped_and_counted(self):
        self.collector.status = 400
        daemon = self.start_traced()
        daemon.train("ok-1", harness.spec())
        harness.wait_for("dropped spans", lambda: self.dropped(daemon) >= 4)
        log = daemon.log()
        self.assertIn("spans and metrics are not exported, which hurts no job: the collector at "
                      f"{self.collector.endpoint}v1/traces answers with HTTP status 400", log)

    def test_metrics_are_those_of_the_page(self):
        daemon = self.start_traced()
        harness.wait_for("metrics", lambda: self.collector.metrics)
        names = {line.split()[2] for line in daemon.get("/metrics").splitlines() if line.startswith("# TYPE")}
        sent = {metric.name for metric in self.collector.metrics}
        self.assertLessEqual({"genesis_jobs", "genesis_requests_total", "process_cpu_seconds_total"} & names, sent)
        self.assertLessEqual(sent, names)

    def dropped(self, daemon):
        lines = [line for line in daemon.get("/metrics").splitlines()
                 if line.startswith("genesis_otlp_dropped_total") and 'signal="traces"' in line]
        return sum(float(line.split()[-1]) for line in lines)


if __name__ == "__main__":
    unittest.main()
