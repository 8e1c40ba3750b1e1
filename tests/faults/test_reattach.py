"""Tests that training continues when the daemon dies: workers keep their jobs, and no step is executed twice."""

import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from harness import spec  # noqa: E402

# Long enough that the job outlives some restarts of the daemon on a slow machine.
STEPS = 30000


def started(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def has_ended(pid):
    """Returns whether the process has ended, reaped or not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Reattach(harness.DaemonTest):
    def stop_worker_later(self, pid):
        ticks = started(pid)

        def stop():
            try:
                if started(pid) == ticks:
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass

        self.addCleanup(stop)

    def test_a_job_goes_on_while_its_daemon_is_dead_and_no_step_is_repeated(self):
        daemon = self.start()
        daemon.train("undisturbed", spec(max_steps=2000))
        reference = daemon.wait_for_end("undisturbed")
        daemon.train("survivor", spec(max_steps=2000))
        before = daemon.wait_for_step("survivor", 20)
        worker = int(before["worker"]["pid"])
        self.stop_worker_later(worker)
        daemon.kill()
        again = self.start()
        job = again.wait_for_end("survivor")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(int(job["claim"]), 1, "the same attempt, so every step was made once")
        self.assertEqual(int(job.get("restarts", 0)), 0)
        self.assertEqual(job["progress"]["loss"], reference["progress"]["loss"])
        self.assertEqual(job["held_out"], reference["held_out"])
        self.assertIn("is back with job survivor", again.log())

    def test_a_worker_that_still_loads_ends_with_its_daemon(self):
        loading = pathlib.Path(self.data_dir) / "loading"
        loading.write_text("#!/bin/sh\nexec sleep 600\n")
        loading.chmod(0o755)
        daemon = self.start("--workers-program", str(loading))
        worker = harness.wait_for("a worker", lambda: next(
            (each for each in daemon.ctl("workers").get("workers", []) if int(each.get("pid", 0))), None))
        pid = int(worker["pid"])
        self.stop_worker_later(pid)
        daemon.kill()
        harness.wait_for("the end of the worker", lambda: has_ended(pid))

    def test_a_worker_without_a_job_ends_with_its_daemon(self):
        daemon = self.start()
        worker = harness.wait_for("a warm worker", lambda: next(
            (each for each in daemon.ctl("workers")["workers"]
             if each["state"] == "WORKER_STATE_WARM"), None))
        pid = int(worker["pid"])
        self.stop_worker_later(pid)
        # A stopped process does not notice the end of its stream.
        os.kill(pid, signal.SIGSTOP)
        daemon.kill()
        harness.wait_for("the end of the worker", lambda: has_ended(pid))

    def test_a_checkpoint_and_an_end_that_nobody_heard_are_told_to_the_next_daemon(self):
        daemon = self.start()
        daemon.train("quiet", spec(max_steps=1200))
        before = daemon.wait_for_step("quiet", 20)
        worker = int(before["worker"]["pid"])
        self.stop_worker_later(worker)
        daemon.kill()
        # The job ends while no daemon runs, and its worker waits to report it.
        checkpoints = pathlib.Path(self.data_dir) / "checkpoints"
        harness.wait_for("the last checkpoint",
                         lambda: list(checkpoints.glob("quiet-step-*1200.pt")))
        self.assertTrue(pathlib.Path(f"/proc/{worker}").exists())
        again = self.start()
        job = again.wait_for_end("quiet")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(int(job["claim"]), 1)
        self.assertEqual(int(job["latest_checkpoint"]["step"]), 1200)
        listed = again.ctl("checkpoints", "quiet")["checkpoints"]
        self.assertEqual(len({each["id"] for each in listed}), len(listed))

    def test_a_request_that_the_worker_did_not_hear_is_sent_again(self):
        daemon = self.start()
        daemon.train("paused", spec(max_steps=STEPS))
        before = daemon.wait_for_step("paused", 20)
        worker = int(before["worker"]["pid"])
        self.stop_worker_later(worker)
        # The stopped worker receives nothing. The request is durable, but its command to the worker is lost with the daemon.
        os.kill(worker, signal.SIGSTOP)
        self.assertEqual(daemon.ctl("pause", "paused")["state"], "JOB_STATE_PAUSING")
        daemon.kill()
        os.kill(worker, signal.SIGCONT)
        again = self.start()

        def is_paused():
            job = again.job("paused")
            return job["state"] == "JOB_STATE_PAUSED" and job

        job = harness.wait_for("the pause", is_paused)
        self.assertIn("latest_checkpoint", job)
        self.assertGreaterEqual(int(job["latest_checkpoint"]["step"]), 20)

    def test_a_worker_that_died_with_the_daemon_is_replaced(self):
        daemon = self.start()
        daemon.train("both", spec(max_steps=1500))
        before = daemon.wait_for_step("both", 120)
        daemon.kill()
        os.kill(int(before["worker"]["pid"]), signal.SIGKILL)
        again = self.start()
        job = again.wait_for_end("both")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(int(job["claim"]), 2)

    def test_a_rollback_reaches_a_worker_that_outlived_its_daemon(self):
        daemon = self.start("--precision-cpu-fallback", "bf16",
                            environment={"ENABLE_FP16_TRAINING": "true"})
        reduced = spec(max_steps=STEPS)
        reduced["precision"] = {"mode": "BF16"}
        daemon.train("rolled-back", reduced)
        before = daemon.wait_for_step("rolled-back", 5)
        worker = int(before["worker"]["pid"])
        self.stop_worker_later(worker)
        daemon.kill()
        again = self.start(environment={"ENABLE_FP16_TRAINING": "false"})

        def in_fp32():
            job = again.job("rolled-back")
            return job["precision"]["mode"] == "PRECISION_MODE_FP32" and job

        job = harness.wait_for("FP32", in_fp32)
        self.assertEqual(int(job["claim"]), 1, "in the same process")
        self.assertEqual(job["precision_changes"][0]["trigger"], "policy")
        again.ctl("cancel", "rolled-back")


if __name__ == "__main__":
    unittest.main()
