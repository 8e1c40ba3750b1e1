"""Tests the example programs in Python as their users run them."""

import subprocess
import sys
import unittest

import harness


class LanguageModel(harness.DaemonTest):
    def test_a_model_of_local_text_learns_its_bytes(self):
        daemon = self.start()
        text = [harness.SOURCE / "docs" / name for name in ("architecture.md", "checkpoints.md", "job_file.md")]
        done = subprocess.run([sys.executable, harness.SOURCE / "examples" / "language_model.py", *text, "--steps", "80"], capture_output=True,
                              text=True, timeout=harness.LONG, env=harness.clean_environment({"GENESIS_SERVER": daemon.grpc}), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        job, held_out, continued = done.stdout.split("\n", 2)
        self.assertEqual(daemon.job(job.removeprefix("job "))["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(float(held_out.split()[2].rstrip(";")), 4, "uniform bytes have 5.545")
        self.assertTrue(continued.startswith("The "), continued)


if __name__ == "__main__":
    unittest.main()
