"""Helpers of the tests of the compiled step: compile the step of a job, and train with it."""

import os
import pathlib
import re
import subprocess
import sys

import twin

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = SOURCE / "trainer" / "compiled" / "python"
sys.path.insert(0, str(SCRIPTS))

ALLOWED = {"ENABLE_FP16_TRAINING": "true"}


def compile_job(job, folder, *flags, python=sys.executable, cwd=None):
    """Runs genesisctl compile as a user would. Returns the finished process."""
    return subprocess.run(
        [os.environ["GENESIS_CTL"], "compile", str(job), "--compiled-dir", str(folder),
         "--python", python, *flags],
        capture_output=True, text=True, cwd=cwd)


def train_compiled(test, job, folder, packages, *flags):
    """Trains a job all of whose steps must be compiled. Returns the records of the steps."""
    records, output = twin.run_worker(job, folder, "--compiled-dir", packages, *flags, environment=ALLOWED)
    test.assertTrue(steps_of(output)[0].startswith("compiled"), output)
    return records


def steps_of(output):
    """Returns how the steps ran (compiled or eager), at the start and after each change of precision."""
    return re.findall(r"^step: (.*)$", output, re.MULTILINE)


def worst(records, others):
    """Returns the largest relative difference between the losses of two runs at the same step."""
    return max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(records, others, strict=True))
