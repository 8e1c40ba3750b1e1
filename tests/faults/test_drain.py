"""Tests SIGTERM with running jobs: the daemon ends in time and no step is lost, also if the precision changes at the next start."""

import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
import tiers  # noqa: E402
from harness import spec  # noqa: E402

# Enough steps that the jobs are still running when they are stopped.
STEPS = 1_000_000
REDUCED = {"ENABLE_FP16_TRAINING": "true"}


def step_of(job):
    return int(job["progress"]["step"])


class Drain(harness.DaemonTest):
    def test_four_running_jobs_are_checkpointed_and_go_on(self):
        names = [f"job-{i}" for i in range(4)]
        daemon = self.start("--workers-slots", "4")
        for name in names:
            daemon.train(name, spec(max_steps=STEPS))
        for name in names:
            daemon.wait_for_step(name, 10)
        begin = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        seconds = time.monotonic() - begin
        # The time limit of a drain for which systemd and Kubernetes are configured. Not a measurement.
        self.assertLess(seconds, 25)
        # Read before the jobs continue and write other checkpoints.
        newest = {name: max(pathlib.Path(self.data_dir).glob(f"checkpoints/{name}-step-*.pt")) for name in names}
        again = self.start("--workers-slots", "4")
        for name in names:
            saved = int(newest[name].stem.rsplit("-", 1)[1])
            job = again.wait_for_step(name, saved + 1)
            self.assertEqual(int(job["claim"]), 2, job)
            self.assertEqual(int(job.get("restarts", 0)), 0, job)
            self.assertIn(f"continued from step {saved}", job["state_reason"])
        print(f"four jobs drained in {seconds:.2f} s", file=sys.stderr)

    @tiers.nightly
    def test_a_hung_worker_that_outlived_its_daemon_does_not_hold_the_end(self):
        flags = ["--workers-program", str(harness.FAKE_WORKER)]
        daemon = self.start(*flags)
        daemon.train("hang-1", spec(max_steps=10))
        daemon.wait_for_step("hang-1", 5)
        daemon.kill()
        again = self.start(*flags)
        self.assertIn("adopted its running worker", again.log())
        self.assertEqual(again.stop(), 0)
        last = self.start(*flags)
        self.assertEqual(last.wait_for_end("hang-1")["state"], "JOB_STATE_SUCCEEDED")

    def test_a_rollback_by_the_environment_continues_in_fp32_from_the_exact_step(self):
        daemon = self.start(environment=REDUCED)
        job_spec = spec(max_steps=STEPS)
        job_spec["precision"] = {"mode": "MIXED_BF16"}
        daemon.train("mixed", job_spec)
        before = daemon.wait_for_step("mixed", 5)
        self.assertEqual(before["precision"]["mode"], "PRECISION_MODE_MIXED_BF16")
        begin = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        again = self.start(environment={"ENABLE_FP16_TRAINING": "false"})
        saved = int(again.job("mixed")["latest_checkpoint"]["step"])
        self.assertGreaterEqual(saved, step_of(before))
        job = again.wait_for_step("mixed", saved + 1)
        seconds = time.monotonic() - begin
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_FP32")
        self.assertIn(f"continued from step {saved}", job["state_reason"])
        self.assertIn("FP16 training disabled - using FP32", again.log())
        print(f"rolled back from SIGTERM to the first step in FP32 in {seconds:.2f} s",
              file=sys.stderr)

    def test_a_policy_at_run_time_changes_a_running_job_in_place(self):
        daemon = self.start(environment=REDUCED)
        job_spec = spec(max_steps=STEPS)
        job_spec["precision"] = {"mode": "BF16"}
        daemon.train("reduced", job_spec)
        daemon.wait_for_step("reduced", 5)
        answer = daemon.ctl("precision", "disable", "--running", "next-step", "--reason", "a drill")
        self.assertEqual(int(answer["affected_jobs"]), 1)

        def in_fp32():
            job = daemon.job("reduced")
            return job["precision"]["mode"] == "PRECISION_MODE_FP32" and job

        job = harness.wait_for("FP32", in_fp32)
        change = job["precision_changes"][0]
        self.assertEqual(change["trigger"], "policy")
        self.assertIn("a drill", change["reason"])
        self.assertEqual(change["resumed_step"], change["step"], "nothing is lost")
        self.assertEqual(int(job["claim"]), 1, "in the same process")
        self.assertFalse(daemon.get_json("/api/training/stats")["_fp16_stats"]["fp16_enabled_runtime"])
        # The policy is durable, although the environment still allows reduced precision.
        daemon.stop()
        again = self.start(environment=REDUCED)
        shown = again.ctl("precision")
        self.assertFalse(shown.get("reduced_precision_enabled", False))
        again.ctl("precision", "allow")
        self.assertTrue(again.ctl("precision")["reduced_precision_enabled"])

    def test_at_once_ends_the_worker_and_goes_on_in_fp32_from_the_last_checkpoint(self):
        daemon = self.start(environment=REDUCED)
        job_spec = spec(max_steps=STEPS)
        job_spec["precision"] = {"mode": "BF16"}
        job_spec["checkpoint"] = {"every_steps": 5}
        daemon.train("reduced", job_spec)
        daemon.wait_for_step("reduced", 12)
        daemon.ctl("precision", "disable", "--running", "at-once")

        def in_fp32():
            job = daemon.job("reduced")
            return int(job["claim"]) == 2 and job["state"] == "JOB_STATE_RUNNING" and job

        job = harness.wait_for("the second attempt", in_fp32)
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_FP32")
        self.assertEqual(int(job.get("restarts", 0)), 0)

    def test_a_job_begins_with_the_weights_of_a_checkpoint(self):
        daemon = self.start()
        daemon.train("teacher", spec(max_steps=400))
        teacher = daemon.wait_for_end("teacher")
        fine = spec(max_steps=1)
        fine["start_from_checkpoint"] = teacher["latest_checkpoint"]["id"]
        fine["optimizer"] = {"learning_rate": 1e-12}
        daemon.train("student", fine)
        student = daemon.wait_for_end("student")
        self.assertEqual(student["state"], "JOB_STATE_SUCCEEDED", student)
        self.assertEqual(step_of(student), 1)
        self.assertAlmostEqual(student["held_out"]["model"], teacher["held_out"]["model"], places=6)
        goes_on = {**spec(max_steps=30), "continue_from_checkpoint": fine["start_from_checkpoint"]}
        daemon.train("graduate", goes_on)
        graduate = daemon.wait_for_end("graduate")
        self.assertEqual(graduate["state"], "JOB_STATE_SUCCEEDED", graduate)
        self.assertEqual(step_of(graduate), 30)
        self.assertLess(graduate["held_out"]["model"], 1.5 * teacher["held_out"]["model"])
        unfit = {**goes_on, "model": {"world_model": {"hidden_size": 64, "latent_size": 16}}}
        daemon.train("unfit", unfit)
        failure = daemon.wait_for_end("unfit")["failure"]
        self.assertEqual(failure["cause"], "FAILURE_CAUSE_CONFIG")
        self.assertIn(f"continue_from_checkpoint {fine['start_from_checkpoint']} does not fit the job", failure["message"])
        unknown = daemon.train("orphan", {**fine, "start_from_checkpoint": "nobody-step-1"},
                               check=False)
        self.assertIn("there is no checkpoint", unknown.stderr)
        unknown = daemon.train("orphan", {**goes_on, "continue_from_checkpoint": "nobody-step-1"}, check=False)
        self.assertIn("continue_from_checkpoint: there is no checkpoint", unknown.stderr)


if __name__ == "__main__":
    unittest.main()
