"""Tests that the outputs of a job other than checkpoints can be listed and downloaded over each transport."""

import json
import unittest

import harness
from api_client import GrpcApi, HttpApi

SPEC = {**harness.spec(max_steps=12), "trace": {"at_step": 5, "steps": 2}}
TRACE = "job-a-trace-step-5.json"


class Artifacts(harness.DaemonTest):
    def test_log_and_trace_are_listed_and_fetched(self):
        daemon = self.start()
        daemon.train("job-a", SPEC)
        self.assertEqual(daemon.wait_for_end("job-a")["state"], "JOB_STATE_SUCCEEDED")
        made = daemon.data_dir / "checkpoints" / TRACE
        listed = daemon.ctl("artifacts", "job-a")["artifacts"]
        self.assertEqual([each["name"] for each in listed], ["log.txt", TRACE])
        self.assertEqual(int(listed[1]["size_bytes"]), made.stat().st_size)
        # genesisctl continues an earlier download.
        target = daemon.data_dir / "fetched.json"
        target.with_name("fetched.json.part").write_bytes(made.read_bytes()[:1000])
        daemon.ctl("artifact-download", "job-a", TRACE, "-f", str(target), check=False)
        self.assertEqual(target.read_bytes(), made.read_bytes())
        self.assertTrue(json.loads(target.read_text())["traceEvents"])
        # gRPC and HTTP give the same content.
        grpc_api = GrpcApi(daemon.grpc)
        self.addCleanup(grpc_api.close)
        for api in (grpc_api, HttpApi(daemon.http, grpc_api)):
            log = api.call("ReadArtifact", {"job_id": "job-a", "name": "log.txt"}).response
            self.assertIn(b"training complete: job job-a, 12 steps", log.piece)
            self.assertEqual(log.size_bytes, len(log.piece))
            refused = api.call("ReadArtifact", {"job_id": "job-a", "name": "../jobs.db"})
            self.assertEqual(refused.code, "NOT_FOUND", refused.text)
            refused = api.call("ReadArtifact", {"job_id": "job-a", "name": "log.txt", "offset": -1})
            self.assertEqual(refused.code, "INVALID_ARGUMENT", refused.text)
            refused = api.call("ListArtifacts", {"job_id": "job-b"})
            self.assertEqual(refused.code, "NOT_FOUND", refused.text)

    def test_a_job_that_has_left_nothing_has_none(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))
        daemon.train("hold-a", harness.spec())
        done = daemon.ctl("artifact-download", "hold-a", "hold-a-trace-step-1.json", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has no artifact", done.stderr)
        self.assertFalse((daemon.data_dir / "hold-a-trace-step-1.json.part").exists())


if __name__ == "__main__":
    unittest.main()
