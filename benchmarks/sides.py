"""The sides of a comparison: genesis-worker with a process per block, and persistent Python processes."""

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
    """A comparison that is not valid. The message is the reason."""


def compared(row, comparison, *arguments):
    """Runs a comparison. Returns the row with its metrics, or with the reason why it is not valid."""
    try:
        comparison.run(*arguments)
    except Refused as refusal:
        return {**row, "refused": str(refusal)}
    return {**row, **comparison.figures()}


def on_cores(cores):
    """Returns a function for subprocess that makes the child run on these cores only."""
    return lambda: os.sched_setaffinity(0, cores)


def environment(**more):
    """Returns the environment of all sides, which is the caller's and `more`.

    Unless the caller sets the waiting policy of threads, each side has its default, which is libgomp's for Python."""
    return {**os.environ, **more}


def waiting():
    """Returns the waiting policy of threads, for the report."""
    return os.environ.get("OMP_WAIT_POLICY", "each side's own")


def cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "genesis"


def python_of_peers():
    """Returns the Python that deploy/setup.sh --bench created. Exits with an error if it is missing."""
    python = pathlib.Path(os.environ.get("GENESIS_BENCH_PYTHON", cache() / "bench-1/bin/python"))
    if not python.exists():
        sys.exit(f"the Python of the peers is not at {python}; make it with deploy/setup.sh --bench, or "
                 "name one with torch 2.11, numpy, lightning, accelerate and ray in "
                 "GENESIS_BENCH_PYTHON")
    return python


def worker():
    """Returns the path of the measured genesis-worker. Exits with an error if it is missing."""
    program = pathlib.Path(os.environ["GENESIS_BIN"]) / "genesis-worker"
    if not program.exists():
        sys.exit(f"there is no {program}; build it, or name the folder of the programs in GENESIS_BIN")
    return program


def benchmark_program(name):
    """Returns the path of a program that is built from this folder, next to the measured programs."""
    return _built("benchmarks", name)


def fake_worker():
    """Returns the path of a worker without LibTorch, for measurements of the daemon alone."""
    return _built("tests", "fake_worker")


def _built(folder, name):
    program = pathlib.Path(os.environ["GENESIS_BIN"]).parent / folder / name
    if not program.exists():
        sys.exit(f"there is no {program}; build {name}, or name the folder of the programs beside {folder}/ in "
                 "GENESIS_BIN")
    return program


def compile_step(job, folder):
    """Builds the packages of a job's step in `folder`, with the peers' torch."""
    done = subprocess.run([worker().with_name("genesisctl"), "compile", job, "--compiled-dir", folder,
                           "--python", python_of_peers()], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"genesisctl compile ended with {done.returncode} for\n{job.read_text()}\n"
                           f"{done.stdout}{done.stderr}")


class PeerProcess:
    """A running peer_process.py. Its log is shown if it fails."""

    def __init__(self, folder, cores, *arguments):
        self.name = " ".join(arguments)
        # Each process has its own log, because two would overwrite each other.
        self.log = pathlib.Path(folder) / ("-".join(arguments).replace("/", "_")[-120:] + ".log")
        self.output = open(self.log, "w")
        self.process = subprocess.Popen(
            [python_of_peers(), HERE / "peer_process.py", str(len(cores)), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.output, text=True,
            preexec_fn=on_cores(cores), env=environment(
                PYTHONDONTWRITEBYTECODE="1",
                # Each folder has its own cache, so that no earlier compilation, or its failure, is reused.
                TORCHINDUCTOR_CACHE_DIR=str(pathlib.Path(folder) / "inductor")))

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
        """Ends the process, even if it is still computing a response."""
        self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.output.close()


def processor_seconds(pid):
    """Returns the processor time of all threads of a process in seconds."""
    ran = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            ran += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # The thread has ended. Compute threads do not end.
    return ran / 1e9


def priority(pid):
    """Returns the niceness of a process; None if it has ended."""
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except ProcessLookupError:
        return None


class WorkerRun:
    """A finished genesis-worker --spec: its output lines, each with its time and the processor time used until then."""

    device = "cpu"

    def __init__(self, folder, job, cores, *flags, threads=None, checkpoints=None, device="cpu", launcher=()):
        """Runs genesis-worker. `launcher` is a command that starts it."""
        self.device = device
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(json.dumps(job))  # JSON is valid YAML.
        telemetry = folder / "telemetry.jsonl"
        self.begin = time.perf_counter()
        process = subprocess.Popen(
            [*launcher, worker(), "--spec", folder / "job.yaml", "--checkpoint-dir",
             checkpoints or folder / "checkpoints", "--telemetry", telemetry, "--threads",
             str(threads or len(cores)), "--device", device, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=on_cores(cores), env=environment(ENABLE_FP16_TRAINING="true"))
        self.lines, self.priorities = [], set()
        try:
            self._read(process)
        except BaseException:  # An interrupt of the benchmark also ends the worker.
            process.kill()
            process.wait()
            raise
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.perf_counter() - self.begin
        self.peak_bytes = usage.ru_maxrss * 1024
        self.output = "\n".join(line for _, _, line in self.lines)
        if process.returncode != 0:
            raise RuntimeError(f"genesis-worker ended with {process.returncode}:\n{self.output}")
        self.records = [json.loads(line) for line in telemetry.read_text().splitlines()]
        self.losses = [record["loss"] for record in self.records]
        self.modes = {record["mode"] for record in self.records}

    def _read(self, process):
        for line in process.stdout:
            self.priorities.add(priority(process.pid))
            self.lines.append((time.perf_counter() - self.begin, processor_seconds(process.pid),
                               line.rstrip("\n")))

    def time_of(self, start):
        """Returns the time of the first line with this prefix."""
        return next(at for at, _, line in self.lines if line.startswith(start))

    def step_times(self):
        """Returns [(finished steps, seconds, processor seconds)] from the printed lines.

        On a CPU the line of step k is printed when step k + 1 is finished; the lines of the first and of the last step are printed
        immediately. On a GPU it is printed when step k is finished and the next one is in flight. The last step has no successor, so its
        line is left out."""
        found = []
        for at, used, line in self.lines:
            if match := STEP.match(line):
                step, total = map(int, match.groups())
                if self.device == "cpu":
                    found.append((min(step + 1, total) if step > 1 else 1, at, used))
                elif step < total:
                    found.append((step, at, used))
        return found

    def per_step(self, warm_up):
        """Returns the seconds and processor seconds per step, without the first `warm_up` steps."""
        times = [each for each in self.step_times() if each[0] >= warm_up]
        (first, begin, used), (last, end, used_at_end) = times[0], times[-1]
        if last - first < 3:
            raise RuntimeError(f"only {last - first} steps were timed:\n{self.output}")
        return (end - begin) / (last - first), (used_at_end - used) / (last - first)
