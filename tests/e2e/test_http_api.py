"""Tests the HTTP API with JSON: each method responds like gRPC; streams, files, and refusals."""

import base64
import hashlib
import http.client
import json
import os
import pathlib
import re
import ssl
import unittest

from google.protobuf import json_format

import harness
import secure
from api_client import DEADLINE, GrpcApi, HttpApi

SPEC = {"model": {"world_model": {}}, "dataset": {"trajectories": {"path": "pendulum.npz"}},
        "training": {"max_steps": 10}}
SWEEP = {"job": SPEC, "parameters": [{"field": "training.seed", "values": ["1"]}]}
BATCH = {"dataset": "shop", "batch_id": "b1", "observation_size": 2, "action_size": 1,
         "observations": [1, 2], "actions": [0.5], "next_observations": [2, 3], "rewards": [1]}

FILE_SHA256 = hashlib.sha256(b"state").hexdigest()

# Requests to each transport, in this order. X is replaced by another word for each transport, so that both make equal changes to different
# objects. They cover all methods of the service.
CASES = [
    ("GetServerInfo", {}), ("Stats", {}), ("Stats", {"job_id": "absent"}),
    ("Train", {"job_id": "hold-X", "spec": SPEC}), ("Train", {"job_id": "hold-X", "spec": SPEC}),
    ("Train", {"job_id": "hold-X", "spec": {**SPEC, "training": {"max_steps": 11}}}),
    ("Train", {"spec": {"training": {"max_steps": -1, "batch_size": -2}}}),
    ("Train", {"job_id": "ok-X", "spec": SPEC, "validate_only": True}),
    ("GetJob", {"job_id": "hold-X"}), ("GetJob", {"job_id": "absent"}), ("GetJob", {"job_id": "absent", "wait_seconds": 9}),
    ("GetJob", {"job_id": "hold-X", "wait_seconds": 301}),
    ("ListEvents", {"filter": {"kinds": ["log_line"], "states": ["JOB_STATE_UNSPECIFIED"]}}), ("ListEvents", {"cursor": -7}),
    ("ListEvents", {"wait_seconds": -1}), ("ListEvents", {"page_size": 1001}),
    ("ListJobs", {"page_size": 1}), ("ListJobs", {"page_size": -1}),
    ("ListJobs", {"states": ["JOB_STATE_QUEUED", "JOB_STATE_FAILED"], "page_size": 5}),
    # Only checked, because the events of a sweep's jobs would change other responses.
    ("CreateSweep", {"sweep_id": "sweep-X", "spec": SWEEP, "validate_only": True}), ("CreateSweep", {"sweep_id": "No", "spec": SWEEP}),
    ("CreateSweep", {"spec": {"job": SPEC, "parameters": [{"field": "training.sed", "values": ["1"]}]}}),
    ("GetSweep", {"sweep_id": "absent"}), ("ListSweeps", {"page_size": -1}), ("CancelSweep", {"sweep_id": "absent"}),
    ("Checkpoint", {"job_id": "hold-X"}), ("Checkpoint", {"job_id": "hold-X", "name": "kept"}),
    ("Checkpoint", {"job_id": "hold-X", "name": "kept"}),
    ("Checkpoint", {"job_id": "hold-X", "name": "No"}), ("Checkpoint", {"job_id": "absent"}),
    ("ListCheckpoints", {"job_id": "hold-X"}), ("ListCheckpoints", {"page_size": 1001}),
    ("GetCheckpoint", {"checkpoint_id": "hold-X-kept"}),
    ("GetCheckpoint", {"checkpoint_id": "absent"}),
    ("ListArtifacts", {"job_id": "hold-X"}), ("ListArtifacts", {"job_id": "absent"}),
    ("ReadArtifact", {"job_id": "hold-X", "name": "hold-X-trace-step-1.json"}),
    ("ReadArtifact", {"job_id": "hold-X", "name": "log.txt", "limit": -1}),
    ("DeleteCheckpoint", {"checkpoint_id": "hold-X-step-5"}),
    ("DeleteCheckpoint", {"checkpoint_id": "hold-X-kept"}),
    ("DeleteCheckpoint", {"checkpoint_id": "hold-X-kept"}),
    ("UpdateJob", {"job_id": "hold-X", "update_mask": "priority,labels", "priority": 3,
                   "labels": {"team": "a"}}),
    ("UpdateJob", {"job_id": "absent", "update_mask": "priority"}),
    ("ReportMetrics", {"job_id": "hold-X", "step": 3, "values": {"return": -2.5}}),
    ("ReportMetrics", {"job_id": "hold-X", "step": 3, "values": {"return": -2.5}}),
    ("ReportMetrics", {"job_id": "hold-X", "checkpoint_id": "absent", "values": {"return": 1}}),
    ("ReportMetrics", {"job_id": "hold-X", "values": {"a b": "NaN"}}),
    ("ReportMetrics", {"job_id": "absent", "step": 3, "values": {"return": 1}}),
    ("LeaseEvaluation", {"job_id": "hold-X"}), ("LeaseEvaluation", {"job_id": "absent", "wait_seconds": 9}),
    ("LeaseEvaluation", {"job_id": "hold-X", "lease_seconds": -1}), ("LeaseEvaluation", {"job_id": "hold-X", "wait_seconds": 301}),
    ("Predict", {"job_id": "absent"}), ("Predict", {"job_id": "hold-X", "checkpoint_id": "absent"}),
    ("PauseJob", {"job_id": "absent"}), ("ResumeJob", {"job_id": "absent"}),
    ("AppendTrajectories", [{**BATCH, "dataset": "shop-X"},
                            {**BATCH, "dataset": "shop-X", "batch_id": "b2"}]),
    ("AppendTrajectories", [{**BATCH, "dataset": "shop-X"}]),
    ("StartUpload", {"sha256": FILE_SHA256, "kind": "npz", "size_bytes": 5}),
    ("StartUpload", {"sha256": "No", "kind": "../x", "size_bytes": -1}),
    ("WriteUpload", {"sha256": FILE_SHA256, "kind": "npz", "size_bytes": 5, "offset": 1,
                     "piece": "c3Rh"}),
    ("WriteUpload", {"sha256": FILE_SHA256, "kind": "npz", "size_bytes": 5, "piece": "c3RhdGU="}),
    ("WriteUpload", {"sha256": "0" * 64, "kind": "npz", "size_bytes": 5, "piece": "c3Rh"}),
    ("ListDatasets", {"page_size": 2}), ("ListDatasets", {"page_size": -2}),
    ("DeleteDataset", {"name": "pendulum.npz"}), ("DeleteDataset", {"name": "shop-X"}),
    ("DeleteDataset", {"name": "shop-X"}), ("DeleteDataset", {"name": "../x"}),
    ("CancelJob", {"job_id": "absent"}), ("CancelJob", {"job_id": "hold-X", "now": True}),
    ("WatchJob", {"job_id": "absent"}), ("WatchJob", {"job_id": "hold-X"}),
    ("WatchJobs", {"filter": {"kinds": ["log_line"]}}), ("WatchJobs", {"cursor": -7}),
    ("WatchWeights", {"job_id": "absent"}), ("WatchWeights", {"job_id": "hold-X"}),
    ("DeleteJob", {"job_id": "absent"}), ("ListWorkers", {}), ("DrainWorker", {"worker_id": "none"}),
    ("GetPrecisionPolicy", {}), ("SetPrecisionPolicy", {"reduced_precision_allowed": True}),
    ("GetConfig", {}), ("ReloadConfig", {"validate_only": True}), ("BackupStore", {}),
    ("GetHistory", {"job_id": "absent"}), ("GetHistory", {"page_token": "none"}),
    ("GetCurves", {"job_id": "hold-X"}), ("GetCurves", {"job_id": "hold-X", "metrics": ["weights"], "points": -1}),
    ("ListWebhookDeliveries", {}), ("ListWebhookDeliveries", {"page_size": -1}), ("CreateLoginCode", {}),
    ("DownloadCheckpoint", {"checkpoint_id": "absent"}),
    ("ImportCheckpoint", [{"checkpoint_id": "No", "size_bytes": 5, "content": "c3RhdGU="}]),
]

# Fields that change during the test: times, process IDs, random names and metrics.
MOVING = re.compile(r'("(?:[a-z_]*time|reason|pid|start_ticks|worker_id|id|sequence|cursor|seconds|cpu|'
                    r'samples_per_second|dropped_updates|state_reason|path|size_bytes|claim|'
                    r'worker_seconds|peak_memory_bytes|queue_position)": )'
                    r'("[^"]*"|[-0-9.e]+)')
# Left out of a response while they are 0.
COMING = re.compile(r'\n *"(?:busy|warm)_workers": [0-9]+,?')


WORDS = {"grpc": "alfa", "http": "bravo"}


class HttpApiTest(harness.DaemonTest):
    def connect(self, *flags):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), *flags)
        grpc_api = GrpcApi(daemon.grpc)
        self.addCleanup(grpc_api.close)
        return daemon, grpc_api, HttpApi(daemon.http, grpc_api)

    def train(self, http_api, job_id, state="JOB_STATE_RUNNING"):
        self.assertEqual(http_api.call("Train", {"job_id": job_id, "spec": SPEC}).code, "OK")
        self.wait_for_state(http_api, job_id, state)

    def wait_for_state(self, http_api, job_id, state):
        def reached():
            _, _, body = http_api.exchange("GET", f"/v1/jobs/{job_id}")
            return json.loads(body)["job"]["state"] == state

        harness.wait_for(f"{job_id} to be {state}", reached)


class Parity(HttpApiTest):
    maxDiff = None

    def comparable(self, name, answer):
        """Returns the parts of a response that must be equal over both transports."""
        shown = []
        for response in answer.responses[-1:]:
            if name == "WatchJob":  # The progress at cancellation varies.
                shown.append((response.job.id, response.job.state, response.job.spec))
            else:
                text = json.dumps(json_format.MessageToDict(
                    response, preserving_proto_field_name=True), indent=1, sort_keys=True)
                shown.append(MOVING.sub(r"\1-", COMING.sub("", text)))
        told = repr((answer.code, answer.text, answer.violations, shown))
        for word in WORDS.values():
            told = told.replace(word, "X")
        return told.replace("\\n", "\n")

    def test_every_method_answers_alike(self):
        _, grpc_api, http_api = self.connect("--workers-slots", "2")
        transports = {"grpc": grpc_api, "http": http_api}
        for name, fields in CASES:
            told = {}
            for transport, api in transports.items():
                own = json.loads(re.sub(r'\bX\b|-X\b', lambda m, t=transport: m[0].replace(
                    "X", WORDS[t]), json.dumps(fields)))
                if name == "ImportCheckpoint" and transport == "http":
                    content = base64.b64decode(own[0]["content"])
                    answer = api.upload(name, own[0]["checkpoint_id"], content)
                else:
                    answer = api.call(name, own)
                told[transport] = self.comparable(name, answer)
                if name == "Train" and answer.code == "OK" and not fields.get("validate_only"):
                    self.wait_for_state(http_api, own["job_id"], "JOB_STATE_RUNNING")
            with self.subTest(name, fields=fields):
                self.assertEqual(told["grpc"], told["http"])
        self.assertEqual(set(grpc_api.methods), {name for name, _ in CASES})

    def test_the_openapi_text_has_every_method_and_no_other(self):
        _, grpc_api, http_api = self.connect()
        self.assertEqual(set(http_api.operations), set(grpc_api.methods))
        schemas = json.loads(http_api.text)["components"]["schemas"]
        used = set(re.findall(r'"#/components/schemas/([^"]+)"', http_api.text))
        self.assertEqual(used - set(schemas), set())
        for name, method in grpc_api.methods.items():
            self.assertTrue(http_api.operations[name][2]["description"], name)
            fields = schemas.get(method.output_type.name, {"properties": {}})["properties"]
            if name != "DownloadCheckpoint":
                self.assertEqual(set(fields), set(method.output_type.fields_by_name), name)


class Refusals(HttpApiTest):
    def refuse(self, http_api, status, part, verb, target, body=None, headers=None):
        got, answer_headers, text = http_api.exchange(verb, target, body, headers)
        error = json.loads(text)["error"]
        self.assertEqual((got, error["code"]), (status, status), error)
        self.assertIn(part, error["message"])
        return error, answer_headers

    def test_what_is_not_understood_is_told_with_what_would_be(self):
        _, _, http_api = self.connect()
        as_json = {"Content-Type": "application/json"}
        refuse = self.refuse
        refuse(http_api, 404, "did you mean /v1/jobs?", "GET", "/v1/job")
        refuse(http_api, 404, "there is no", "GET", "/v1/jobs/")
        _, headers = refuse(http_api, 405, "GET, HEAD, POST", "PUT", "/v1/jobs")
        self.assertEqual(headers["allow"], "GET, HEAD, POST")
        self.assertEqual(http_api.exchange("HEAD", "/v1/jobs/x:watch")[0], 405)
        refuse(http_api, 400, "did you mean page_size?", "GET", "/v1/jobs?page_sizes=1")
        refuse(http_api, 400, "accepted: a whole number", "GET", "/v1/jobs?page_size=1e1")
        refuse(http_api, 400, "given twice", "GET", "/v1/jobs?page_size=1&page_size=2")
        refuse(http_api, 400, "accepted: QUEUED, STARTING", "GET", "/v1/jobs?states=WAITING")
        refuse(http_api, 400, "needs a value", "GET", "/v1/jobs?page_size")
        refuse(http_api, 400, "hexadecimal", "GET", "/v1/jobs/%4")
        refuse(http_api, 400, "UTF-8", "GET", "/v1/jobs/%ff")
        refuse(http_api, 400, "application/json", "POST", "/v1/jobs", "{}")
        refuse(http_api, 400, "not JSON", "POST", "/v1/jobs", "{", as_json)
        refuse(http_api, 400, "no object", "POST", "/v1/jobs", "[1]", as_json)
        refuse(http_api, 400, "UTF-8", "POST", "/v1/jobs", b'{"job_id": "\xff"}', as_json)
        refuse(http_api, 400, "as in the path", "POST", "/v1/jobs/a:cancel", '{"job_id": "b"}',
               as_json)
        refuse(http_api, 400, "accepted: no body", "GET", "/v1/stats", "{}", as_json)
        refuse(http_api, 400, "accepted: none", "POST", "/v1/jobs?job_id=a")
        refuse(http_api, 403, "Origin", "GET", "/v1/stats", None, {"Origin": "http://evil.test"})
        error, _ = refuse(http_api, 400, "max_stepz", "POST", "/v1/jobs", json.dumps(
            {"spec": {"training": {"max_stepz": 1}, "modell": {}}, "labels": 1}), as_json)
        fields = {v["field"] for v in error["details"][0]["field_violations"]}
        self.assertEqual(fields, {"spec.training.max_stepz", "spec.modell", "labels"})

    def test_a_body_above_4_mib_is_refused_before_it_is_sent(self):
        _, _, http_api = self.connect()
        connection = http.client.HTTPConnection(http_api.address, timeout=DEADLINE)
        self.addCleanup(connection.close)
        connection.putrequest("POST", "/v1/jobs")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str((4 << 20) + 1))
        connection.endheaders()
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
        self.assertEqual((answer.status, error["status"]), (413, "RESOURCE_EXHAUSTED"))

    def test_pages_and_openapi_need_no_json(self):
        daemon, _, http_api = self.connect()
        self.assertEqual(daemon.get("/healthz"), "ok\n")
        self.assertIn("genesis_requests_total", daemon.get("/metrics"))
        self.assertIn("fp16_reason", daemon.get_json("/api/training/status"))
        http_api.exchange("GET", "/v1/stats")
        self.assertRegex(daemon.get("/metrics"), r'method="Stats",protocol="http"} 1')


class Watching(HttpApiTest):
    def open(self, http_api, target, headers=None):
        connection = http.client.HTTPConnection(http_api.address, timeout=DEADLINE)
        self.addCleanup(connection.close)
        connection.request("GET", target, headers=headers or {})
        return connection, connection.getresponse()

    def test_a_watch_tells_each_change_as_it_happens_and_ends(self):
        _, _, http_api = self.connect()
        self.train(http_api, "hold-1")
        _, answer = self.open(http_api, "/v1/jobs/hold-1:watch")
        self.assertEqual(answer.getheader("Content-Type"), "application/x-ndjson")
        first = json.loads(answer.readline())
        self.assertEqual(first["job"]["state"], "JOB_STATE_RUNNING")
        http_api.call("CancelJob", {"job_id": "hold-1"})
        states = [json.loads(line)["job"]["state"] for line in answer]
        self.assertEqual(states[-1], "JOB_STATE_CANCELLED")

    def test_one_batch_may_be_json_of_several_lines(self):
        _, _, http_api = self.connect()
        for text, status in ((json.dumps({**BATCH, "dataset": "shop"}, indent=1), 200), ('{\n"batch_id": 1.5.\n}', 400)):
            answer = http_api.exchange("POST", "/v1/datasets/shop:append", text, {"Content-Type": "application/json"})
            self.assertEqual(answer[0], status, answer)
            self.assertNotIn(b"line 1", answer[2])

    def test_a_watch_as_events_for_a_browser(self):
        _, _, http_api = self.connect()
        self.train(http_api, "ok-1", "JOB_STATE_SUCCEEDED")
        _, answer = self.open(http_api, "/v1/jobs/ok-1:watch", {"Accept": "text/event-stream"})
        self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
        lines = answer.read().decode().splitlines()
        self.assertEqual(lines[0], "event: job")
        job = json.loads(lines[1].removeprefix("data: "))["job"]
        self.assertEqual((job["state"], lines[2]), ("JOB_STATE_SUCCEEDED", ""))

    def test_a_reader_that_goes_away_is_forgotten(self):
        daemon, _, http_api = self.connect()
        self.train(http_api, "hold-1")
        connection, answer = self.open(http_api, "/v1/jobs/hold-1:watch")
        answer.readline()
        answer.close()
        connection.close()
        gone = 'code="CANCELLED",method="WatchJob",protocol="http"} 1'
        harness.wait_for("the watch to be ended", lambda: gone in daemon.get("/metrics"))


class Secure(HttpApiTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.data_dir) / "secrets-of-the-test"
        self.folder.mkdir()
        self.authority = secure.Authority(self.folder / "ca")
        self.certificate, self.key = self.authority.issue("localhost")

    def flags(self):
        return ("--workers-program", str(harness.FAKE_WORKER), "--tls-certificate-file",
                str(self.certificate), "--tls-key-file", str(self.key))

    def request(self, daemon, verb, target, token=None, certificate=None):
        """Sends a request over HTTPS. Returns (status, error or body)."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if certificate:
            context.load_cert_chain(*certificate)
        connection = http.client.HTTPSConnection(daemon.http, timeout=DEADLINE, context=context)
        self.addCleanup(connection.close)
        connection.request(verb, target,
                           headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, json.loads(body) if body.startswith("{") else body

    def test_tokens_and_their_roles_hold_over_https(self):
        tokens, lines = {}, []
        for role in ("viewer", "submitter"):
            tokens[role], line = secure.new_token(f"test-{role}", role)
            lines.append(line)
        file = secure.write_secret(self.folder / "tokens", "\n".join(lines) + "\n")
        daemon = self.start(*self.flags(), "--auth-tokens-file", str(file))
        self.assertEqual(self.request(daemon, "GET", "/healthz"), (200, "ok\n"))
        status, body = self.request(daemon, "GET", "/v1/stats")
        self.assertEqual((status, body["error"]["status"]), (401, "UNAUTHENTICATED"))
        self.assertEqual(self.request(daemon, "GET", "/v1/stats", tokens["viewer"])[0], 200)
        for verb, target in (("POST", "/v1/jobs/x:cancel"), ("POST", "/v1/checkpoints/x:import"),
                             ("POST", "/v1/datasets/x:append")):
            status, body = self.request(daemon, verb, target, tokens["viewer"])
            self.assertEqual((status, body["error"]["status"]), (403, "PERMISSION_DENIED"))
        self.assertEqual(self.request(daemon, "POST", "/v1/jobs/x:cancel", tokens["submitter"])[0],
                         404)
        for target in ("/v1/jobs/x:watch", "/v1/checkpoints/x:download"):
            self.assertEqual(self.request(daemon, "GET", target)[0], 401)
            self.assertEqual(self.request(daemon, "GET", target, tokens["viewer"])[0], 404)
        audit = (daemon.data_dir / "log" / "audit.log").read_text()
        self.assertIn("test-submitter", audit)
        for token in tokens.values():
            self.assertNotIn(token, audit + daemon.log())

    def test_a_client_certificate_is_a_caller_and_a_new_certificate_is_used(self):
        daemon = self.start(*self.flags(), "--tls-client-ca-file", str(self.authority.certificate),
                            "--tls-client-role", "viewer")
        carol = self.authority.issue("carol")
        self.assertEqual(self.request(daemon, "GET", "/v1/stats")[0], 401)
        self.assertEqual(self.request(daemon, "GET", "/v1/stats", certificate=carol)[0], 200)
        self.assertEqual(
            self.request(daemon, "POST", "/v1/jobs/x:cancel", certificate=carol)[0], 403)
        stranger = secure.Authority(self.folder / "other").issue("carol")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            self.request(daemon, "GET", "/v1/stats", certificate=stranger)
        with self.assertRaises((http.client.HTTPException, ConnectionError)):
            plain = http.client.HTTPConnection(daemon.http, timeout=DEADLINE)
            self.addCleanup(plain.close)
            plain.request("GET", "/healthz")
            plain.getresponse()
        certificate, key = self.authority.issue("localhost", file="renewed")
        os.replace(key, self.key)
        os.replace(certificate, self.certificate)
        host, port = daemon.http.rsplit(":", 1)
        new = self.certificate.read_text().split()
        harness.wait_for("the new certificate", lambda: ssl.get_server_certificate(
            (host, int(port))).split() == new)


if __name__ == "__main__":
    unittest.main()
