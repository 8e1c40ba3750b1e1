"""Tests the logic of `gpu`: the time budget, refusals, and the arithmetic of its metrics. No times are judged."""

import pathlib
import tempfile
import time
import types
import unittest

import gpu
import gpu_comparison
import gpu_figures
import gpu_tables
import sides
import time_budget
from gpu_figures import GRAPH, OURS


class Budget(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.budget = time_budget.Budget(100, {"small": 40, "large": 90}, clock=lambda: self.now)

    def test_what_does_not_fit_is_refused_with_both_times(self):
        self.now = 20.0
        self.assertEqual(self.budget.objection("small"), "")
        self.assertEqual(self.budget.objection("large"),
                         "it takes about 90 s, and 80 s were left of 100 (--limit)")
        self.now = 200.0
        self.assertIn("and 0 s were left", self.budget.objection("small"))

    def test_what_was_measured_takes_the_place_of_the_guess(self):
        with self.budget.spend_on("large"):
            self.now = 30.0
        self.assertEqual(self.budget.objection("large"), "")
        self.now = 71.0
        self.assertIn("it takes about 30 s, and 29 s were left", self.budget.objection("large"))

    def test_it_ends_what_takes_longer_than_all(self):
        budget = time_budget.Budget(0.05, {"small": 0})
        with self.assertRaises(time_budget.TimeUp), budget.spend_on("small"):
            time.sleep(10)
        with self.assertRaises(time_budget.TimeUp), budget.spend_on("small"):
            time.sleep(10)  # No time is left to start this one.

    def test_every_workload_of_the_plan_has_a_guess_and_every_pair_is_planned_once(self):
        pairs = {(name, mode) for name in gpu.GUESSES for mode in gpu.MODES}
        self.assertEqual(set(gpu.PLAN), pairs)
        self.assertEqual(len(gpu.PLAN), len(pairs))


class Refusals(unittest.TestCase):
    def test_a_graph_counts_only_where_the_log_says_so_last(self):
        captured = "precision: FP32\nstep: captured in step 4, replayed from then on\nstarted: 5 steps"
        gpu_comparison.says_it_captured(captured)
        with self.assertRaisesRegex(sides.Refused, 'its log has "step: eager, because of x"'):
            gpu_comparison.says_it_captured(captured + "\nstep: eager, because of x")
        with self.assertRaisesRegex(sides.Refused, "no line that begins"):
            gpu_comparison.says_it_captured("step 1/5  loss 2")

    def test_losses_are_compared_one_by_one_and_then_by_their_mean(self):
        ours = [1.0] * 400
        self.assertEqual(gpu_comparison.compare(ours, ours[:300], "FP32"), 0)
        with self.assertRaises(sides.Refused):
            gpu_comparison.compare(ours, [*ours[:199], 1.1, *ours[200:]], "FP32")
        noisy = [*ours[:200], *([0.5, 1.5] * 100)]
        self.assertAlmostEqual(gpu_comparison.compare(ours, noisy, "FP32"), 0)
        with self.assertRaises(sides.Refused):
            gpu_comparison.compare(ours, [*ours[:200], *([1.1] * 200)], "FP32")

    def test_a_mode_that_the_device_lacks_is_named_with_what_it_needs(self):
        facts = {"compute capability": "7.5"}
        self.assertEqual(gpu.lacking("MIXED_FP16", "cuda", facts), "")
        self.assertEqual(gpu.lacking("MIXED_BF16", "cuda", facts),
                         "MIXED_BF16 needs compute capability 8.0; this device has 7.5")
        self.assertEqual(gpu.lacking("MIXED_BF16", "cuda", {"compute capability": "12.0"}), "")


class FakeSide:
    """A Python side, or the machine, with fixed responses."""

    def __init__(self, loss=1.0, error=None, dies_with=None):
        self.loss, self.error, self.dies_with = loss, error, dies_with

    def ask(self, do, steps=0, warm_up=0, **_):
        if self.error:
            return {"error": self.error}
        if steps == self.dies_with:
            raise RuntimeError("gpu cuda torch eager ended with -9; its log ends:\nsome\nKilled")
        if do == "limits":
            return {"FP32": 2.0}
        return {"losses": [self.loss] * steps, "seconds": 0.5 * (steps - warm_up), "skipped": 0,
                "peak_bytes": 3 * 2**20, "steps": steps - warm_up}


class Compared(gpu_comparison.Comparison):
    """A Comparison in which genesis-worker takes a quarter of a second per step, and in which a block can take too long."""

    late_in_block = None

    def _ours(self, side):
        if len(self.blocks) == self.late_in_block:
            raise time_budget.TimeUp
        return {"losses": [1.0] * self.steps[side], "seconds": 0.25, "skipped": 1, "peak_bytes": 2**20}


class Comparisons(unittest.TestCase):
    def compared(self, late_in_block=None, missing=None, **peers):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "job.json").write_text('{"training": {}}')
            facts = {"device": "NVIDIA H200", "operations": 10**12, "batch": 8}
            found = Compared("transformer", "FP32", pathlib.Path(folder), facts,
                             {"machine": FakeSide(), **peers}, missing or {},
                             types.SimpleNamespace(device="cuda", blocks=3, seconds=3))
            found.late_in_block = late_in_block
            found.run()
        return {row["side"]: row for row in found.rows()}

    def test_figures_of_a_step(self):
        rows = self.compared(**{"torch eager": FakeSide()}, missing={"torch.compile": "no compiler"})
        ours, theirs = rows[OURS], rows["torch eager"]
        self.assertEqual((ours["blocks"], ours["ms_per_step"]["median"], ours["samples_per_second"]), (3, 250, 32))
        # 10^12 operations in a quarter of a second are 4 TFLOP/s. The measured peak is 2 and the listed one 66.9.
        self.assertEqual((ours["teraflops"], ours["mfu"]["measured"]), (4, 2))
        self.assertAlmostEqual(ours["mfu"]["datasheet"], 4 / 66.9)
        self.assertEqual((ours["skipped_steps"], ours["skipped_share"]), (1, 1 / 6))
        self.assertEqual((ours["peak_mib"], theirs["peak_mib"]), (1, 3))
        self.assertEqual((theirs["ours_is_faster_by"]["median"], theirs["graph_is_faster_by"]["median"]), (2, 2))
        self.assertEqual(rows["torch.compile"]["not_run"], "no compiler")

    def test_a_side_whose_losses_differ_is_refused_and_the_others_stay(self):
        rows = self.compared(**{"torch eager": FakeSide(), "torch.compile": FakeSide(loss=1.1)})
        self.assertIn("losses differ by 0.1", rows["torch.compile"]["refused"])
        self.assertNotIn("ms_per_step", rows["torch.compile"])
        self.assertIn("ms_per_step", rows["torch eager"])

    def test_a_side_that_fails_is_refused_with_what_it_says(self):
        rows = self.compared(**{"torch eager": FakeSide(), "torch.compile": FakeSide(error="out of memory")})
        self.assertEqual(rows["torch.compile"]["refused"], "out of memory")

    def test_a_python_side_that_dies_ends_no_more_than_its_comparison(self):
        rows = self.compared(**{"torch eager": FakeSide(dies_with=4)}, missing={"torch.compile": "no compiler"})
        self.assertEqual(rows[OURS]["refused"],
                         "gpu cuda torch eager ended with -9; its log ends: ... Killed")

    def test_two_blocks_are_enough_when_the_time_is_up_and_one_is_not(self):
        rows = self.compared(2, **{"torch eager": FakeSide()}, missing={"torch.compile": "no compiler"})
        self.assertEqual((rows[OURS]["blocks"], rows[OURS]["ms_per_step"]["count"]), (2, 2))
        rows = self.compared(1, **{"torch eager": FakeSide()}, missing={"torch.compile": "no compiler"})
        self.assertEqual({row["not_run"] for row in rows.values()},
                         {"the time was up while it was measured (--limit)", "no compiler"})

    def test_without_python_nothing_is_compared(self):
        rows = self.compared(missing={"torch eager": "none", "torch.compile": "none"})
        self.assertIn("no Python side runs here", rows[OURS]["not_run"])


class Steps(unittest.TestCase):
    def test_on_a_gpu_the_line_of_a_step_comes_with_it_and_the_last_is_left_out(self):
        run = object.__new__(sides.WorkerRun)
        run.output, run.device = "", "cuda:0"
        run.lines = [(float(step), 0.0, f"step {step}/10  loss 1  grad norm 1  5 samples/s")
                     for step in (1, 4, 9, 10)]
        self.assertEqual([step for step, _, _ in run.step_times()], [1, 4, 9])
        self.assertEqual(run.per_step(2), (1.0, 0.0))


class Figures(unittest.TestCase):
    def test_share_of_a_peak(self):
        # 7 TFLOP in 20 ms are 350 TFLOP/s.
        self.assertAlmostEqual(gpu_figures.mfu(7e12, 0.02, 700), 0.5)

    def test_peaks_of_datasheets_by_name(self):
        bf16 = {name: gpu_figures.datasheet(name).get("BF16") for name in (
            "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe",
            "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "Tesla T4")}
        self.assertEqual(list(bf16.values()), [989.4, 989.4, 312.0, None, None, None, None, None])

    def test_saving(self):
        self.assertAlmostEqual(gpu_figures.saving(6, 10), 0.4)
        self.assertAlmostEqual(gpu_figures.saving(11, 10), -0.1)

    def rows(self):
        def row(mode, side, ms, **more):
            return {"workload": "transformer", "mode": mode, "side": side, "ms_of_blocks": ms, **more}

        return [row("MIXED_BF16", OURS, [10, 12, 11], peak_mib=500, mfu={"measured": 0.5, "datasheet": 0.4}),
                row("MIXED_BF16", GRAPH, [9, 9, 9], peak_mib=700, mfu={"measured": 0.6, "datasheet": 0.46}),
                row("MIXED_BF16", "torch eager", [9, 9, 9], ours_is_faster_by={"median": 0.9},
                    graph_is_faster_by={"median": 1.05}),
                row("FP32", OURS, [30, 36, 33], peak_mib=1000, mfu={"measured": 0.9}),
                row("TF32", OURS, [20, 24, 22], peak_mib=1000, mfu={"measured": 0.9}),
                {"workload": "radio_unet", "mode": "FP32", "side": OURS, "not_run": "no time"}]

    def test_modes_beside_each_other_of_the_same_side(self):
        rows = self.rows()
        gpu_figures.relate(rows)
        self.assertEqual(rows[0]["speedup"]["median"], 3)
        self.assertEqual(rows[0]["speedup_over_tf32"]["median"], 2)
        self.assertEqual(rows[0]["memory_saving"], 0.5)
        self.assertNotIn("speedup", rows[1])  # It was not measured in FP32.
        self.assertNotIn("speedup", rows[4])

    def test_targets_are_reached_not_reached_or_not_measured(self):
        rows = self.rows()
        gpu_figures.relate(rows)
        lines = gpu_figures.targets(rows)
        for line in (
                f"transformer, MIXED_BF16, speed beside torch eager: 1.05x ({GRAPH}), wanted at least 1.10x: "
                "not reached",
                f"transformer, MIXED_BF16, MFU: 46% ({GRAPH}, of the datasheet peak), wanted at least 45%: reached",
                f"transformer, MIXED_BF16, memory saved against FP32: 50% ({OURS}), wanted at least 40%: reached",
                "radio_unet, MIXED_BF16, memory saved against FP32: wanted at least 40%: not measured"):
            self.assertIn(line, lines)

    def test_what_was_not_run_is_listed_with_the_reason(self):
        text = gpu_tables.what_was_not_run([
            {"workload": "a", "mode": "FP32", "side": GRAPH, "not_run": "no GPU"},
            {"workload": "a", "mode": "TF32", "side": GRAPH, "not_run": "no GPU"}])
        self.assertEqual(text, f"{GRAPH}: no GPU\n    a: FP32, TF32")
        self.assertEqual(gpu_tables.what_was_not_run([]), "nothing")


if __name__ == "__main__":
    unittest.main()
