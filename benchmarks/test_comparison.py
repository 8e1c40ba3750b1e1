"""Tests the benchmarks' shared code: valid comparisons, median and spread, reports. No times are judged."""

import contextlib
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

import charts
import control_plane
import machine
import peers
import ray_side
import report
import scenarios
import sides
import spread
import workloads


class Losses(unittest.TestCase):
    def test_alike_ones_are_compared(self):
        worst = peers.compare_losses([2.0, 1.0], [2.002, 1.0], "FP32")
        self.assertAlmostEqual(worst, 1e-3)

    def test_others_are_refused_with_step_and_values(self):
        with self.assertRaisesRegex(sides.Refused, r"differ by 0\.1 of ours at step 2 \(1\.1 beside 1\); "
                                                   r"at most 0\.002 is accepted in FP32"):
            peers.compare_losses([2.0, 1.0], [2.0, 1.1], "FP32")

    def test_in_mixed_precision_means_are_compared(self):
        ours, theirs = [1.0] * 40, [1.1, 0.9] * 20
        self.assertAlmostEqual(peers.compare_losses(ours, theirs, "MIXED_BF16"), 0)
        with self.assertRaisesRegex(sides.Refused, r"differ by 0\.1 of ours from step 33 on \(1\.1 beside 1\)"):
            peers.compare_losses(ours, ours[:32] + [1.1] * 8, "MIXED_BF16")

    def test_what_is_not_a_number_is_refused(self):
        with self.assertRaises(sides.Refused):
            peers.compare_losses([2.0, 1.0], [2.0, float("nan")], "FP32")

    def test_another_count_is_refused(self):
        with self.assertRaisesRegex(sides.Refused, "1 losses beside our 2"):
            peers.compare_losses([2.0, 1.0], [2.0], "FP32")


class Spread(unittest.TestCase):
    def test_quartiles(self):
        found = spread.summary([4, 1, 3, 2, 5])
        self.assertEqual((found["low"], found["median"], found["high"]), (2, 3, 4))

    def test_interval_holds_the_median_and_is_the_same_again(self):
        values = [1.0, 1.1, 1.2, 0.9, 1.05, 5.0]
        found = spread.median_interval(values)
        self.assertLess(found["low"], found["median"])
        self.assertGreater(found["high"], found["median"])
        self.assertEqual(found, spread.median_interval(values))


class Lines(unittest.TestCase):
    def test_step_of_a_line_is_the_one_before(self):
        run = object.__new__(sides.WorkerRun)
        run.output = ""
        run.lines = [(0.0, 0.0, "started: 10 steps, from step 0"),
                     (1.0, 1.0, "step 1/10  loss 2  grad norm 1  5 samples/s"),
                     (3.0, 2.5, "step 2/10  loss 2  grad norm 1  5 samples/s"),
                     (10.0, 6.0, "step 10/10  loss 1  grad norm 1  5 samples/s")]
        self.assertEqual([step for step, _, _ in run.step_times()], [1, 3, 10])
        self.assertEqual(run.per_step(2), (1.0, 0.5))
        with self.assertRaisesRegex(RuntimeError, "only 0 steps were timed"):
            run.per_step(4)


class Reports(unittest.TestCase):
    def test_json_csv_and_page_hold_figures_and_refusals(self):
        found = report.Report("both", "A <title>", {"processor": "x"}, {"blocks": 2})
        value = {"median": 2.5, "low": 2.0, "high": 3.0, "count": 2}
        found.add({"name": "one", "ms": value})
        found.add({"name": "two", "refused": "losses differ"})
        found.chart(charts.bars("times", [("group & more", [("one", value)])], "ms", line=1))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            found.text("Remark", "a < b")
            found.write(folder)
            whole = json.loads(pathlib.Path(folder, "both.json").read_text())
            with open(f"{folder}/both.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            page = pathlib.Path(folder, "both.html").read_text()
        self.assertEqual(whole["rows"][0]["ms"]["median"], 2.5)
        self.assertEqual([row["ms.median"] for row in rows], ["2.5", ""])
        self.assertEqual(rows[1]["refused"], "losses differ")
        self.assertEqual(found.refused(), [{"name": "two", "refused": "losses differ"}])
        for part in ("A &lt;title&gt;", "group &amp; more", "losses differ", "a &lt; b"):
            self.assertIn(part, page)
        xml.etree.ElementTree.fromstring(found.charts[0])

    def test_tables_of_scenarios_are_laid_out_as_promised(self):
        base = {"scenario": "warmup", "mode": "FP32", "formats": "native", "overflow": 0.0,
                "seconds": {"median": 0.216}, "speedup": {"median": 1.0}, "held_out_loss": 0.1234,
                "degradation": 0.0}
        other = {**base, "mode": "BF16", "formats": "emulated", "seconds": {"median": 0.145},
                 "speedup": {"median": 1.48}, "held_out_loss": 0.1237, "degradation": 0.0024}
        table = scenarios.speed_table([base, other], "BF16")
        self.assertRegex(table, r"warmup +\| 0\.216s +\| 0\.145s \(emulated\) *\| 1\.48x +\| 0\.0%")
        self.assertIn("Average CPU Speedup: 1.48x", table)
        self.assertRegex(scenarios.loss_table([base, other], "BF16"),
                         r"warmup +0\.1234 +0\.1237 +\+0\.24%")
        refused = {key: other[key] for key in ("scenario", "mode", "formats")}
        self.assertIn("not run", scenarios.speed_table([base, {**refused, "refused": "not run"}], "BF16"))


class CommandLine(unittest.TestCase):
    RUN = pathlib.Path(__file__).with_name("run")

    def run_it(self, *words):
        return subprocess.run([sys.executable, "-B", self.RUN, *words], capture_output=True, text=True)

    def test_every_benchmark_tells_its_options(self):
        names = self.run_it().stderr.split("{")[1].split("}")[0].split(",")
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                done = self.run_it(name, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"usage: benchmarks/run {name}", done.stdout)
                self.assertIn("--out", done.stdout)

    def test_what_is_no_benchmark_or_too_seldom_is_refused(self):
        self.assertIn("usage: ", self.run_it("speed").stderr)
        done = self.run_it("memory", "--rounds", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--rounds: is '1'; accepted: a whole number from 2 on", done.stderr)


class ControlPlane(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        load = ("Train", 20)

        def side(p99, speed):
            return {"p50_ms": 1.0, "p99_ms": p99, "samples_per_second": speed}

        rounds = [{"alone": 1000, load: {"echo": side(2, 900), "daemon": side(4, 880)}},
                  {"alone": 500, load: {"echo": side(10, 450), "daemon": side(20, 440)}}]
        row = control_plane.row(load, rounds)
        self.assertEqual(row["p99_ratio"]["median"], 2)
        self.assertEqual(row["training_points_below_echo"]["median"], 2)
        self.assertIn("p99 12.00 beside 6.00", control_plane.table([row]))


class Machine(unittest.TestCase):
    def test_steadiness_has_a_probe_for_each_call(self):
        steadiness = machine.Steadiness({min(machine.os.sched_getaffinity(0))})
        self.assertEqual(steadiness.summary(), {})
        steadiness.measure()
        steadiness.measure()
        self.assertEqual(steadiness.summary()["probes"], 2)
        self.assertGreaterEqual(steadiness.summary()["probe_spread"], 0)


class FirstStepOfRay(unittest.TestCase):
    def test_it_is_made_and_its_end_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            workloads.prepare(workloads.WORKLOADS["world_model small"](pathlib.Path(folder)))
            begin = time.time()
            ray_side.first_step(folder, folder + "/done")
            self.assertGreaterEqual(float(pathlib.Path(folder, "done").read_text()), begin)


if __name__ == "__main__":
    unittest.main()
