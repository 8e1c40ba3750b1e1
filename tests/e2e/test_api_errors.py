"""Tests each error code of each method in training_service.proto, over both transports."""

import base64
import contextlib
import os
import re
import signal
import unittest

import harness
from api_client import GrpcApi, HttpApi

SPEC = {"model": {"world_model": {}}, "dataset": {"trajectories": {"path": "pendulum.npz"}},
        "training": {"max_steps": 10}}
BATCH = {"dataset": "shop", "batch_id": "b1", "observation_size": 2, "action_size": 1,
         "observations": [1, 2], "actions": [0.5], "next_observations": [2, 3], "rewards": [1]}
SWEEP = {"job": SPEC, "parameters": [{"field": "training.seed", "values": ["1"]}]}
STATE = base64.b64encode(b"state").decode()

# Method, code, request. In the setup, hold-1 runs and has the checkpoints hold-1-kept and hold-1-step-5, ok-done has SUCCEEDED, the sweep ok-sweep has ended, "mine" is
# an imported checkpoint, the file of checkpoint "lost" is missing, dataset "shop" has the batch b1, and dataset "damaged" a broken segment.
TABLE = [
    ("Train", "INVALID_ARGUMENT", {"spec": {"training": {"max_steps": -1}}}),
    ("Train", "ALREADY_EXISTS", {"job_id": "hold-1", "spec": {**SPEC, "training": {"max_steps": 9}}}),
    ("Train", "NOT_FOUND", {"spec": {**SPEC, "start_from_checkpoint": "absent"}}),
    ("GetJob", "NOT_FOUND", {"job_id": "absent"}),
    ("GetJob", "INVALID_ARGUMENT", {"job_id": "hold-1", "wait_seconds": 301}),
    ("ListJobs", "INVALID_ARGUMENT", {"page_token": "no-token"}),
    ("WatchJob", "NOT_FOUND", {"job_id": "absent"}),
    ("WatchJob", "INVALID_ARGUMENT", {"job_id": "hold-1", "cursor": 1 << 60}),
    ("WatchJobs", "INVALID_ARGUMENT", {"cursor": 1 << 60}),
    ("Predict", "NOT_FOUND", {"job_id": "absent"}),
    ("WatchWeights", "NOT_FOUND", {"job_id": "absent"}),
    ("WatchWeights", "FAILED_PRECONDITION", {"job_id": "ok-done"}),
    ("WatchWeights", "INVALID_ARGUMENT", {"job_id": "hold-1", "interval_seconds": -1}),
    ("WatchWeights", "OUT_OF_RANGE", {"job_id": "hold-1", "since": 1 << 60}),
    ("ListEvents", "INVALID_ARGUMENT", {"filter": {"kinds": ["log_line"]}}),
    ("PauseJob", "NOT_FOUND", {"job_id": "absent"}),
    ("PauseJob", "FAILED_PRECONDITION", {"job_id": "ok-done"}),
    ("ResumeJob", "NOT_FOUND", {"job_id": "absent"}),
    ("ResumeJob", "FAILED_PRECONDITION", {"job_id": "ok-done"}),
    ("CancelJob", "NOT_FOUND", {"job_id": "absent"}),
    ("CancelJob", "FAILED_PRECONDITION", {"job_id": "ok-done"}),
    ("DeleteJob", "NOT_FOUND", {"job_id": "absent"}),
    ("DeleteJob", "FAILED_PRECONDITION", {"job_id": "hold-1"}),
    ("UpdateJob", "NOT_FOUND", {"job_id": "absent", "update_mask": "priority"}),
    ("UpdateJob", "INVALID_ARGUMENT", {"job_id": "hold-1", "update_mask": "priority",
                                       "priority": 101}),
    ("UpdateJob", "FAILED_PRECONDITION", {"job_id": "ok-done", "update_mask": "priority",
                                          "priority": 1}),
    ("ReportMetrics", "NOT_FOUND", {"job_id": "absent", "step": 1, "values": {"return": 1}}),
    ("ReportMetrics", "INVALID_ARGUMENT", {"job_id": "hold-1", "step": 1, "values": {"return": "NaN"}}),
    ("LeaseEvaluation", "NOT_FOUND", {"job_id": "absent"}),
    ("LeaseEvaluation", "INVALID_ARGUMENT", {"job_id": "hold-1", "lease_seconds": 86401}),
    ("LeaseEvaluation", "FAILED_PRECONDITION", {"job_id": "hold-1"}),
    ("CreateSweep", "INVALID_ARGUMENT", {"spec": {"job": SPEC}}),
    ("CreateSweep", "ALREADY_EXISTS", {"sweep_id": "ok-sweep", "spec": {**SWEEP, "random_trials": 1}}),
    ("CreateSweep", "NOT_FOUND", {"spec": {**SWEEP, "job": {**SPEC, "start_from_checkpoint": "absent"}}}),
    ("GetSweep", "NOT_FOUND", {"sweep_id": "absent"}),
    ("ListSweeps", "INVALID_ARGUMENT", {"page_size": -1}),
    ("CancelSweep", "NOT_FOUND", {"sweep_id": "absent"}),
    ("CancelSweep", "FAILED_PRECONDITION", {"sweep_id": "ok-sweep"}),
    ("Checkpoint", "NOT_FOUND", {"job_id": "absent"}),
    ("Checkpoint", "FAILED_PRECONDITION", {"job_id": "ok-done"}),
    ("Checkpoint", "ALREADY_EXISTS", {"job_id": "hold-1", "name": "kept"}),
    ("ListCheckpoints", "INVALID_ARGUMENT", {"page_size": 1001}),
    ("GetCheckpoint", "NOT_FOUND", {"checkpoint_id": "absent"}),
    ("DownloadCheckpoint", "NOT_FOUND", {"checkpoint_id": "absent"}),
    ("DownloadCheckpoint", "OUT_OF_RANGE", {"checkpoint_id": "mine", "offset": 6}),
    ("DownloadCheckpoint", "DATA_LOSS", {"checkpoint_id": "lost"}),
    ("ListArtifacts", "NOT_FOUND", {"job_id": "absent"}),
    ("ReadArtifact", "NOT_FOUND", {"job_id": "hold-1", "name": "hold-1-trace-step-1.json"}),
    ("ReadArtifact", "OUT_OF_RANGE", {"job_id": "hold-1", "name": "log.txt", "offset": 1 << 40}),
    ("ReadArtifact", "INVALID_ARGUMENT", {"job_id": "hold-1", "name": "log.txt", "limit": (1 << 20) + 1}),
    ("DeleteCheckpoint", "NOT_FOUND", {"checkpoint_id": "absent"}),
    ("DeleteCheckpoint", "FAILED_PRECONDITION", {"checkpoint_id": "hold-1-step-5"}),
    ("ImportCheckpoint", "INVALID_ARGUMENT",
     [{"checkpoint_id": "other", "size_bytes": 3, "content": base64.b64encode(b"bad").decode()}]),
    ("ImportCheckpoint", "ALREADY_EXISTS",
     [{"checkpoint_id": "mine", "size_bytes": 5, "content": STATE}]),
    ("ImportCheckpoint", "RESOURCE_EXHAUSTED",
     [{"checkpoint_id": "other", "size_bytes": 1001, "content": STATE}]),
    ("AppendTrajectories", "INVALID_ARGUMENT", [{**BATCH, "rewards": []}]),
    ("AppendTrajectories", "ALREADY_EXISTS", [{**BATCH, "rewards": [2]}]),
    ("AppendTrajectories", "FAILED_PRECONDITION",
     [{**BATCH, "batch_id": "b2", "action_size": 2, "actions": [1, 1]}]),
    ("AppendTrajectories", "RESOURCE_EXHAUSTED",
     [{**BATCH, "batch_id": "large", "observations": [0.123456789] * 600000,
       "next_observations": [0.123456789] * 600000, "actions": [0.5] * 300000,
       "rewards": [1.5] * 300000}]),
    ("AppendTrajectories", "DATA_LOSS", [{**BATCH, "dataset": "damaged"}]),
    ("ListDatasets", "INVALID_ARGUMENT", {"page_size": -1}),
    ("StartUpload", "INVALID_ARGUMENT", {"sha256": "../x", "kind": "npz", "size_bytes": 1}),
    ("StartUpload", "RESOURCE_EXHAUSTED", {"sha256": "0" * 64, "kind": "npz", "size_bytes": 1 << 45}),
    ("WriteUpload", "INVALID_ARGUMENT", {"sha256": "0" * 64, "kind": "n p", "size_bytes": 1}),
    ("WriteUpload", "NOT_FOUND", {"sha256": "0" * 64, "kind": "npz", "size_bytes": 1}),
    ("DeleteDataset", "NOT_FOUND", {"name": "absent"}),
    ("DeleteDataset", "INVALID_ARGUMENT", {"name": "../datasets"}),
    ("DeleteDataset", "FAILED_PRECONDITION", {"name": "pendulum.npz"}),
    ("Stats", "NOT_FOUND", {"job_id": "absent"}),
    ("Stats", "INVALID_ARGUMENT", {"window_seconds": 3601}),
    ("SetPrecisionPolicy", "INVALID_ARGUMENT", {"reduced_precision_allowed": True,
                                                "reason": "x" * 1001}),
    ("DrainWorker", "NOT_FOUND", {"worker_id": "absent"}),
    ("GetHistory", "INVALID_ARGUMENT", {"page_size": 1001}),
    ("GetCurves", "NOT_FOUND", {"job_id": "absent"}),
    ("GetCurves", "INVALID_ARGUMENT", {"job_id": "absent", "points": 10001}),
    ("ListWebhookDeliveries", "INVALID_ARGUMENT", {"page_size": 1001}),
]

# Codes that need more than one request. The value is the test of the code, here or in the named file.
ELSEWHERE = {
    ("Train", "RESOURCE_EXHAUSTED"): "test_a_full_queue",
    ("Train", "UNAVAILABLE"): "test_a_draining_daemon",
    ("CreateSweep", "RESOURCE_EXHAUSTED"): "tests/e2e/test_sweeps.py test_open_sweeps_are_bounded",
    ("CreateSweep", "UNAVAILABLE"): "test_a_draining_daemon",
    ("ReportMetrics", "RESOURCE_EXHAUSTED"): "tests/server/metric_reports_test.cc AJobHasAtMost64Metrics",
    ("LeaseEvaluation", "RESOURCE_EXHAUSTED"): "tests/server/fleet_watch_test.cc TheWaitsOfOneCallerAreBounded",
    ("Checkpoint", "RESOURCE_EXHAUSTED"): "tests/e2e/test_security.py test_named_checkpoints_count_too",
    ("Checkpoint", "ABORTED"): "test_a_worker_that_is_lost_before_its_checkpoint",
    ("DownloadCheckpoint", "RESOURCE_EXHAUSTED"): "test_too_many_downloads",
    ("WatchJob", "RESOURCE_EXHAUSTED"):
        "tests/e2e/test_hostile_callers.py test_watches_are_bounded_and_the_limit_is_named",
    ("WatchJobs", "RESOURCE_EXHAUSTED"): "tests/server/fleet_watch_test.cc TheWatchesOfOneCallerAreBounded",
    ("Predict", "INVALID_ARGUMENT"): "tests/e2e/test_predictions.py test_bad_input_is_refused_and_the_next_call_works",
    ("Predict", "FAILED_PRECONDITION"): "tests/e2e/test_predictions.py test_what_cannot_predict_says_why",
    ("Predict", "RESOURCE_EXHAUSTED"): "tests/e2e/test_predictions.py test_calls_too_many_are_refused_at_once",
    ("Predict", "UNAVAILABLE"): "tests/e2e/test_predictions.py test_one_that_is_killed_is_started_again",
    ("WatchWeights", "RESOURCE_EXHAUSTED"): "tests/e2e/test_weights.py test_the_watches_of_one_caller_are_bounded",
    ("GetJob", "RESOURCE_EXHAUSTED"): "tests/server/fleet_watch_test.cc TheWaitsOfOneCallerAreBounded",
    ("ListEvents", "RESOURCE_EXHAUSTED"): "tests/server/fleet_watch_test.cc TheWaitsOfOneCallerAreBounded",
    ("WatchJob", "OUT_OF_RANGE"): "tests/server/fleet_watch_test.cc DroppedEventsAreAnErrorUnlessTheCallerAcceptsThem",
    ("WatchJobs", "OUT_OF_RANGE"): "tests/server/fleet_watch_test.cc DroppedEventsAreAnErrorUnlessTheCallerAcceptsThem",
    ("ListEvents", "OUT_OF_RANGE"): "tests/server/fleet_watch_test.cc DroppedEventsAreAnErrorUnlessTheCallerAcceptsThem",
    ("StartUpload", "UNAVAILABLE"): "tests/server/upload_test.cc CallsThatWaitForTheDiskAreBounded",
    ("WriteUpload", "UNAVAILABLE"): "tests/server/upload_test.cc CallsThatWaitForTheDiskAreBounded",
    ("WriteUpload", "ABORTED"): "tests/server/upload_test.cc OneCallAtATimeWritesToAFile",
    ("WriteUpload", "DATA_LOSS"): "tests/server/upload_test.cc OtherBytesThanAnnouncedAreRemoved",
    ("WriteUpload", "RESOURCE_EXHAUSTED"): "tests/server/upload_test.cc TheQuotaIsForAllFilesTogether",
    ("ReloadConfig", "INVALID_ARGUMENT"): "tests/e2e/test_reload.py test_is_all_or_nothing",
    ("ReloadConfig", "FAILED_PRECONDITION"): "tests/e2e/test_reload.py test_is_all_or_nothing",
    ("GetHistory", "UNAVAILABLE"):
        "tests/e2e/test_history.py test_a_history_that_cannot_be_kept_hurts_no_job",
    ("BackupStore", "FAILED_PRECONDITION"):
        "tests/server/backup_test.cc ThatCannotBeWrittenSaysWhereAndLeavesNothing",
    ("BackupStore", "RESOURCE_EXHAUSTED"): "test_a_full_disk_of_backups",
    ("CreateLoginCode", "RESOURCE_EXHAUSTED"): "tests/server/browser_sessions_test.cc CodesOfAllCallersAreBoundedUntilTheyExpire",
}


def promised():
    """Returns the (method, code) pairs in the proto's comments."""
    text = (harness.SOURCE / "proto/genesis/training/v1/training_service.proto").read_text()
    pairs = set()
    for comment, method in re.findall(r"((?:  //[^\n]*\n)+)  rpc (\w+)\(", text):
        # The codes come after the role.
        codes = comment.split("Role:", 1)[1]
        pairs |= {(method, code) for code in re.findall(
            r"\b(INVALID_ARGUMENT|NOT_FOUND|ALREADY_EXISTS|FAILED_PRECONDITION|ABORTED|DATA_LOSS|"
            r"RESOURCE_EXHAUSTED|OUT_OF_RANGE|UNAVAILABLE)\b", codes)}
    return pairs


class ErrorTable(harness.DaemonTest):
    def connect(self, *flags):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), *flags)
        grpc_api = GrpcApi(daemon.grpc)
        self.addCleanup(grpc_api.close)
        return daemon, grpc_api, HttpApi(daemon.http, grpc_api)

    def train(self, api, job_id, state, spec=None):
        answer = api.call("Train", {"job_id": job_id, "spec": spec or SPEC})
        self.assertEqual(answer.code, "OK", answer)

        def reached():
            job = api.call("GetJob", {"job_id": job_id}).response.job
            return job.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[
                job.state].name == state and job

        return harness.wait_for(f"{job_id} to be {state}", reached)

    def must(self, api, name, fields):
        answer = api.call(name, fields)
        self.assertEqual(answer.code, "OK", (name, answer))
        return answer.response

    def import_checkpoint(self, api, checkpoint_id):
        return self.must(api, "ImportCheckpoint", [
            {"checkpoint_id": checkpoint_id, "size_bytes": 5, "content": STATE}]).checkpoint

    def prepare(self, daemon, api):
        self.train(api, "ok-done", "JOB_STATE_SUCCEEDED")
        self.train(api, "hold-1", "JOB_STATE_RUNNING")
        self.must(api, "Checkpoint", {"job_id": "hold-1", "name": "kept"})
        self.must(api, "CreateSweep", {"sweep_id": "ok-sweep", "spec": SWEEP})
        harness.wait_for("the end of the sweep", lambda: self.must(api, "GetSweep", {"sweep_id": "ok-sweep"}).sweep.HasField("end_time"))
        self.import_checkpoint(api, "mine")
        os.unlink(self.import_checkpoint(api, "lost").path)
        self.must(api, "AppendTrajectories", [BATCH])
        self.must(api, "AppendTrajectories",
                  [{**BATCH, "dataset": "damaged", "batch_id": f"b{i}"} for i in range(3)])
        # A restart closes the buffer.
        self.assertEqual(daemon.stop(), 0)
        segment, = (daemon.data_dir / "datasets" / "damaged").glob("*.segment")
        bytes_of = bytearray(segment.read_bytes())
        bytes_of[64 + 40 + 12] ^= 1
        segment.write_bytes(bytes_of)

    def test_every_code_that_the_proto_names_is_answered(self):
        flags = ["--checkpoints-max-import-bytes", "1000", "--workers-slots", "2"]
        daemon, api, _ = self.connect(*flags)
        self.prepare(daemon, api)
        daemon, grpc_api, http_api = self.connect(*flags)
        for name, code, fields in TABLE:
            for api in (grpc_api, http_api):
                with self.subTest(name, code=code, api=type(api).__name__):
                    answer = self.ask(api, name, fields)
                    self.assertEqual(answer.code, code, answer)
                    self.assertGreater(len(answer.text), 20)

    def ask(self, api, name, fields):
        if name != "ImportCheckpoint" or isinstance(api, GrpcApi):
            return api.call(name, fields)
        message = fields[0]
        body = base64.b64decode(message["content"]).ljust(message["size_bytes"], b"x")
        return api.upload(name, message["checkpoint_id"], body)

    def test_the_table_has_every_code_that_the_proto_names(self):
        mine = {(name, code) for name, code, _ in TABLE} | set(ELSEWHERE)
        self.assertEqual(promised() - mine, set())
        for test in ELSEWHERE.values():
            file, _, name = test.rpartition(" ")
            found = name in (harness.SOURCE / file).read_text() if file else hasattr(self, name)
            self.assertTrue(found, test)

    def test_a_full_queue(self):
        _, grpc_api, http_api = self.connect("--queue-max-jobs", "1")
        self.train(grpc_api, "hold-1", "JOB_STATE_RUNNING")
        self.train(grpc_api, "hold-2", "JOB_STATE_QUEUED")
        for api in (grpc_api, http_api):
            answer = api.call("Train", {"spec": SPEC})
            self.assertEqual(answer.code, "RESOURCE_EXHAUSTED", answer)
            self.assertIn("queue.max_jobs", answer.text)

    def test_a_full_disk_keeps_no_checkpoint_call_waiting(self):
        harness.mount_disk(self.data_dir, "64m", self.addCleanup)
        daemon, grpc_api, http_api = self.connect()
        self.train(grpc_api, "hold-1", "JOB_STATE_RUNNING")
        filler = daemon.data_dir / "filler"
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

        def full():
            answer = grpc_api.call("Train", {"spec": SPEC})
            return answer.code == "RESOURCE_EXHAUSTED"

        harness.wait_for("the refusal of a job", full)
        for api in (grpc_api, http_api):
            answer = api.call("Checkpoint", {"job_id": "hold-1"})
            self.assertEqual(answer.code, "RESOURCE_EXHAUSTED", answer)
        filler.unlink()
        harness.wait_for("a checkpoint", lambda: grpc_api.call(
            "Checkpoint", {"job_id": "hold-1"}).code == "OK")

    def test_a_full_disk_of_backups(self):
        daemon, grpc_api, http_api = self.connect()
        backups = daemon.data_dir / "backups"
        backups.mkdir()
        harness.mount_disk(backups, "16k", self.addCleanup)
        for api in (grpc_api, http_api):
            answer = api.call("BackupStore", {})
            self.assertEqual(answer.code, "RESOURCE_EXHAUSTED", answer)
            self.assertIn("full", answer.text)
            self.assertEqual(list(backups.iterdir()), [])

    def test_a_draining_daemon(self):
        daemon, grpc_api, http_api = self.connect("--drain-timeout-seconds", "3600")
        self.train(grpc_api, "hang-1", "JOB_STATE_RUNNING")
        pids = daemon.worker_pids()
        daemon.process.send_signal(signal.SIGTERM)
        for api in (grpc_api, http_api):
            answer = harness.wait_for("a refusal", lambda api=api: self.refused(api))
            self.assertEqual(answer.code, "UNAVAILABLE", answer)
            self.assertIn("draining", answer.text)
            self.assertEqual(api.call("CreateSweep", {"spec": SWEEP}).code, "UNAVAILABLE")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # An idle worker has already ended.
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def refused(api):
        """Returns the refusal of a job, or None while jobs are still accepted because the signal has not been handled."""
        answer = api.call("Train", {"spec": SPEC})
        return None if answer.code == "OK" else answer

    def test_a_worker_that_is_lost_before_its_checkpoint(self):
        _, grpc_api, http_api = self.connect()
        for api in (grpc_api, http_api):
            job_id = f"lose-{type(api).__name__.lower()}"
            self.train(grpc_api, job_id, "JOB_STATE_RUNNING")
            answer = api.call("Checkpoint", {"job_id": job_id})
            self.assertEqual(answer.code, "ABORTED", answer)
            self.must(grpc_api, "CancelJob", {"job_id": job_id, "now": True})

    def test_too_many_downloads(self):
        daemon, grpc_api, http_api = self.connect()
        content = b"state " + bytes(16 << 20)
        self.assertEqual(http_api.upload("ImportCheckpoint", "large", content).code, "OK")
        request, _ = grpc_api.types("DownloadCheckpoint")
        stub = grpc_api.stub("DownloadCheckpoint")
        # Each reader has read one piece.
        streams = [stub(request(checkpoint_id="large")) for _ in range(32)]
        for stream in streams:
            next(stream)
        for api in (grpc_api, http_api):
            answer = api.call("DownloadCheckpoint", {"checkpoint_id": "large"})
            self.assertEqual(answer.code, "RESOURCE_EXHAUSTED", answer)
        for stream in streams:
            stream.cancel()
        harness.wait_for("a place", lambda: grpc_api.call(
            "DownloadCheckpoint", {"checkpoint_id": "large"}).code == "OK")


if __name__ == "__main__":
    unittest.main()
