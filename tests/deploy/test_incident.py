"""Tests that the texts after a rollback contain each value of the rollback plan, or say that it was not measured."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.environ["GENESIS_SOURCE"], "deploy", "rollback"))
import arguments  # noqa: E402
import incident  # noqa: E402

OPTIONS = arguments.parse(["emergency", "--severity", "P1", "--reason", "overflows"])

BEFORE = """genesis_training_loss{deployment="stable"} 0.04125
genesis_fp32_baseline_loss{deployment="stable"} 0.04
genesis_step_duration_seconds_sum{deployment="stable",mode="fp16"} 3
genesis_step_duration_seconds_count{deployment="stable",mode="fp16"} 500
genesis_cuda_memory_allocated_bytes{deployment="stable",mode="fp16"} 1073741824
genesis_fp16_overflow_steps_total{deployment="stable"} 77
"""
AFTER = """genesis_training_loss{deployment="stable"} 0.0402
genesis_step_duration_seconds_sum{deployment="stable",mode="fp32"} 1.26
genesis_step_duration_seconds_count{deployment="stable",mode="fp32"} 100
genesis_cuda_memory_allocated_bytes{deployment="stable",mode="fp32"} 1610612736
genesis_fp16_overflow_steps_total{deployment="stable"} 0
genesis_training_total{deployment="stable"} 40
genesis_training_success_total{deployment="stable"} 39
"""


class AllClear(unittest.TestCase):
    def text(self, before, after):
        with tempfile.TemporaryDirectory() as folder:
            for name, metrics in (("before", before), ("after", after)):
                (pathlib.Path(folder) / name).mkdir()
                (pathlib.Path(folder) / name / "metrics.txt").write_text(metrics)
            (pathlib.Path(folder) / "steps.tsv").write_text("1 s\trestart\n")
            return incident.text(pathlib.Path(folder), OPTIONS, "systemd", "4 s", 0)

    def test_has_loss_overflows_training_time_and_memory(self):
        lines = self.text(BEFORE, AFTER).splitlines()
        for line in ("- Training success rate: 97.5%",
                     "- Loss: 0.0402 (before: 0.04125, FP32 baseline: 0.04)",
                     "- Overflow errors: 0",
                     "- Training time: 12.6 ms a step (before: 6 ms a step)",
                     "- VRAM usage: 1,536 MiB (before: 1,024 MiB)"):
            self.assertIn(line, lines)

    def test_says_what_was_not_measured(self):
        lines = self.text("", "").splitlines()
        for line in ("- Loss: not measured (before: not measured, FP32 baseline: not measured)",
                     "- Training time: not measured (before: not measured)",
                     "- VRAM usage: not measured (before: not measured)"):
            self.assertIn(line, lines)


if __name__ == "__main__":
    unittest.main()
