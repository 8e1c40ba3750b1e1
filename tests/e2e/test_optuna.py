"""Tests the example that searches by Optuna: its trials beside the jobs of the daemon."""

import re
import subprocess
import sys
import unittest

import harness
import tiers

TRIAL = re.compile(r"^(rates-\d+): (COMPLETE|PRUNED), .*, held-out loss (\S+)$", re.MULTILINE)


@tiers.nightly
class Optuna(harness.DaemonTest):
    def test_twenty_trials_are_jobs_and_bad_ones_are_stopped_by_a_checkpoint(self):
        daemon = self.start("--workers-slots", "2")
        done = subprocess.run([sys.executable, harness.SOURCE / "examples" / "optuna_trials.py", "rates", "2"], capture_output=True, text=True,
                              timeout=harness.LONG, env=harness.clean_environment({"GENESIS_SERVER": daemon.grpc}), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        trials = TRIAL.findall(done.stdout)
        self.assertEqual(len(trials), 20, done.stdout)
        losses = {}
        for job_id, state, loss in trials:
            job = daemon.wait_for_end(job_id)
            self.assertEqual(job["labels"], {"study": "rates"})
            if state == "COMPLETE":
                self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED")
                losses[job_id] = job["evaluation"]["loss"]
                self.assertEqual(float(loss), losses[job_id])
            elif job["state"] != "JOB_STATE_SUCCEEDED":  # Its last step may have come first.
                self.assertEqual(job["state"], "JOB_STATE_CANCELLED")
                self.assertGreater(int(job["latest_checkpoint"]["step"]), 0)
        self.assertLess(len(losses), 20, "none was stopped")
        self.assertIn(f"best: {min(losses, key=losses.get)}, ", done.stdout)


if __name__ == "__main__":
    unittest.main()
