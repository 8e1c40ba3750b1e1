"""The sides of a comparison: genesis-worker, a process per block, and Python processes that stay."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STEP = re.compile(r"step (\d+)/(\d+) ")


class Refused(Exception):
    """What was measured may not be compared."""


def on_cores(cores):
    """For subprocess: the child and its threads run on these cores only."""
    return lambda: os.sched_setaffinity(0, cores)


def cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "genesis"


def python_of_peers():
    """The Python that deploy/setup.sh --bench made."""
    python = pathlib.Path(os.environ.get("GENESIS_BENCH_PYTHON", cache() / "bench-1/bin/python"))
    if not python.exists():
        sys.exit(f"the Python of the peers is not at {python}; make it with deploy/setup.sh --bench, or "
                 "name one with torch 2.11, numpy, lightning, accelerate and ray in "
                 "GENESIS_BENCH_PYTHON")
    return python


class PeerProcess:
    """peer_process.py; its log is shown when it fails."""

    def __init__(self, folder, cores, *arguments):
        self.name = " ".join(arguments)
        # Each of its own: two at once would write over each other.
        self.log = pathlib.Path(folder) / ("-".join(arguments).replace("/", "_")[-120:] + ".log")
        self.output = open(self.log, "w")
        self.process = subprocess.Popen(
            [python_of_peers(), HERE / "peer_process.py", str(len(cores)), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.output, text=True,
            preexec_fn=on_cores(cores), env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.process.wait()
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}; its log ends:\n"
                               + self.log.read_text()[-3000:])
        return json.loads(line)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.output.close()


class WorkerRun:
    """A finished genesis-worker --spec, with the time at which each line of it came."""

    def __init__(self, folder, job, cores, *flags, threads=None, checkpoints=None):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(json.dumps(job))  # JSON is YAML.
        telemetry = folder / "telemetry.jsonl"
        worker = pathlib.Path(os.environ["GENESIS_BIN"]) / "genesis-worker"
        self.begin = time.perf_counter()
        process = subprocess.Popen(
            [worker, "--spec", folder / "job.yaml", "--checkpoint-dir",
             checkpoints or folder / "checkpoints", "--telemetry", telemetry, "--threads",
             str(threads or len(cores)), "--device", "cpu", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=on_cores(cores), env={**os.environ, "ENABLE_FP16_TRAINING": "true"})
        self.lines = []
        for line in process.stdout:
            self.lines.append((time.perf_counter() - self.begin, line.rstrip("\n")))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.perf_counter() - self.begin
        self.peak_bytes = usage.ru_maxrss * 1024
        self.output = "\n".join(line for _, line in self.lines)
        if process.returncode != 0:
            raise RuntimeError(f"genesis-worker ended with {process.returncode}:\n{self.output}")
        self.records = [json.loads(line) for line in telemetry.read_text().splitlines()]
        self.losses = [record["loss"] for record in self.records]
        self.modes = {record["mode"] for record in self.records}

    def time_of(self, start):
        """When the first line came that starts so."""
        return next(at for at, line in self.lines if line.startswith(start))

    def step_times(self):
        """[(steps finished, seconds)]. The line of step k comes when step k + 1 is finished, but
        those of the first step and the last come at once."""
        found = []
        for at, line in self.lines:
            if match := STEP.match(line):
                step, total = map(int, match.groups())
                found.append((min(step + 1, total) if step > 1 else 1, at))
        return found

    def seconds_per_step(self, warm_up):
        times = [(step, at) for step, at in self.step_times() if step >= warm_up]
        (first, begin), (last, end) = times[0], times[-1]
        if last - first < 3:
            raise RuntimeError(f"only {last - first} steps were timed:\n{self.output}")
        return (end - begin) / (last - first)
