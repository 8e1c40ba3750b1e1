"""Describes the machine in a report: hardware, versions, load, and how steady it was."""

import concurrent.futures
import hashlib
import os
import pathlib
import platform
import subprocess
import sys
import time

import spread

# The path is set before the other modules of this folder import processor.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "interop"))
import processor  # noqa: E402

PROBE_BYTES = bytes(4 << 20)
PROBE_ROUNDS = 3


def memory_gib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def output_of(*command):
    """Returns the output of a command; None if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def facts(**more):
    """Returns metadata of the machine, and of the measured programs (`more`)."""
    gpu = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    governor = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "processor": processor.name(),
        "cores of this process": len(os.sched_getaffinity(0)),
        "instruction sets": ", ".join(processor.instruction_sets()),
        "BF16 products": "native" if processor.multiplies_bf16() else "emulated",
        "memory": f"{memory_gib()} GiB",
        "GPU": gpu or "none",
        "frequency governor": governor.read_text().strip() if governor.exists() else "not shown",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **more,
    }


class Steadiness:
    """A measure of how steady the machine was: times of a fixed piece of work on the measured cores. Call measure() between blocks."""

    def __init__(self, cores):
        self.cores = sorted(cores)
        self.seconds = []
        self.loads = []

    def _work(self, core):
        os.sched_setaffinity(0, {core})  # Affects only this thread.
        for _ in range(PROBE_ROUNDS):
            hashlib.sha256(PROBE_BYTES).digest()

    def measure(self):
        with concurrent.futures.ThreadPoolExecutor(len(self.cores)) as pool:
            begin = time.perf_counter()
            list(pool.map(self._work, self.cores))
            self.seconds.append(time.perf_counter() - begin)
        self.loads.append(os.getloadavg()[0])

    def summary(self):
        if not self.seconds:
            return {}
        found = spread.summary(self.seconds)
        return {
            "probes": len(self.seconds),
            "probe_median_ms": 1e3 * found["median"],
            "probe_quartiles_ms": [1e3 * found["low"], 1e3 * found["high"]],
            # Upper quartile relative to the fastest probe, minus 1: 0 on an idle machine.
            "probe_spread": found["high"] / min(self.seconds) - 1,
            "load_average": [min(self.loads), max(self.loads)],
        }
