"""What a benchmark says of the machine: hardware, versions, load, and how steady it was."""

import concurrent.futures
import hashlib
import os
import pathlib
import platform
import subprocess
import time

import spread

# Instruction sets that decide how fast a product in a format is.
KINDS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "asimd", "bf16")
NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}
PROBE_BYTES = bytes(4 << 20)
PROBE_ROUNDS = 3


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def instruction_sets():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            there = set(line.split(":", 1)[1].split())
            return [name for name in KINDS if name in there]
    return []


def multiplies_bf16():
    """Whether products of BF16 are made by instructions of their own on this processor."""
    return bool(NATIVE_BF16 & set(instruction_sets()))


def memory_gib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None


def output_of(*command):
    """What a command prints, or None where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def facts(**more):
    """Facts of the machine and, in `more`, of the programs that are measured."""
    gpu = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    governor = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "processor": processor(),
        "cores of this process": len(os.sched_getaffinity(0)),
        "instruction sets": ", ".join(instruction_sets()),
        "BF16 products": "native" if multiplies_bf16() else "emulated",
        "memory": f"{memory_gib()} GiB",
        "GPU": gpu or "none",
        "frequency governor": governor.read_text().strip() if governor.exists() else "not shown",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **more,
    }


class Steadiness:
    """How long a fixed piece of work takes on the cores that are measured on, each time it is asked
    for: call measure() between the measured blocks. On a steady machine the times are alike."""

    def __init__(self, cores):
        self.cores = sorted(cores)
        self.seconds = []
        self.loads = []

    def _work(self, core):
        os.sched_setaffinity(0, {core})  # Of this thread alone.
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
            # 0 on a machine that does nothing else; the slowest quarter over the fastest probe.
            "probe_spread": found["high"] / min(self.seconds) - 1,
            "load_average": [min(self.loads), max(self.loads)],
        }
