"""Compiles the training step of a job. genesisctl compile starts it.

Requires Python with the version of torch with which genesis-worker was built, and a C++ compiler. The worker that runs the package needs
neither."""

import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

OK, FAILED, USAGE = 0, 1, 2


class Refusal(Exception):
    """The step cannot be compiled. The message contains the reason and a cure."""


def parse():
    parser = argparse.ArgumentParser(prog="compile_step.py", description=__doc__)
    parser.add_argument("job", help="the job file")
    parser.add_argument("--worker", required=True, help="the program genesis-worker")
    parser.add_argument("--into", required=True, type=pathlib.Path, help="the folder of packages")
    parser.add_argument("--datasets-root", default="", help="where the data is looked for too")
    return parser.parse_args()


def describe(arguments, *flags):
    command = [arguments.worker, "--describe-step", arguments.job, "--device", "cpu", *flags]
    if arguments.datasets_root:
        command += ["--datasets-root", arguments.datasets_root]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Refusal(f"{arguments.worker} cannot be started: {error.strerror}; let workers.program "
                      "name the program genesis-worker") from error
    if done.returncode != 0:
        raise Refusal(done.stderr.strip())
    described = json.loads(done.stdout)
    steps = described["steps"]
    if all("refused" in step for step in steps):
        raise Refusal(f"{arguments.job} cannot be compiled: {steps[0]['refused']}; it runs eager")
    return described


def import_torch(wanted):
    """Imports torch and returns it.

    Compiled code calls torch's library, so the version must be exactly the worker's.

    Raises:
        Refusal: torch is missing, has another version, or there is no C++ compiler.
    """
    try:
        import torch
    except ImportError as error:
        raise Refusal(f"{sys.executable} has no torch ({error}); torch {wanted} is needed: name a "
                      "Python that has it with --python or GENESIS_PYTHON") from error
    found = torch.__version__.split("+")[0]
    if found != wanted:
        raise Refusal(f"{sys.executable} has torch {found}; genesis-worker was built with {wanted}: "
                      "name a Python that has it with --python or GENESIS_PYTHON")
    if not any(shutil.which(name) for name in ("g++", "clang++")):
        raise Refusal("there is no C++ compiler; install the package g++")
    return torch


def make_twin(entry, description):
    """Returns the twin: the model of the step in Python."""
    if "exported" in entry:
        import exported
        return exported.ExportedTwin(entry["exported"], description)
    import step
    from twins.build import build
    return step.BuiltInTwin(build(description))


def reason(error):
    """Returns why a step could not be compiled."""
    text = str(error).strip()
    if re.fullmatch(r"|\w+:", text):
        # Some assertions of torch have no text. Report their location.
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{text or type(error).__name__} in {where.name}, {pathlib.Path(where.filename).name}:{where.lineno}"
    return f"AOTInductor failed: {text}"


def check_worker(arguments, entry, folder):
    """Raises StepError unless the worker accepts the package in the folder.

    An operator that torch defines in Python works in the checks here, but not in the worker, which is LibTorch without Python."""
    import step as steps

    found = next(each for each in describe(arguments, "--compiled-dir", str(folder))["steps"] if each["mode"] == entry["mode"])
    if not found["compiled"]:
        raise steps.StepError(f"genesis-worker rejects the package: {found['execution']}")


def compile_one(arguments, entry, integers):
    import package
    import step as steps

    description = json.loads(entry["text"])
    twin = make_twin(entry, description)
    steps.check_twin(twin, description)
    step = twin.make_step(description)
    inputs = steps.example_inputs(twin, description, integers)
    single = {**description, "mode": "FP32"}
    reference = steps.run(twin.make_step(single), [
        t.float() if t.is_floating_point() else t for t in inputs], description)
    with package.Workplace(arguments.into) as workplace:
        made = workplace / f"{entry['key']}.pt2"
        try:
            package.compile_package(step, inputs, entry["text"], made)
        except Exception as error:  # torch's compiler and g++ raise no narrower type.
            raise steps.StepError(reason(error)) from error
        worst = steps.check_package(package.load(made), step, description, inputs, reference)
        package.seal(made)
        check_worker(arguments, entry, workplace)
        return package.install(made, arguments.into), worst


def run(arguments):
    described = describe(arguments)
    entries = described["steps"]
    import_torch(next(json.loads(entry["text"])["torch"] for entry in entries if "text" in entry))
    import package
    from step import StepError

    package.make_folder(arguments.into)
    for entry in entries:
        if "refused" in entry:
            print(f"{entry['mode']}: runs eager, because {entry['refused']}", flush=True)
            continue
        if package.is_installed(arguments.into, entry["key"]):
            print(f"{entry['mode']}: {arguments.into}/{entry['key']}.pt2 is there already", flush=True)
            continue
        begin = time.monotonic()
        try:
            path, worst = compile_one(arguments, entry, described["integers"])
        except StepError as error:
            print(f"{entry['mode']}: nothing was installed: {error}", file=sys.stderr)
            return FAILED
        print(f"{entry['mode']}: {path} ({path.stat().st_size} bytes, "
              f"{time.monotonic() - begin:.0f} s); its loss and gradients differ from eager by "
              f"{100 * worst:.0f} % of what is accepted", flush=True)
    return OK


def main():
    arguments = parse()
    # Turns SIGTERM into a normal exit, which removes the temporary folder of the package.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(arguments)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"compile: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
