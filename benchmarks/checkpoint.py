"""Measures checkpoints: the delay of a step, writing in the background and in the foreground, and resuming. They are compared in turn with
torch.save, `dd conv=fsync` and a plain read of the same size.

  benchmarks/run checkpoint [--out DIR] [--rounds N] [--mebibytes N] [--folder DIR]"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import charts
import machine
import report
import sides
import spread

TITLES = {
    "snapshot": "copy of the state",
    "finite_test": "test for NaN and Inf",
    "stall": "what the step waits for",
    "plain_step": "a step",
    "saving_step": "a step that saves, and is written of",
    "synchronous": "test and write at once, without a copy",
    "background": "write in the background",
    "resume": "resume",
    "plain_read": "floor: plain read of the file",
    "dd": "floor: dd conv=fsync",
    "saved": "torch.save, not yet durable",
    "durable": "torch.save and fsync",
    "loaded": "torch.load",
}


def dd(path, size):
    blocks = max(1, size >> 20)
    os.sync()  # The other sides also sync before each write: see Remove in checkpoint_speed.cc.
    begin = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={blocks}", "conv=fsync",
                    "status=none"], check=True)
    seconds = time.perf_counter() - begin
    os.remove(path)
    return seconds * size / (blocks << 20)


def measure(speed, options, folder, steadiness):
    found = {name: [] for name in TITLES}
    python = sides.PeerProcess(folder, os.sched_getaffinity(0), "checkpoint")
    try:
        for round in range(options.rounds + 1):
            steadiness.measure()
            ours = json.loads(subprocess.run(
                [speed, folder, str(options.mebibytes)], check=True, capture_output=True, text=True,
                env=sides.environment()).stdout)
            for path in pathlib.Path(folder).glob("*.pt*"):
                path.unlink()
            size = ours.pop("bytes")
            theirs = python.ask(mebibytes=options.mebibytes, folder=folder)
            if abs(theirs.pop("bytes") / size - 1) > 0.02:
                sys.exit("torch.save wrote another amount than we did; the times say nothing")
            if round > 0:  # The caches and the disk are in an unknown state in the first round.
                for name, seconds in {**ours, **theirs,
                                      "dd": dd(f"{folder}/dd", size)}.items():
                    found[name].append(seconds)
    finally:
        python.stop()
    return found, size


def ratios(found):
    """Returns (name, ratio in each round, "at most" or "at least", bound) for each target."""
    def of(above, below):
        return [a / b for a, b in zip(found[above], found[below])]

    return [("stall, of the synchronous save", of("stall", "synchronous"), "at most", 0.05),
            ("speed of the background write, of dd", of("dd", "background"), "at least", 0.8),
            ("speed of resuming, of a plain read", of("plain_read", "resume"), "at least", 0.5),
            ("speed of the synchronous save, of torch.save and fsync", of("durable", "synchronous"),
             "at least", 1.0),
            ("speed of resuming, of torch.load", of("loaded", "resume"), "at least", 1.0)]


def run(words):
    parser = report.parser("checkpoint", __doc__, rounds=7)
    parser.add_argument("--mebibytes", type=int, default=500, help="of a checkpoint. Default 500")
    parser.add_argument("--folder", help="on the disk that is measured. Default: the temporary folder")
    options = parser.parse_args(words)
    if options.mebibytes < 1:
        parser.error(f"--mebibytes is {options.mebibytes}; accepted: 1 or more")
    sides.python_of_peers()
    speed = sides.benchmark_program("checkpoint_speed")
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="genesis-", dir=options.folder) as folder:
        seconds, size = measure(speed, options, folder, steadiness)
        disk = machine.output_of("df", "--output=source,fstype", folder).splitlines()[-1]
    found = report.Report("checkpoint", "Checkpoints", machine.facts(
        disk=re.sub(r"\s+", ", ", disk)), {"rounds": options.rounds, "bytes": size})
    for name, values in seconds.items():
        found.add({"name": TITLES[name], "seconds": spread.summary(values),
                   "mb_per_second": size / spread.summary(values)["median"] / 1e6})
    lines = []
    for name, values, bound, wanted in ratios(seconds):
        value = spread.median_interval(values)
        found.add({"name": name, "ratio": value, "wanted": f"{bound} {wanted}"})
        lines.append(f"{name:56}{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
                     f"   wanted: {bound} {wanted}")
    found.steadiness = steadiness.summary()
    times = [row for row in found.rows if "seconds" in row]
    found.text("Seconds", "\n".join(
        f"{row['name']:34}{row['seconds']['median']:7.3f} ({row['seconds']['low']:.3f} to "
        f"{row['seconds']['high']:.3f})  {row['mb_per_second']:6.0f} MB/s" for row in times))
    found.text("Ratios", "\n".join(lines))
    found.chart(charts.bars(f"Seconds, {size / 1e6:.0f} MB",
                            [("", [(row["name"], row["seconds"]) for row in times])], "s"))
    found.write(options.out)
