"""Measures the first hour of a new user: README's two commands on a fresh clone, without compiler cache.

  benchmarks/run first-hour [--out DIR] [--tests] [--document README.md]

Clones the committed tree, and runs deploy/setup.sh and deploy/demo.sh as README describes, and with --tests also deploy/setup.sh --test
and deploy/test.sh. Packages that are installed already are not removed. The time of downloads depends on the network, so it is reported
separately. --document puts the result as a sentence into the page, between its marks.
"""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

import machine
import report

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


class Newcomer:
    """A fresh clone, in which commands are executed."""

    def __init__(self, folder):
        self.clone = pathlib.Path(folder) / "genesis"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", SOURCE, self.clone], check=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GENESIS_", "CCACHE_"))}
        self.environment = {**kept, "CCACHE_DISABLE": "1"}

    def commit(self):
        return machine.output_of("git", "-C", str(self.clone), "rev-parse", "--short=12", "HEAD")

    def run(self, *command):
        """Runs a command. Returns its duration in seconds, and its output."""
        begin = time.monotonic()
        done = subprocess.run(command, cwd=self.clone, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return seconds, done.stdout


def demo(newcomer, found):
    setup, _ = newcomer.run("deploy/setup.sh")
    seconds, output = newcomer.run("deploy/demo.sh", "--data-dir", str(newcomer.clone.parent / "data"),
                                   "--grpc-port", str(free_port()), "--http-port", str(free_port()))
    if "SUCCEEDED" not in output:
        raise AssertionError(output[-4000:])
    again, _ = newcomer.run("deploy/demo.sh", "--data-dir", str(newcomer.clone.parent / "more"),
                            "--grpc-port", str(free_port()), "--http-port", str(free_port()))
    found.add({"name": "demo", "setup_seconds": round(setup, 1), "seconds": round(seconds, 1),
                       "once_built_seconds": round(again, 1)})


def tests(newcomer, found):
    setup, _ = newcomer.run("deploy/setup.sh", "--test")
    seconds, output = newcomer.run("deploy/test.sh")
    ran = float(re.search(r"Total Test time \(real\) = +([0-9.]+) sec", output)[1])
    count = int(re.search(r"tests passed, \d+ tests failed out of (\d+)", output)[1])
    not_run = output.split("Not run here:", 1)[1].count("\n  ") if "Not run here:" in output else 0
    found.add({"name": "tests", "setup_seconds": round(setup, 1), "seconds": round(seconds, 1),
                       "tests_seconds": round(ran, 1), "tests": count, "not_run": not_run})


def sentence(found):
    """Returns README's sentence about the measured rows."""
    rows = {row["name"]: row for row in found.rows}
    first = rows["demo"]
    text = (f"Timed on a fresh clone with nothing cached ({found.facts['date']}, {found.facts['cores of this process']} cores of "
            f"{found.facts['processor']}, packages installed before): the demo {first['seconds'] / 60:.0f} min, "
            f"{first['once_built_seconds']:.0f} s once built")
    if "tests" in rows:
        later = rows["tests"]
        text += (f"; then the tests {later['seconds'] / 60:.0f} min, of which {later['tests_seconds'] / 60:.0f} min run "
                 f"{later['tests']} tests")
    return text + "."


def run(words):
    parser = report.parser("first-hour", __doc__)
    parser.add_argument("--tests", action="store_true", help="also all tests")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the sentence into")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        newcomer = Newcomer(folder)
        found = report.Report("first-hour", "From a fresh clone to a trained model",
                              machine.facts(date=time.strftime("%Y-%m-%d"), commit=newcomer.commit()),
                              {"compiler cache": "none", "packages": "installed before"})
        steadiness = machine.Steadiness(os.sched_getaffinity(0))
        steadiness.measure()
        demo(newcomer, found)
        if options.tests:
            tests(newcomer, found)
        steadiness.measure()
        found.steadiness = steadiness.summary()
    text = sentence(found)
    found.text("What README says", text)
    found.write(options.out)
    if options.document:
        report.document(options.document, "first-hour", text)
