#!/usr/bin/env python3
"""Adds the ratios of reports to docs/benchmarks/ratios.csv, with the commit whose programs were measured: ratios.py COMMIT REPORT.json...

Ratios are kept and times are not, because the sides of one run share the state of the machine. Rows are in the order in which their runs
started, each run once. The file is never edited by hand."""

import csv
import json
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
FILE = SOURCE / "docs" / "benchmarks" / "ratios.csv"
COLUMNS = ["begin", "commit", "processor", "benchmark", "name", "ratio", "median", "low", "high", "count"]
# Columns of a row that are ratios between two sides.
RATIOS = ("ratio", "ours_is_faster_by", "compiled_is_faster_by", "graph_is_faster_by",
          "ours_uses_less_processor_by", "speedup", "speedup_over_tf32")


def lines(report, commit):
    for row in report["rows"]:
        for name in RATIOS:
            if isinstance(value := row.get(name), dict):
                # In reports of `gpu`, the processor is the GPU, because it ran the steps.
                yield {"begin": report["begin"], "commit": commit,
                       "processor": report["facts"].get("measured device", report["facts"]["processor"]),
                       "benchmark": report["benchmark"], "name": row["name"], "ratio": name,
                       **{key: f"{value[key]:.4g}" for key in ("median", "low", "high", "count")}}


def add(rows, file):
    """Inserts rows into the file in the order of time. Exits with an error if it already has one of their reports."""
    kept = []
    if file.exists():
        with open(file, newline="") as old:
            kept = list(csv.DictReader(old))
    there = {(row["begin"], row["benchmark"]) for row in kept}
    for row in rows:
        if (row["begin"], row["benchmark"]) in there:
            sys.exit(f"{file}: the report of {row['benchmark']} that began {row['begin']} is there already")
    with open(file, "w", newline="") as new:
        writer = csv.DictWriter(new, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(kept + rows, key=lambda row: row["begin"]))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    commit = subprocess.run(["git", "-C", SOURCE, "rev-parse", "--short", sys.argv[1]], capture_output=True,
                            text=True, check=True).stdout.strip()
    add([row for path in sys.argv[2:] for row in lines(json.loads(pathlib.Path(path).read_text()), commit)], FILE)


if __name__ == "__main__":
    main()
