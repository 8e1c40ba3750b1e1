"""The device under test and its programs."""

import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import torch

DEVICE = os.environ["GENESIS_GPU_DEVICE"]
ON_CUDA = DEVICE == "cuda"
SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
TESTS = pathlib.Path(os.environ["GENESIS_TESTS"])
WORKER = BIN / "genesis-worker"
# Seconds after which a run fails. Working runs take much less.
LONG = 600

for folder in ("interop", "e2e"):
    sys.path.insert(0, str(SOURCE / "tests" / folder))
import processor  # noqa: E402

needs_cuda = unittest.skipUnless(ON_CUDA, "no CUDA device: --device cpu")
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
needs_numpy = unittest.skipUnless(
    HAS_NUMPY, f"{sys.executable} has no numpy, which the Python twin reads its data with")


def has_bf16():
    return not ON_CUDA or torch.cuda.get_device_capability(0) >= (8, 0)


def has_tensor_cores():
    return ON_CUDA and torch.cuda.get_device_capability(0) >= (7, 0)


def output_of(*command):
    """Returns the output of a command; None if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def describe():
    """Returns the metadata of the machine for the report."""
    facts = {
        "device": torch.cuda.get_device_name(0) if ON_CUDA else processor.name(),
        "torch": torch.__version__,
        "python": f"{sys.version.split()[0]} ({sys.executable})",
        "numpy": "present" if HAS_NUMPY else "absent",
        "programs": output_of(str(WORKER), "--version"),
        "processor": f"{processor.name()}, {os.cpu_count()} cores",
        "system": " ".join(os.uname()[:3:2]),
    }
    if ON_CUDA:
        major, minor = torch.cuda.get_device_capability(0)
        facts["compute capability"] = f"{major}.{minor}"
        facts["device memory"] = f"{torch.cuda.mem_get_info(0)[1] / 2**30:.1f} GiB"
        facts["driver"] = output_of("nvidia-smi", "--query-gpu=driver_version",
                                    "--format=csv,noheader") or "unknown: nvidia-smi is not there"
        facts["CUDA of torch"] = torch.version.cuda
        facts["cuDNN of torch"] = torch.backends.cudnn.version()
    manifest = SOURCE / "MANIFEST"
    if manifest.exists():
        facts["bundle"] = manifest.read_text().split("library")[0].replace("\n", "; ").strip("; ")
    return facts


class MemoryWatch:
    """Records the peak of the device's used memory while it is open, minus the amount before, in bytes; None on a CPU.

    The driver reports it, so it includes the CUDA context and all memory of the allocator."""

    def __enter__(self):
        self.peak = None
        self._done = threading.Event()
        if ON_CUDA:
            torch.cuda.init()
            self._free = torch.cuda.mem_get_info(0)[0]
            self.peak = 0
            self._thread = threading.Thread(target=self._watch)
            self._thread.start()
        return self

    def _watch(self):
        while not self._done.wait(0.01):
            self.peak = max(self.peak, self._free - torch.cuda.mem_get_info(0)[0])

    def __exit__(self, *_):
        self._done.set()
        if ON_CUDA:
            self._thread.join()


def on_one_gpu(command):
    """Returns the command of a rank that shares a GPU.

    NCCL rejects two ranks on one GPU unless they claim to be on two hosts. Gradients then pass through sockets."""
    if not ON_CUDA:
        return command
    own = 'NCCL_HOSTID="${NCCL_HOSTID-rank$RANK}" NCCL_SOCKET_IFNAME=lo exec "$@" --device cuda:0'
    return ["sh", "-c", own, "sh", *command]


class Run:
    """A finished genesis-worker --spec: its exit code, output, steps and checkpoints.

    With several `ranks`, torchrun starts them. If `share`, all use the first GPU."""

    def __init__(self, job, folder, mode=None, *flags, on_cpu=False, ranks=1, share=True,
                 variables=None):
        folder = pathlib.Path(folder)
        folder.mkdir(exist_ok=True)
        job = json.loads(json.dumps(job))
        if mode is not None:
            job.setdefault("precision", {})["mode"] = mode
        (folder / "job.yaml").write_text(json.dumps(job))  # JSON is valid YAML.
        environment = {**os.environ, "ENABLE_FP16_TRAINING": "true", **(variables or {})}
        if on_cpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self.emulates = on_cpu or not ON_CUDA
        command = [WORKER, "--spec", folder / "job.yaml", "--checkpoint-dir", folder, "--telemetry",
                   folder / "telemetry.jsonl", *flags]
        if self.emulates:
            command += ["--threads", "1", "--emulate-fp16"]
        if ranks > 1:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                       f"--nproc_per_node={ranks}", *(on_one_gpu(command) if share else command)]
        begin = time.monotonic()
        with MemoryWatch() as memory:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                  timeout=LONG, env=environment)
        self.seconds = time.monotonic() - begin
        self.memory = memory.peak
        self.code, self.output = done.returncode, done.stdout + done.stderr
        self.records = []
        if self.code == 0:
            lines = (folder / "telemetry.jsonl").read_text().splitlines()
            self.records = [json.loads(line) for line in lines]
        self.losses = [record["loss"] for record in self.records]
        self.checkpoints = sorted(folder.glob("*.pt"))

    def samples_per_second(self):
        """Returns the speed over the last three quarters of the steps, because the first quarter includes one-time costs."""
        found = re.findall(r"^step (\d+)/(\d+) .* (\d+) samples/s", self.output, re.MULTILINE)
        points = [(int(step), int(step) / max(int(rate), 1)) for step, total, rate in found
                  if int(step) >= int(total) / 4]
        (first, begin), (last, end) = points[0], points[-1]
        return (last - first) / (end - begin) if end > begin else float("nan")


class Case(unittest.TestCase):
    """A case with a folder of its own, and with metrics for the report."""

    def setUp(self):
        self.figures = {}
        folder = tempfile.TemporaryDirectory(prefix="genesis-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def figure(self, name, value):
        self.figures[name] = value

    def train(self, job, mode, *flags, name="run", **options):
        """Trains a job on the device and checks that it ran in this mode only. Returns the run."""
        run = Run(job, self.folder / name, mode, *flags, **options)
        self.assertEqual(run.code, 0, run.output)
        self.assertIn("on cpu" if run.emulates else "on cuda:0", run.output)
        if mode not in (None, "AUTO"):
            self.assertIn(f"precision: {mode}:", run.output)
            self.assertEqual({record["mode"] for record in run.records}, {mode}, run.output)
        return run

    def assert_learned(self, run, part):
        """Checks that the mean loss of the last tenth of the steps is less than `part` times that of the first tenth. Returns (first,
        last)."""
        tenth = max(1, len(run.losses) // 10)
        first = statistics.fmean(run.losses[:tenth])
        last = statistics.fmean(run.losses[-tenth:])
        self.assertLess(last, part * first, run.output)
        return first, last
