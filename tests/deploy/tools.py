"""Shared code of the tests of deploy/: the tools next to this Python, and how to run them."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))

DEPLOY = SOURCE / "deploy"
# kubectl, hadolint and other tools are installed with this Python.
TOOLS = pathlib.Path(sys.prefix) / "bin"
PROMETHEUS = pathlib.Path(os.environ["GENESIS_PROMETHEUS"])
LONG = 300


def run(*command, cwd=None, check=True, text=None):
    """Runs a command and returns the finished process. Raises AssertionError with its output if it failed and `check` is set."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd,
                          timeout=LONG, input=text)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done
