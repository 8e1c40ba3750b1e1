"""Measures the first module of a new user: installs the Python package, starts the daemon, and types README's lines in a terminal.

  benchmarks/run first-module [--out DIR] [--document docs/python_client.md] [--readme README.md]

The module and its numpy data are the user's own. Everything is recorded as displayed, each command and line with the seconds since the
start. The commands run in a virtual environment without the package, and Python in a terminal of its own. The programs and torch are
already installed. --document puts the recording into the page, between its marks. Fails if README's lines are not among the typed ones,
if the module did not learn, or if it all takes more than five minutes.
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

import machine
import report

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
MOST_SECONDS = 300
COLUMNS = 118
# Seconds after which a typed line has failed.
LONGEST = 240
ERASE = "\x1b[K"  # Erases the rest of a line, before another state of it.
PROMPT = re.compile(rb"(?:^|\n|\r)(?:\x1b\[K)?(>>> |\.\.\. )$")

# The data are sines of three frequencies with random phases and noise.
BEFORE = '''\
import genesis, numpy, torch
target = numpy.random.randint(0, 3, 2000)
phase = numpy.random.rand(2000, 1) * 6.28
x = numpy.sin(numpy.arange(64) * 0.2 * (target[:, None] + 1) + phase) + 0.3 * numpy.random.randn(2000, 64)
class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.find = torch.nn.Sequential(torch.nn.Conv1d(1, 16, 9), torch.nn.ReLU(), torch.nn.Conv1d(16, 16, 9), torch.nn.ReLU())
        self.name = torch.nn.Linear(16, 3)
    def forward(self, x):
        return self.name(self.find(x.unsqueeze(1)).mean(2))

module = Waves()
'''
AFTER = '''\
held_out = torch.tensor(x[1800:], dtype=torch.float32)
(module(held_out).argmax(1).numpy() == target[1800:]).mean()
'''


def lines_of_readme():
    """Returns the code lines of README's section "From Python", without comments."""
    page = (SOURCE / "README.md").read_text().split("## From Python\n")[1]
    block = page.split("```python\n")[1].split("```")[0]
    return [re.split(r"  +#", line)[0] for line in block.splitlines() if line]


class Walk:
    """A recording of commands, lines and outputs."""

    def __init__(self, folder):
        self.folder = folder
        self.begin = time.monotonic()
        self.text = []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("GENESIS_", "PYTHON"))}
        self.environment |= {"TERM": "dumb", "COLUMNS": str(COLUMNS), "PATH": f"{folder}/venv/bin:{BIN}:{os.environ['PATH']}",
                             "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}

    def say(self, prompt, line):
        self.text.append(f"[{self.seconds():5.1f} s] {prompt}{line}".rstrip())

    def seconds(self):
        return time.monotonic() - self.begin

    def show(self, output):
        """Adds an output as a terminal would show it. For a progress bar that is redrawn, that is its last state."""
        for line in output.replace("\r\n", "\n").split("\n"):
            line = line.rstrip().split("\r")[-1].replace(ERASE, "")
            if line:
                self.text.append(line)

    def command(self, *words):
        self.say("$ ", " ".join(words))
        done = subprocess.run(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONGEST)
        if done.returncode != 0:
            raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout


def environment_without_the_package(folder):
    """Creates a virtual environment that also sees the packages of this Python, such as torch."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    import torch

    there = pathlib.Path(torch.__file__).parent.parent
    if (there / "genesis").exists():
        sys.exit(f"{there} has the package genesis already; use a Python without it")
    (site / "others.pth").write_text(f"{there}\n")


class Daemon:
    """genesisd, which can be started again at the same addresses."""

    def __init__(self, walk, gate=None):
        self.walk, self.addresses = walk, ["127.0.0.1:0", "127.0.0.1:0"]
        self.start(gate)

    def start(self, gate=None):
        """Starts the daemon, with this value of ENABLE_FP16_TRAINING if there is one."""
        walk = self.walk
        walk.say("$ ", f"{f'ENABLE_FP16_TRAINING={gate} ' if gate else ''}genesisd --data-dir data &")
        endpoints = walk.folder / "data" / "run" / "endpoints"
        endpoints.unlink(missing_ok=True)
        with (walk.folder / "log").open("a") as log:
            self.process = subprocess.Popen([BIN / "genesisd", "--data-dir", walk.folder / "data", "--grpc-listen", self.addresses[0], "--http-listen",
                                             self.addresses[1]], cwd=walk.folder, stdout=log, stderr=subprocess.STDOUT,
                                            env={**walk.environment, **({"ENABLE_FP16_TRAINING": gate} if gate else {})})
        until(lambda: endpoints.exists() or self.process.poll() is not None)
        if not endpoints.exists():
            raise AssertionError((walk.folder / "log").read_text())
        self.addresses = [re.search(rf"{name}: *(\S+)", endpoints.read_text())[1] for name in ("grpc", "http")]
        # Users of the default port do not have to set GENESIS_SERVER.
        walk.environment["GENESIS_SERVER"] = self.addresses[0]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


def until(holds):
    last = time.monotonic() + LONGEST
    while not (found := holds()):
        if time.monotonic() > last:
            raise AssertionError(f"waited {LONGEST} s")
        time.sleep(0.05)
    return found


class Terminal:
    """Python in a terminal, from which prompts and output are read. Lines are written to a pipe, which does not echo."""

    def __init__(self, walk):
        self._walk = walk
        self._screen, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        walk.say("$ ", "python")
        self._process = subprocess.Popen([walk.folder / "venv" / "bin" / "python", "-q", "-i"], env=walk.environment, cwd=walk.folder,
                                         stdin=subprocess.PIPE, stdout=other, stderr=other)
        os.close(other)
        self._prompt, _ = self._until_prompt()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._screen)

    def _until_prompt(self):
        """Reads until the next prompt. Returns it, and the output before it."""
        shown, last = b"", time.monotonic() + LONGEST
        while not (found := PROMPT.search(shown)):
            if not select.select([self._screen], [], [], max(0.0, last - time.monotonic()))[0]:
                raise AssertionError(f"no prompt in {LONGEST} s after:\n{shown.decode(errors='replace')}")
            shown += os.read(self._screen, 65536)
        return found[1].decode(), shown[:found.start()].decode(errors="replace")

    def type(self, line):
        """Types a line. Returns Python's output."""
        self._walk.say(self._prompt, line)
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        self._prompt, output = self._until_prompt()
        self._walk.show(output)
        if "Traceback (most recent call last)" in output:
            raise AssertionError("\n".join(self._walk.text))
        return output


def installed(folder):
    """Returns a walk that has installed the package."""
    environment_without_the_package(folder)
    for name in ("python", "proto"):  # A copy, because pip writes to the folder of the sources.
        shutil.copytree(SOURCE / name, folder / name)
    walk = Walk(folder)
    walk.show(walk.command("pip", "install", "./python").strip().splitlines()[-1])
    return walk


def go(folder):
    """Returns the recording, and the duration in seconds."""
    walk = installed(folder)
    daemon = Daemon(walk)
    try:
        with Terminal(walk) as python:
            for line in [*BEFORE.splitlines(), *lines_of_readme(), *AFTER.splitlines()]:
                output = python.type(line)
            seconds = walk.seconds()
    finally:
        daemon.stop()
    right = float(re.search(r"0\.\d+|1\.0", output)[0])
    if right < 0.9:
        raise AssertionError(f"{right} of what was held out is right:\n" + "\n".join(walk.text))
    if seconds > MOST_SECONDS:
        raise AssertionError(f"it took {seconds:.0f} s; accepted: at most {MOST_SECONDS}")
    return walk.text, seconds, right


def run(words):
    parser = report.parser("first-module", __doc__)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the recording into")
    parser.add_argument("--readme", type=pathlib.Path, help="README.md, whose bar becomes the one of the recording")
    options = parser.parse_args(words)
    found = report.Report("first-module", "From pip install to a trained module", machine.facts(date=time.strftime("%Y-%m-%d")),
                          {"programs and torch": "installed before"})
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    steadiness.measure()
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        lines, seconds, right = go(pathlib.Path(folder))
    steadiness.measure()
    found.steadiness = steadiness.summary()
    found.add({"name": "walk", "seconds": round(seconds, 1), "held out": right})
    text = (f"Recorded by `benchmarks/run first-module` ({found.facts['date']}, {found.facts['cores of this process']} cores of "
            f"{found.facts['processor']}, programs and torch installed before): {seconds:.0f} s from `pip install` to a trained module.\n\n"
            "```\n" + "\n".join(lines) + "\n```")
    found.text("The recording", text)
    found.write(options.out)
    if options.document:
        report.document(options.document, "first-module", text)
    if options.readme:
        bar = next(line for line in lines if "100%|" in line)
        page = options.readme.read_text()
        options.readme.write_text(re.sub(r"(job\.watch\(\) +# )100%.*", lambda found: found[1] + re.sub("█+", "█" * 10, bar[bar.index("100%"):]), page))
