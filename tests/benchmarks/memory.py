"""Peak memory of a job in FP32 and in MIXED_BF16, in turn, in one run: tests/benchmarks/run memory [OUT.json]

Host memory is VmHWM of genesis-worker --spec, read while it runs. Where torch of Python sees a CUDA
device, the most that the worker used on it is read beside it.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

WORKER = pathlib.Path(os.environ["GENESIS_BIN"]) / "genesis-worker"
MODES = ("FP32", "MIXED_BF16")
ROUNDS = 3
MIB = 2**20

JOBS = {
    # Next to nothing: what program and library need by themselves.
    "floor": {
        "model": {"world_model": {"hidden_size": 8, "latent_size": 8}},
        "dataset": {"synthetic": {"trajectories": {"episodes": 10}}},
        "training": {"max_steps": 2, "batch_size": 8},
    },
    "transformer": {
        "model": {"transformer": {"vocabulary_size": 1024, "context_length": 128, "layers": 4,
                                  "heads": 4, "embedding_size": 192}},
        "dataset": {"synthetic": {"tokens": {"size": 16384}}},
        "training": {"max_steps": 2, "batch_size": 16},
    },
    "radio_unet": {
        "model": {"radio_unet": {"part": "DIFFUSION", "base_channels": 16,
                                 "channel_multipliers": [1, 2, 4]}},
        "dataset": {"synthetic": {"maps": {"maps": 32, "size": 64}}},
        "training": {"max_steps": 2, "batch_size": 8, "max_grad_norm": 0.5},
    },
}


def device_memory():
    """A function that reads the bytes in use on the device, or None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.cuda.init()
    return lambda: torch.cuda.mem_get_info(0)[1] - torch.cuda.mem_get_info(0)[0]


def peak_of(pid):
    """VmHWM in bytes; None once the process has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def measure(job, mode, on_device):
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        path = pathlib.Path(folder) / "job.yaml"
        path.write_text(json.dumps({**job, "precision": {"mode": mode}}))  # JSON is YAML.
        before = on_device() if on_device else 0
        peaks = {"host": 0, "device": 0}
        process = subprocess.Popen(
            [WORKER, "--spec", path, "--checkpoint-dir", folder], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "ENABLE_FP16_TRAINING": "true"})

        def watch():
            while (peak := peak_of(process.pid)) is not None:
                peaks["host"] = max(peaks["host"], peak)
                if on_device:
                    peaks["device"] = max(peaks["device"], on_device() - before)
                time.sleep(0.002)

        watcher = threading.Thread(target=watch)
        watcher.start()
        output, _ = process.communicate()
        watcher.join()
    if process.returncode != 0 or f"precision: {mode}:" not in output:
        raise SystemExit(f"the job in {mode} did not run:\n{output}")
    return peaks


def run(out="", machine=""):
    on_device = device_memory()
    results = {}
    for name, job in JOBS.items():
        found = {mode: [] for mode in MODES}
        for _ in range(ROUNDS):
            for mode in MODES:
                found[mode].append(measure(job, mode, on_device))
        results[name] = {}
        for kind in ("host", "device") if on_device else ("host",):
            peaks = {mode: [each[kind] for each in found[mode]] for mode in MODES}
            middle = {mode: statistics.median(each) for mode, each in peaks.items()}
            change = middle["MIXED_BF16"] / middle["FP32"] - 1
            results[name][kind] = {"bytes": peaks, "median": middle, "change": round(change, 4)}
            print(f"{name}, peak on the {kind}: " + ", ".join(
                f"{mode} {middle[mode] / MIB:.0f} MiB ({min(peaks[mode]) / MIB:.0f} to "
                f"{max(peaks[mode]) / MIB:.0f})" for mode in MODES) + f", {100 * change:+.1f} %")
    if out:
        report = {"machine": machine, "rounds": ROUNDS, "jobs": JOBS, "results": results}
        pathlib.Path(out).write_text(json.dumps(report, indent=2) + "\n")
        print(out)
