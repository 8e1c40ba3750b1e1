#!/usr/bin/env python3
"""Counts the cost of one execution of each path of hot_paths under valgrind, and compares it with the recorded cost, or records it:
guard.py check|record HOT_PATHS FIGURES.json

It counts instructions and allocations instead of measuring time, because the counts are the same on a busy machine. The program runs
twice, and the difference is the cost of the additional executions, without that of the start. If counts become lower, record them."""

import json
import pathlib
import re
import subprocess
import sys

# Number of executions in the two runs, large enough to include rare events.
TIMES = {"step": (1000, 6000), "schedule": (10, 30), "get_job": (50, 250), "scrape": (5, 25)}
# On another processor the C library selects other routines under valgrind.
MOST = {"instructions": 1.10, "allocations": 1.02}


def of_valgrind(pattern, *command):
    done = subprocess.run(["valgrind", *command], capture_output=True, text=True, timeout=600, check=False)
    found = re.search(pattern, done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"guard: {' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return int(found.group(1).replace(",", ""))


def counts(program, path, times):
    return {
        "instructions": of_valgrind(r"Collected : (\d+)", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                    program, path, times),
        "allocations": of_valgrind(r"total heap usage: ([\d,]+) allocs", "--tool=memcheck", "--leak-check=no",
                                   "--undef-value-errors=no", program, path, times)}


def measure(program):
    found = {}
    for path, (few, many) in TIMES.items():
        less, more = counts(program, path, str(few)), counts(program, path, str(many))
        found[path] = {what: round((more[what] - less[what]) / (many - few), 2) for what in less}
    return found


def check(found, recorded):
    """Prints all counts, and returns a line for each that is worse than recorded."""
    worse = []
    for path, figures in found.items():
        for what, value in figures.items():
            known = recorded[path][what]
            print(f"{path:10}{what:14}{value:12.2f}   recorded {known:12.2f}   ratio {value / max(known, 0.01):.3f}")
            # The 0.1 is for rare events.
            if value > known * MOST[what] + 0.1:
                worse.append(f"{path} takes {value} {what} a time; recorded: {known}; accepted: {MOST[what]} times that")
    return worse


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("check", "record"):
        sys.exit(__doc__)
    program, file = sys.argv[2], pathlib.Path(sys.argv[3])
    found = measure(program)
    if sys.argv[1] == "record":
        file.write_text(json.dumps(found, indent=2) + "\n")
        return
    worse = check(found, json.loads(file.read_text()))
    if worse:
        sys.exit("\n".join([*worse, "make it cheaper, or say in the commit what it is worth and record it: "
                            "tests/guard/guard.py record"]))


if __name__ == "__main__":
    main()
