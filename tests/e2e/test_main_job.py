"""Tests a job from submission to checkpoint with the real programs."""

import pathlib
import sys
import unittest

import harness
from harness import spec

sys.path.insert(0, str(harness.SOURCE / "tests" / "interop"))
import processor  # noqa: E402


class MainJob(harness.DaemonTest):
    def test_a_job_trains_in_fp32_when_the_gate_is_closed(self):
        daemon = self.start()
        daemon.train("closed-gate", spec())
        job = daemon.wait_for_end("closed-gate")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job["state_reason"], "training complete")
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_FP32")
        self.assertEqual(int(job["progress"]["step"]), 200)
        held_out = job["held_out"]
        self.assertLess(held_out["model"], 0.5 * held_out["persistence"])
        self.assertLess(held_out["model"], 0.5 * held_out["mean"])
        self.assertTrue(pathlib.Path(job["latest_checkpoint"]["path"]).is_file())
        log = daemon.log()
        for line in ("FP16 training disabled - using FP32", "fp16_enabled: False",
                     "training complete"):
            self.assertIn(line, log)

    def test_an_open_gate_runs_what_the_hardware_can_do_and_says_why(self):
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true"})
        daemon.train("open-gate", spec())
        job = daemon.wait_for_end("open-gate")
        expected = "MIXED_BF16" if processor.multiplies_bf16() else "FP32"
        self.assertEqual(job["precision"]["mode"], f"PRECISION_MODE_{expected}", job["precision"])
        self.assertTrue(job["precision"]["reason"].startswith(expected))
        self.assertIn("fp16_enabled: True", daemon.log())

    def test_mixed_bf16_trains_when_a_job_names_it(self):
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true"})
        job_spec = spec(max_steps=60)
        job_spec["precision"] = {"mode": "MIXED_BF16"}
        daemon.train("bf16", job_spec)
        job = daemon.wait_for_end("bf16")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_MIXED_BF16")
        self.assertEqual(int(job["progress"]["reduced_precision_steps"]), 60)
        self.assertIn('genesis_fp16_training_steps_total{deployment="stable"} 60',
                      daemon.get("/metrics"))

    def test_a_rollback_continues_the_running_job_in_fp32_without_losing_a_step(self):
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true"})
        job_spec = spec(max_steps=3000)
        job_spec["precision"] = {"mode": "MIXED_BF16"}
        daemon.train("rolled-back", job_spec)
        daemon.wait_for_step("rolled-back", 20)
        self.assertEqual(daemon.stop(), 0)
        again = self.start(environment={"ENABLE_FP16_TRAINING": "false"})
        job = again.wait_for_end("rolled-back")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_FP32")
        self.assertIn("ENABLE_FP16_TRAINING", job["precision"]["reason"])
        reduced = int(job["progress"]["reduced_precision_steps"])
        self.assertTrue(20 <= reduced < 3000, reduced)
        self.assertEqual(int(job["progress"]["samples"]), 3000 * 64)
        self.assertIn("FP16 training disabled - using FP32", again.log())

    def test_an_unreadable_gate_means_fp32_and_shows_everywhere(self):
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "False"})
        self.assertIn("fp16_enabled: False", daemon.log())
        self.assertIn("ENABLE_FP16_TRAINING", daemon.log())
        harness.wait_for("readiness", lambda: self.ready(daemon))
        notes = daemon.get_json("/readyz")["notes"]
        self.assertTrue(any("ENABLE_FP16_TRAINING" in note and "False" in note for note in notes),
                        notes)
        self.assertIn('genesis_config_errors{deployment="stable"} 1', daemon.get("/metrics"))

    @staticmethod
    def ready(daemon):
        try:
            return daemon.get_json("/readyz")["ready"]
        except OSError:
            return False

    def test_http_pages_tell_of_a_finished_job(self):
        daemon = self.start()
        self.assertEqual(daemon.get("/healthz").strip(), "ok")
        daemon.train("pages", spec(max_steps=50))
        daemon.wait_for_end("pages")
        status = daemon.get_json("/api/training/status")
        self.assertFalse(status["fp16_enabled_runtime"])
        stats = harness.wait_for("the end of the history", lambda: [
            page for page in [daemon.get_json("/api/training/stats")]
            if page["training_history"] and page["training_history"][-1]["step"] == 50])[0]
        self.assertEqual(int(stats["_fp16_stats"]["training_steps"]), 50)
        self.assertIsNone(stats["_fp16_stats"]["current_scale"])
        self.assertEqual(set(stats["_fp16_stats"]),
                         {"fp16_enabled_runtime", "overflow_rate", "training_steps",
                          "current_scale"})
        history = stats["training_history"]
        self.assertGreaterEqual(len(history), 3)
        self.assertEqual(sorted(entry["step"] for entry in history),
                         [entry["step"] for entry in history])
        self.assertEqual(set(history[0]), {
            "job_id", "timestamp", "step", "mode", "loss", "held_out_loss", "divergence_ratio",
            "loss_scale", "skipped_steps", "samples_per_second"})

    def test_pgrep_and_top_know_workers_by_their_name(self):
        daemon = self.start()
        warm = harness.wait_for("a warm worker", lambda: next(
            (each for each in daemon.ctl("workers").get("workers", []) if each["state"] == "WORKER_STATE_WARM"), None))
        self.assertEqual(pathlib.Path(f"/proc/{warm['pid']}/comm").read_text(), "genesis-worker\n")

    def test_every_kind_of_call_is_counted(self):
        daemon = self.start()
        daemon.train("counted", spec(max_steps=20))
        daemon.wait_for_end("counted")
        daemon.ctl("watch", "counted")
        daemon.ctl("job", "absent", check=False)
        page = daemon.get("/metrics")
        for code, method in (("OK", "Train"), ("OK", "WatchJob"), ("NOT_FOUND", "GetJob")):
            self.assertIn(f'genesis_requests_total{{deployment="stable",code="{code}",'
                          f'method="{method}",protocol="grpc"}}', page)

    def test_checkpoint_cancel_and_lists(self):
        daemon = self.start()
        job_spec = spec(max_steps=1_000_000)
        job_spec["checkpoint"] = {"keep_last": 1000}  # No checkpoint is removed during the test.
        daemon.train("long", job_spec)
        daemon.wait_for_step("long", 1)
        checkpoint = daemon.ctl("checkpoint", "long")
        self.assertTrue(pathlib.Path(checkpoint["path"]).is_file())
        daemon.ctl("cancel", "long")
        job = daemon.wait_for_end("long")
        self.assertEqual(job["state"], "JOB_STATE_CANCELLED")
        steps = [int(each["step"]) for each in daemon.ctl("checkpoints", "long")["checkpoints"]]
        self.assertEqual(steps, sorted(steps, reverse=True))
        self.assertEqual([each["id"] for each in daemon.ctl("jobs")["jobs"]], ["long"])

    def test_a_drain_ends_with_0_and_the_next_start_continues(self):
        daemon = self.start()
        daemon.train("drained", spec(max_steps=1500))
        daemon.wait_for_step("drained", 20)
        self.assertEqual(daemon.stop(), 0)
        again = self.start()
        job = again.wait_for_end("drained")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(int(job["claim"]), 2)
        self.assertEqual(int(job["progress"]["samples"]), 1500 * 64)


if __name__ == "__main__":
    unittest.main()
