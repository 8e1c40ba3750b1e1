"""Tests `gpu` from end to end on a CPU with tiny models, and so the whole program except the GPU."""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class GpuOnACpu(unittest.TestCase):
    def test_both_sides_are_measured_and_what_needs_a_gpu_is_not_run(self):
        with tempfile.TemporaryDirectory(prefix="genesis-") as out:
            done = subprocess.run(
                [sys.executable, HERE / "run", "gpu", "--device", "cpu", "--workload", "world_model small", "--mode",
                 "MIXED_FP16", "--out", out], capture_output=True, text=True, timeout=300,
                env={**os.environ, "GENESIS_BENCH_PYTHON": sys.executable})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            (report,) = [json.loads(path.read_text()) for path in pathlib.Path(out).glob("gpu-*.json")]
            (table,) = pathlib.Path(out).glob("gpu-*.csv")
            with open(table, newline="") as file:
                self.assertEqual(len(list(csv.DictReader(file))), len(report["rows"]))
            (page,) = pathlib.Path(out).glob("gpu-*.html")
            self.assertIn(report["title"], page.read_text())
        rows = {row["side"]: row for row in report["rows"] if row["side"] != "all"}
        for side in ("genesis-worker", "torch eager"):
            self.assertGreater(rows[side]["ms_per_step"]["median"], 0)
            self.assertGreater(rows[side]["mfu"]["measured"], 0)
            # Steps are skipped while the loss scale is too high.
            self.assertGreaterEqual(rows[side]["skipped_steps"], 1)
        self.assertLess(rows["torch eager"]["most_loss_difference"], 0.05)
        self.assertEqual(rows["genesis-worker, CUDA graph"]["not_run"], "it needs a CUDA device")
        # All other comparisons of the plan are listed as not run.
        self.assertEqual(len([row for row in report["rows"] if row["side"] == "all"]), 19)


if __name__ == "__main__":
    unittest.main()
