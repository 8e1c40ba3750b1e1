"""Runs jobs with ranks, which real torchrun or a shell starts."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import numpy
import torch

import genesis

import twin
from replay_files import replay_segment, trajectories

# Gradients are summed in another order.
TOLERANCE = 1e-5
BF16_TOLERANCE = 3e-2
# Runs with 16-bit numbers drift apart slowly.
COMPRESSED_TOLERANCE = 1e-3
GLOO = {"GENESIS_SHARED_MEMORY": "false"}
LONG = 600
# A rank may be lost at any point of a step.
CANNOT = "cannot (add up gradients|update weights)"
# Runs a command with its own mounts, so that it sees other files, as on another host.
APART = ("unshare", "--mount", "--map-root-user")
# Runs a command whose calls of process_vm_readv fail, as with a filter of system calls (seccomp(2)).
WITHOUT_READING = (sys.executable, "-c", """
import ctypes, os, platform, struct, sys
number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
load, equal, give = 0x20, 0x15, 0x06
filter = b"".join(struct.pack("HBBI", *each) for each in (
    (load, 0, 0, 0), (equal, 0, 1, number), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(filter)
program = struct.pack("HxxxxxxP", len(filter) // 8, ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
""")

# A launcher that starts the ranks and waits for them: LAUNCHER RANKS PORT COMMAND...
LAUNCHER = """
export WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$2
shift 2
for ((rank = 0; rank < WORLD_SIZE; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  started+=($!)
done
for process in "${started[@]}"; do wait "$process" || failed=1; done
exit "${failed:-0}"
"""


def launched(*words, count=2):
    """Returns the command that runs `words` as ranks without torchrun, which takes seconds to start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ["bash", "-c", LAUNCHER, "launcher", str(count), str(port), *map(str, words)]


def torchrun(*words, count=2, restarts=0):
    """Returns the command that runs `words` with torchrun on a free port (--standalone)."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}",
            f"--max-restarts={restarts}", *map(str, words)]


def ranks_of(launcher):
    """Returns {rank: process ID} for the current processes of a torchrun."""
    found = {}
    for task in pathlib.Path(f"/proc/{launcher.pid}/task").glob("*/children"):
        for child in task.read_text().split():
            with contextlib.suppress(OSError):
                variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                found |= {int(v[5:]): int(child) for v in variables if v.startswith(b"RANK=")}
    return found


def weights(folder):
    return genesis.load_checkpoint(twin.newest_checkpoint(folder))["model_state_dict"]


class RankJobs(unittest.TestCase):
    """A test case with helpers that run a job with two ranks or more."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, name="together", **settings):
        """Writes a job file in a folder of its own. A section or key whose value is None is left out."""
        (self.folder / name).mkdir(exist_ok=True)
        path = twin.job_file(self.folder / name, training={"use_ddp": True, "batch_size": 32})
        job = json.loads(path.read_text())
        for section, values in settings.items():
            job[section] = {**job.get(section, {}), **values} if isinstance(values, dict) else values
            if isinstance(values, dict):
                job[section] = {key: value for key, value in job[section].items() if value is not None}
        path.write_text(json.dumps(job))
        return path

    def command(self, job, *flags, by_torchrun=False, **options):
        worker = (twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent, "--telemetry", job.parent / "telemetry.jsonl", "--threads", "1",
                  *flags)
        return torchrun("--no-python", *worker, **options) if by_torchrun else launched(*worker, **options)

    def start(self, job, *flags, **options):
        """Starts the ranks by torchrun. Returns the process and the file of its output."""
        log = job.parent / "log"
        with open(log, "w") as output:
            process = subprocess.Popen(self.command(job, *flags, by_torchrun=True, **options), stdout=output,
                                       stderr=subprocess.STDOUT)
        self.addCleanup(self.end, process)
        return process, log

    def end(self, process):
        for pid in ranks_of(process).values() if process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def train(self, job, *flags, environment=None, launcher=(), **options):
        """Runs the ranks until they end. Returns the records of the steps and the output."""
        done = subprocess.run([*launcher, *self.command(job, *flags, **options)], capture_output=True, text=True,
                              env={**os.environ, **(environment or {})}, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.records(job), done.stdout

    @staticmethod
    def records(job):
        return [json.loads(line) for line in (job.parent / "telemetry.jsonl").read_text().splitlines()]

    def require_namespaces(self):
        if subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
            self.skipTest("NOT RUN: namespaces are forbidden here")

    def train_by(self, script, job, *around):
        """Runs the ranks so that each is started by a bash script, which ends with exec "$@", inside the commands `around`. Returns the
        finished process."""
        command = self.command(job)
        place = command.index(twin.WORKER)
        return subprocess.run([*command[:place], *around, "bash", "-c", script, "worker", *command[place:]],
                              capture_output=True, text=True, timeout=LONG)

    def refusal(self, job, path, other):
        """Returns the errors of ranks of which rank 1 sees `other` at `path`, as on another host."""
        done = self.train_by(f'test "$RANK" = 1 && mount --bind {other} {path}; exec "$@"', job, *APART)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def wait_for(self, log, text):
        self.wait_for_regex(log, re.escape(text))

    def wait_for_regex(self, log, pattern):
        deadline = time.monotonic() + LONG
        while not re.search(pattern, log.read_text()):
            self.assertLess(time.monotonic(), deadline, log.read_text())
            time.sleep(0.02)

    def compare(self, tolerance=TOLERANCE, environment=None, flags=(), **settings):
        """Compares two ranks with one process that has twice the batch size."""
        together, _ = self.train(self.job(**settings), *flags, environment=environment)
        training = {**settings.pop("training", {}), "use_ddp": False, "batch_size": 64}
        alone = self.job("alone", training=training, **settings)
        records, _ = twin.run_worker(alone, alone.parent, *flags, environment=environment)
        self.assertEqual(len(together), len(records))
        worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(together, records))
        self.assertLess(worst, tolerance)
        return together, records

    def replay(self, **training):
        """Returns the settings of a job with prioritized sampling from a replay buffer."""
        folder = self.folder / "buffer"
        folder.mkdir(exist_ok=True)
        priorities = numpy.random.default_rng(5).uniform(0.1, 4, 600).astype(numpy.float32)
        (folder / f"{0:020}.segment").write_bytes(replay_segment(trajectories(600), priorities, 50))
        return {"dataset": {"trajectories": None, "replay": {"path": str(folder)}, "sampling": {"kind": "PRIORITIZED"}},
                "training": {"max_steps": 20, **training}}

    def undisturbed(self, **settings):
        job = self.job("undisturbed", **settings)
        self.train(job)
        return weights(job.parent)

    def check_same(self, folder, wanted):
        for name, tensor in weights(folder).items():
            self.assertTrue(torch.equal(tensor, wanted[name]), name)

    def check_beside_pytorch(self, tolerance, hook="none", environment=None, **settings):
        out = self.folder / f"{hook}.json"
        if not out.exists():
            done = subprocess.run(torchrun(pathlib.Path(__file__).with_name("ddp_loop.py"), out, 50, 32, 3, hook),
                                  capture_output=True, text=True, timeout=LONG)
            self.assertEqual(done.returncode, 0, done.stderr)
        together, output = self.train(self.job(**settings), environment=environment)
        losses = json.loads(out.read_text())
        self.assertEqual(len(losses), len(together))
        for ours, theirs in zip(together, losses):
            self.assertAlmostEqual(ours["loss"], theirs, delta=tolerance * theirs)
        return output
