"""Tests that workers are not blamed for time in which the daemon did not run (a suspended machine, a debugger, SIGSTOP)."""

import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
import tiers  # noqa: E402
from harness import spec  # noqa: E402

# More steps than the job can execute before the test ends it.
STEPS = 50_000_000


def steady():
    """Returns a job that only executes steps. A checkpoint would have its own, longer time limit."""
    return {**spec(max_steps=STEPS), "checkpoint": {"every_steps": STEPS}}


class Pauses(harness.DaemonTest):
    def stop_for(self, process, seconds):
        os.kill(process, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(process, signal.SIGCONT)

    def attempt(self, daemon, job_id):
        job = daemon.job(job_id)
        self.assertEqual(job["state"], "JOB_STATE_RUNNING", job)
        return int(job["claim"]), int(job.get("restarts", 0)), int(job["worker"]["pid"])

    @tiers.nightly
    def test_a_healthy_worker_is_not_hung_because_its_daemon_was_stopped(self):
        daemon = self.start("--hang-step-seconds", "3", "--workers-reattach-timeout-seconds", "4")
        daemon.train("steady", steady())
        daemon.wait_for_step("steady", 20)
        before = self.attempt(daemon, "steady")
        for seconds in (7, 1, 5):
            self.stop_for(daemon.process.pid, seconds)
            step = int(daemon.job("steady")["progress"]["step"])
            # Long enough that the daemon would have judged the worker to be hung.
            daemon.wait_for_step("steady", step + 1000)
            time.sleep(1)
            self.assertEqual(self.attempt(daemon, "steady"), before)
        self.assertRegex(daemon.log(), r"warning genesisd did not run for [67]\.?\d*s")
        self.assertNotIn("no progress for", daemon.log())

    @tiers.nightly
    def test_a_worker_that_hangs_is_ended_after_a_pause_as_before_it(self):
        daemon = self.start("--hang-step-seconds", "3")
        daemon.train("stuck", steady())
        daemon.wait_for_step("stuck", 20)
        claim, _, worker = self.attempt(daemon, "stuck")
        self.stop_for(daemon.process.pid, 5)
        os.kill(worker, signal.SIGSTOP)
        again = harness.wait_for("another attempt", lambda: (
            lambda job: int(job["claim"]) > claim and job["state"] == "JOB_STATE_RUNNING" and job)(daemon.job("stuck")))
        self.assertEqual(int(again["restarts"]), 1)
        self.assertIn("no progress for 3s while making steps (hang.step_seconds)", daemon.log())
