"""Tests kill -9 of worker and daemon: no acknowledged job is lost, and training gives the same numbers as an undisturbed run."""

import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from harness import spec  # noqa: E402

STEPS = 1500


class Crashes(harness.DaemonTest):
    def undisturbed(self, daemon):
        daemon.train("undisturbed", spec(max_steps=STEPS))
        return daemon.wait_for_end("undisturbed")

    def assert_same_result(self, job, reference):
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job["progress"]["loss"], reference["progress"]["loss"])
        self.assertEqual(job["held_out"], reference["held_out"])

    def test_a_killed_worker_is_replaced_and_the_job_continues_bit_identically(self):
        daemon = self.start()
        reference = self.undisturbed(daemon)
        daemon.train("killed", spec(max_steps=STEPS))
        daemon.wait_for_step("killed", 60)
        os.kill(daemon.busy_worker_pid(), signal.SIGKILL)
        job = daemon.wait_for_end("killed")
        self.assertEqual(int(job["restarts"]), 1, job)
        self.assert_same_result(job, reference)
        self.assertIn('genesis_worker_restarts_total{deployment="stable",reason="crash"} 1',
                      daemon.get("/metrics"))

    def test_a_killed_daemon_loses_no_acknowledged_job(self):
        daemon = self.start()
        reference = self.undisturbed(daemon)
        daemon.train("running", spec(max_steps=STEPS))
        waiting = [f"waiting-{i}" for i in range(3)]
        for job_id in waiting:
            daemon.train(job_id, spec(max_steps=20))
        daemon.wait_for_step("running", 60)
        daemon.kill()
        again = self.start()
        self.assert_same_result(again.wait_for_end("running"), reference)
        for job_id in waiting:
            self.assertEqual(again.wait_for_end(job_id)["state"], "JOB_STATE_SUCCEEDED")

    def test_a_job_acknowledged_right_before_the_kill_is_there(self):
        daemon = self.start()
        for round_number in range(5):
            job_id = f"burst-{round_number}"
            daemon.train(job_id, spec(max_steps=5))
            daemon.kill()
            daemon = self.start()
        for round_number in range(5):
            job = daemon.wait_for_end(f"burst-{round_number}")
            self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)

    def test_a_corrupt_newest_checkpoint_is_passed_over(self):
        daemon = self.start()
        daemon.train("corrupt", spec(max_steps=STEPS))
        before = daemon.wait_for_step("corrupt", 120)
        daemon.kill()
        os.kill(int(before["worker"]["pid"]), signal.SIGKILL)
        newest = max((self.checkpoints()), key=lambda path: path.name)
        content = bytearray(newest.read_bytes())
        middle = len(content) // 2
        content[middle:middle + 64] = bytes(64)
        newest.write_bytes(content)
        again = self.start()
        job = again.wait_for_end("corrupt")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertIn(newest.name, again.log())

    def checkpoints(self):
        return list((pathlib.Path(self.data_dir) / "checkpoints").glob("*.pt"))


if __name__ == "__main__":
    unittest.main()
