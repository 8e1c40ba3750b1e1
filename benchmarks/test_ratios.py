"""Tests that the file of ratios contains only what its program writes. No ratios are judged."""

import csv
import io
import pathlib
import re
import tempfile
import unittest

import ratios

REPORT = {"benchmark": "peers", "begin": "2026-03-10T05:00:00Z", "facts": {"processor": "a processor"}, "rows": [
    {"name": "small, FP32: torch eager", "ours_is_faster_by": {"median": 1.8, "low": 1.23456, "high": 12.0, "count": 4},
     "seconds": {"median": 3}},
    {"name": "small, FP32: Accelerate", "refused": "another loss"}]}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
BENCHMARKS = {"peers", "gpu", "checkpoint", "comprehensive", "ranks"}


def faults(text):
    """Returns errors in the file that the program cannot have caused."""
    if text.splitlines()[0].split(",") != ratios.COLUMNS:
        return ["the columns are others"]
    rows, found = list(csv.DictReader(io.StringIO(text))), []
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            found.append(f"line {number}: not {len(ratios.COLUMNS)} columns")
            continue
        for key in ("median", "low", "high", "count"):
            if f"{float(row[key]):.4g}" != row[key]:
                found.append(f"line {number}: {key} {row[key]} is not printed so")
        if not float(row["low"]) <= float(row["median"]) <= float(row["high"]):
            found.append(f"line {number}: the median is not within its interval")
        if not TIME.match(row["begin"]) or not re.fullmatch("[0-9a-f]{7,12}", row["commit"]):
            found.append(f"line {number}: time or commit")
        if row["ratio"] not in ratios.RATIOS or row["benchmark"] not in BENCHMARKS:
            found.append(f"line {number}: ratio or benchmark")
    for number, (before, after) in enumerate(zip(rows, rows[1:]), 3):
        if after["begin"] < before["begin"]:
            found.append(f"line {number}: it began before the line above")
    keys = [(row["begin"], row["benchmark"], row["name"], row["ratio"]) for row in rows]
    found += [f"twice: {key}" for key in sorted(set(keys)) if keys.count(key) > 1]
    # A number with four significant digits may end before its third decimal, but all numbers of a run do so only if they were rounded by
    # hand.
    for run in sorted({(row["begin"], row["benchmark"]) for row in rows}):
        numbers = [row[key] for row in rows if (row["begin"], row["benchmark"]) == run and row["median"] != "1"
                   for key in ("median", "low", "high")]
        if numbers and all(len(number.partition(".")[2]) <= 2 for number in numbers):
            found.append(f"{run}: all are rounded")
    return found


class Ratios(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "ratios.csv"

    def test_the_file_holds_what_the_program_writes(self):
        self.assertEqual(faults(ratios.FILE.read_text()), [])

    def test_the_program_keeps_the_order_of_time_and_each_run_once(self):
        for begin in ("2026-03-10T05:00:00Z", "2026-03-12T05:00:00Z", "2026-03-11T05:00:00Z"):
            ratios.add(list(ratios.lines({**REPORT, "begin": begin}, "abcdef0")), self.file)
        text = self.file.read_text()
        self.assertEqual(faults(text), [])
        self.assertEqual(text.splitlines()[1], "2026-03-10T05:00:00Z,abcdef0,a processor,peers,"
                         '"small, FP32: torch eager",ours_is_faster_by,1.8,1.235,12,4')
        self.assertEqual([line[:10] for line in text.splitlines()[1:]], ["2026-03-10", "2026-03-11", "2026-03-12"])
        with self.assertRaisesRegex(SystemExit, "that began 2026-03-11T05:00:00Z is there already"):
            ratios.add(list(ratios.lines({**REPORT, "begin": "2026-03-11T05:00:00Z"}, "abcdef0")), self.file)
        self.assertEqual(self.file.read_text(), text)

    def test_each_fault_is_found(self):
        ratios.add(list(ratios.lines(REPORT, "abcdef0")), self.file)
        text = self.file.read_text()
        line = text.splitlines()[1] + "\n"
        for changed, said in (
                (text.replace(",1.8,", ",1.80,"), "line 2: median 1.80 is not printed so"),
                (text.replace(",1.8,", ",1.2,"), "line 2: the median is not within its interval"),
                (text.replace(",1.235,", ",1.23,"), "all are rounded"),
                (text + line.replace("03-10", "03-09"), "line 3: it began before the line above"),
                (text + line, "twice"), (text.replace("peers", "mine"), "line 2: ratio or benchmark"),
                (text.replace("abcdef0", "today"), "line 2: time or commit"),
                (text.replace("count", "number"), "the columns are others"),
                (text.replace(",12,4", ",12"), "line 2: not 10 columns")):
            found = faults(changed)
            self.assertTrue(any(said in each for each in found), (changed, found))


if __name__ == "__main__":
    unittest.main()
