"""Tests webhooks with real receivers, which verify each request as their users would: with the package standardwebhooks."""

import base64
import collections
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import harness
import secure
import standardwebhooks

SECRET = "whsec_" + base64.b64encode(b"planted-secret-of-the-endpoint-1").decode()
URL_SECRET = "planted-in-the-url"
EVERY_TYPE = ["job.queued", "job.starting", "job.running", "job.succeeded", "job.cancelled", "job.failed", "job.checkpoint_written",
              "job.updated"]


class Receiver:
    """An HTTP server that verifies and records each request. `answer(payload)` returns the status and headers of the response."""

    def __init__(self, answer=lambda payload: (204, {})):
        self.answer, self.port, self.server = answer, 0, None
        self.received, self.faults = [], []  # (webhook-id, payload) of the accepted requests.
        self.start()

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    payload = standardwebhooks.Webhook(SECRET).verify(body, dict(self.headers))
                except standardwebhooks.WebhookVerificationError as error:
                    receiver.faults.append(error)
                    return self.send_error(400)
                status, headers = receiver.answer(payload)
                if 200 <= status < 300:
                    receiver.received.append((self.headers["webhook-id"], payload))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def url(self):
        return f"http://127.0.0.1:{self.port}/hook?token={URL_SECRET}"

    def types(self, job_id):
        return [payload["type"] for _, payload in self.received if payload["data"]["job_id"] == job_id]


class Webhooks(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(self.data_dir) / "webhooks.yaml"

    def receiver(self, *answer):
        receiver = Receiver(*answer)
        self.addCleanup(lambda: receiver.stop())
        return receiver

    def endpoints(self, *entries):
        entries = [{"secret": SECRET, "allow_private": True, "events": EVERY_TYPE, **each} for each in entries]
        secure.write_secret(self.file, json.dumps({"endpoints": entries}))

    def start(self, *flags):
        return super().start("--webhooks-file", str(self.file), "--workers-program", str(harness.FAKE_WORKER), *flags)

    def run_job(self, daemon, job_id):
        daemon.train(job_id, harness.spec(max_steps=10))
        daemon.wait_for_end(job_id)

    def events(self, daemon):
        """Returns the payloads of all numbered events by webhook-id."""
        found = {}
        for event in daemon.get_json("/v1/events?page_size=1000")["events"]:
            change = event.get("state_changed")
            kind = change["to"].removeprefix("JOB_STATE_").lower() if change else next(
                key for key in event if f"job.{key}" in EVERY_TYPE or key == "deleted")
            found[f"evt_{event['sequence']}"] = {"type": f"job.{kind}", "timestamp": event["time"], "data": event}
        return found

    def deliveries(self, daemon):
        return daemon.ctl("webhooks").get("deliveries", [])

    def test_each_event_arrives_though_receiver_and_daemon_go_down(self):
        receiver = self.receiver()
        self.endpoints({"name": "chat", "url": receiver.url()})
        daemon = self.start("--log-level", "debug")
        self.run_job(daemon, "ok-1")
        harness.wait_for("its events", lambda: "job.succeeded" in receiver.types("ok-1"))
        receiver.stop()
        for job_id in ("ok-2", "ok-3"):
            self.run_job(daemon, job_id)
        harness.wait_for("failed attempts", lambda: any(each["attempts"] for each in self.deliveries(daemon)))
        listing = json.dumps(self.deliveries(daemon))
        metrics = daemon.get("/metrics")
        daemon.kill()
        receiver.start()
        daemon = self.start("--log-level", "debug")
        self.run_job(daemon, "ok-4")
        harness.wait_for("the rest", lambda: "job.succeeded" in receiver.types("ok-4") and not self.deliveries(daemon))
        self.assertEqual(receiver.faults, [])
        sent = self.events(daemon)
        self.assertEqual(set(dict(receiver.received)), set(sent))
        order = collections.defaultdict(list)
        for webhook_id, payload in receiver.received:
            self.assertEqual(payload, sent[webhook_id])
            if webhook_id not in order[payload["data"]["job_id"]]:
                order[payload["data"]["job_id"]].append(webhook_id)
        for ids in order.values():
            self.assertEqual(ids, sorted(ids, key=lambda each: int(each.removeprefix("evt_"))))
        self.assertEqual(set(order), {"ok-1", "ok-2", "ok-3", "ok-4"})
        self.assertIn('outcome="failed"', metrics)
        self.assertIn("genesis_webhook_oldest_pending_seconds", metrics)
        told = [listing, metrics, daemon.get("/metrics"), json.dumps(sent), daemon.log(), json.dumps(daemon.ctl("config", "show")),
                (daemon.data_dir / "stderr").read_text(), (daemon.data_dir / "log" / "audit.log").read_text()]
        self.assertIn("webhook chat (http://127.0.0.1:", daemon.log())
        for text in told:
            for secret in (SECRET, SECRET.removeprefix("whsec_"), base64.b64decode(SECRET[6:]).decode(), URL_SECRET):
                self.assertNotIn(secret, text)

    def test_the_receiver_in_the_documentation(self):
        page = (harness.SOURCE / "docs" / "webhooks.md").read_text()
        program = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
        receiver = Receiver()
        receiver.stop()  # Its port is free now.
        process = subprocess.Popen([sys.executable, "-c", program.replace("8000", str(receiver.port))], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "WEBHOOK_SECRET": SECRET})
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        self.endpoints({"name": "chat", "url": receiver.url(), "events": ["job.succeeded"]})
        self.run_job(self.start(), "ok-1")
        self.assertRegex(process.stdout.readline(), "^evt_[0-9]+ job.succeeded ok-1\n$")

    def test_redirects_and_private_addresses_are_not_followed(self):
        inside = self.receiver()
        redirect = self.receiver(lambda payload: (302, {"Location": f"http://127.0.0.1:{inside.port}/"}))
        self.endpoints({"name": "redirect", "url": redirect.url()},
                       {"name": "inside", "url": f"https://127.0.0.1:{inside.port}/", "allow_private": False},
                       {"name": "metadata", "url": "https://169.254.169.254/latest/meta-data/", "allow_private": False})
        # A proxy of the environment would connect in the place of the daemon.
        os.environ["HTTPS_PROXY"] = os.environ["HTTP_PROXY"] = f"http://127.0.0.1:{inside.port}"
        self.addCleanup(lambda: [os.environ.pop(name) for name in ("HTTPS_PROXY", "HTTP_PROXY")])
        daemon = self.start()
        self.run_job(daemon, "ok-1")

        def errors():
            return {each["endpoint"]: each["last_error"] for each in self.deliveries(daemon) if each["last_error"]}

        harness.wait_for("three errors", lambda: len(errors()) == 3)
        self.assertIn("HTTP 302: redirects are not followed", errors()["redirect"])
        self.assertIn("the address 127.0.0.1 is not public", errors()["inside"])
        self.assertIn("the address 169.254.169.254 is not public", errors()["metadata"])
        self.assertEqual((inside.received, inside.faults), ([], []))

    def test_a_failed_event_delays_its_job_only_and_gone_is_final(self):
        def answer(payload):
            if payload["data"]["job_id"] == "ok-late":
                return 503, {"Retry-After": "600"}
            return (410 if payload["type"] == "job.running" else 200), {}

        receiver = self.receiver(answer)
        self.endpoints({"name": "chat", "url": receiver.url()},
                       {"name": "mine", "url": receiver.url(), "labels": {"team": "red"}})
        daemon = self.start()
        for job_id in ("ok-late", "ok-1"):
            self.run_job(daemon, job_id)
        harness.wait_for("the other job", lambda: "job.succeeded" in receiver.types("ok-1"))
        self.assertEqual(receiver.types("ok-late"), [])
        listed = self.deliveries(daemon)
        self.assertEqual({each["endpoint"] for each in listed}, {"chat"}, "no job has the label")
        dead = [each for each in listed if each["state"] == "WEBHOOK_DELIVERY_STATE_DEAD"]
        self.assertEqual([(each["type"], each["job_id"], each["last_error"]) for each in dead],
                         [("job.running", "ok-1", "HTTP 410")])
        tried = [each for each in listed if each["attempts"] and each["job_id"] == "ok-late"]
        self.assertEqual([each["type"] for each in tried], ["job.queued"])
        self.assertGreater(tried[0]["next_attempt_time"][:16], tried[0]["event_time"][:16], "ten minutes later")

    def test_endpoints_are_reloaded_and_a_bad_file_is_refused(self):
        receiver = self.receiver()
        self.endpoints()
        daemon = self.start()
        self.run_job(daemon, "ok-before")
        self.endpoints({"name": "chat", "url": receiver.url()})
        daemon.ctl("config", "reload")
        harness.wait_for("the endpoint", lambda: 'endpoint="chat"' in daemon.get("/metrics"))
        self.run_job(daemon, "ok-1")
        harness.wait_for("its events", lambda: "job.succeeded" in receiver.types("ok-1"))
        self.endpoints({"name": "chat", "url": f"http://me:{URL_SECRET}@127.0.0.1/"})
        refused = daemon.ctl("config", "reload", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("endpoints[0].url is not usable; accepted: an address such as https://", refused.stderr)
        self.assertNotIn(URL_SECRET, refused.stderr + daemon.log())
        self.run_job(daemon, "ok-2")
        harness.wait_for("the old endpoint", lambda: "job.succeeded" in receiver.types("ok-2"))
        self.assertEqual(receiver.types("ok-before"), [])
        self.assertEqual(daemon.stop(), 0)
        with self.assertRaisesRegex(AssertionError, "endpoints.0..url is not usable"):
            self.start()
