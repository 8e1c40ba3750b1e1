"""Compares genesis-worker with Python on a GPU in FP32, TF32, MIXED_FP16 and MIXED_BF16: eager and as one CUDA graph, with torch eager
(autocast, GradScaler, fused AdamW) and torch.compile.

  benchmarks/run gpu [--out DIR] [--limit SECONDS] [--workload NAME]... [--mode MODE]... [--device cpu]

The most important comparisons run first. Comparisons that do not fit into the time limit are listed as not run. --device cpu tests the
program with tiny models, and does not measure speed. Requires a Python with torch 2.11 and numpy: GENESIS_BENCH_PYTHON, otherwise the
Python that runs this if it has torch, otherwise that of deploy/setup.sh --bench."""

import contextlib
import importlib.util
import os
import pathlib
import re
import sys
import tempfile

import gpu_comparison
import gpu_figures
import gpu_tables
import machine
import peers
import processor
import report
import sides
import time_budget
from gpu_figures import GRAPH, PEERS

# Estimated seconds of a comparison before one has been timed on this GPU: loading, compiling, three blocks, checkpoints.
GUESSES = {"world_model small": 60, "transformer": 100, "radio_unet": 120, "world_model large": 80,
           "exported": 60}
GUESS_ON_CPU = 5
MODES = ("MIXED_BF16", "FP32", "TF32", "MIXED_FP16")
# The most important comparisons come first.
PLAN = (
    ("world_model small", "MIXED_BF16"), ("transformer", "MIXED_BF16"), ("transformer", "FP32"),
    ("world_model small", "FP32"), ("radio_unet", "MIXED_BF16"), ("radio_unet", "FP32"),
    ("transformer", "TF32"), ("transformer", "MIXED_FP16"), ("world_model small", "TF32"),
    ("world_model small", "MIXED_FP16"), *(("world_model large", mode) for mode in MODES),
    ("radio_unet", "TF32"), ("radio_unet", "MIXED_FP16"), *(("exported", mode) for mode in MODES))


def arguments(words):
    parser = report.parser("gpu", __doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    parser.add_argument("--limit", type=float, default=540, help="seconds for all of it. Default 540")
    parser.add_argument("--blocks", type=report.repeats, help="measured blocks. Default 3; 2 on a CPU")
    parser.add_argument("--seconds", type=float, help="of training in a block. Default 3; 0.4 on a CPU")
    parser.add_argument("--workload", action="append", choices=GUESSES, help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    options = parser.parse_args(words)
    blocks, seconds = (3, 3.0) if options.device == "cuda" else (2, 0.4)
    options.blocks = blocks if options.blocks is None else options.blocks
    options.seconds = seconds if options.seconds is None else options.seconds
    if options.limit <= 0:
        parser.error(f"--limit is {options.limit:g}; accepted: above 0")
    if options.seconds <= 0:
        parser.error(f"--seconds is {options.seconds:g}; accepted: above 0")
    return options


def choose_python():
    """Makes the peers use this Python if it has torch and no other is named. The programs of a bundle use the peers' LibTorch."""
    if "GENESIS_BENCH_PYTHON" not in os.environ and importlib.util.find_spec("torch"):
        os.environ["GENESIS_BENCH_PYTHON"] = sys.executable
    os.environ.setdefault("GENESIS_PYTHON", str(sides.python_of_peers()))


def capability(facts):
    return tuple(map(int, facts["compute capability"].split(".")))


def lacking(mode, device, facts):
    """Returns why a mode cannot run on this device; empty if it can."""
    if device == "cpu":
        return "TF32 is a format of CUDA devices" if mode == "TF32" else ""
    needed = {"TF32": (8, 0), "MIXED_BF16": (8, 0), "MIXED_FP16": (7, 0)}.get(mode, (0, 0))
    if capability(facts) >= needed:
        return ""
    return (f"{mode} needs compute capability {needed[0]}.{needed[1]}; this device has "
            f"{facts['compute capability']}")


class Benchmark:
    """The measurement of all comparisons. `stack` ends the processes that it starts."""

    def __init__(self, options, folder, stack):
        self.options, self.folder, self.stack = options, pathlib.Path(folder), stack
        guesses = GUESSES if options.device == "cuda" else dict.fromkeys(GUESSES, GUESS_ON_CPU)
        self.budget = time_budget.Budget(options.limit, guesses)
        self.prepared = {}
        self.processes = {"machine": self._start("machine")}
        try:
            facts = gpu_comparison.asked(self.processes["machine"], do="facts")
        except (sides.Refused, RuntimeError) as error:
            sys.exit(f"benchmarks/run gpu: {error}")
        self.device_facts = {"device": processor.name(), **facts}
        self.missing = {}
        for side in PEERS:
            self._begin_peer(side)
        if options.device == "cpu":
            self.missing[GRAPH] = "it needs a CUDA device"

    def _start(self, side):
        process = sides.PeerProcess(self.folder, os.sched_getaffinity(0), "gpu", self.options.device, side)
        self.stack.callback(process.stop)
        return process

    def _begin_peer(self, side):
        if self.options.device == "cpu" and side == "torch.compile":
            self.missing[side] = "compiling takes longer than all else of the proof on a CPU"
            return
        process = self._start(side)
        answer = process.ask(do="probe")
        if "error" in answer:
            self.missing[side] = f"it does not work here: {answer['error']}"
        else:
            self.processes[side] = process

    def peaks(self):
        """Measures the rate of matrix products in each format that bounds a mode."""
        formats = [gpu_figures.FORMAT[mode] for mode in MODES
                   if not lacking(mode, self.options.device, self.device_facts)]
        if self.options.device == "cpu":
            formats.remove("FP16")  # Emulation takes minutes.
        return gpu_comparison.asked(self.processes["machine"], do="limits", formats=formats)

    def _prepare(self, name):
        if name not in self.prepared:
            folder = self.folder / re.sub(r"\W+", "-", name)
            facts = gpu_comparison.asked(self.processes["machine"], do="prepare", workload=name,
                                         folder=str(folder))
            self.prepared[name] = folder, {**facts, "device": self.device_facts["device"]}
        return self.prepared[name]

    def compare(self, name, mode):
        """Compares all sides. Returns their rows, and how steady the machine was."""
        with self.budget.spend_on(name):
            try:
                folder, facts = self._prepare(name)
            except time_budget.TimeUp:
                return [not_run(name, mode, "the time was up while its data was made (--limit)")], {}
            comparison = gpu_comparison.Comparison(name, mode, folder, facts, self.processes, self.missing,
                                                   self.options)
            comparison.run()
        return list(comparison.rows()), comparison.steadiness.summary()


def not_run(name, mode, reason):
    return {"name": f"{name}, {mode}", "workload": name, "mode": mode, "side": "all", "not_run": reason}


def objection(name, mode, benchmark):
    """Returns why a comparison does not start; empty if it does."""
    options = benchmark.options
    if name not in (options.workload or GUESSES) or mode not in (options.mode or MODES):
        return "it was not asked for (--workload, --mode)"
    return lacking(mode, options.device, benchmark.device_facts) or benchmark.budget.objection(name)


def measure(benchmark, found):
    for name, mode in PLAN:
        if reason := objection(name, mode, benchmark):
            found.add(not_run(name, mode, reason))
            continue
        rows, steadiness = benchmark.compare(name, mode)
        for row in rows:
            found.add(row)
        found.steadiness[f"{name}, {mode}"] = steadiness
        print(gpu_tables.table(rows), flush=True)


def run(words):
    options = arguments(words)
    choose_python()
    worker = sides.worker()
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder, contextlib.ExitStack() as stack:
        # torch.compile's cache is removed with the folder.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        benchmark = Benchmark(options, folder, stack)
        device = benchmark.device_facts["device"]
        found = report.Report(
            "gpu", f"genesis-worker beside Python on {device}",
            {**machine.facts(**{"genesis-worker": machine.output_of(worker, "--version")}),
             "driver, power limit, highest clock": machine.output_of(
                 "nvidia-smi", "--id=0", "--query-gpu=driver_version,power.limit,clocks.max.sm",
                 "--format=csv,noheader"),
             **{"measured " + name if name == "device" else name: value
                for name, value in benchmark.device_facts.items()}},
            {"device": options.device, "limit": options.limit, "blocks": options.blocks,
             "seconds_per_block": options.seconds, "loss tolerance": peers.TOLERANCE},
            file="gpu-" + re.sub(r"\W+", "-", device).strip("-").lower())
        try:
            gpu_tables.show_peaks(found, benchmark.peaks())
            measure(benchmark, found)
        finally:  # Reports what was measured until an interrupt.
            gpu_tables.finish(found, judged=options.device == "cuda")
            found.write(options.out)
    found.exit_if_refused()
    if all("not_run" in row for row in found.rows):
        sys.exit("nothing was measured; the report says why")
