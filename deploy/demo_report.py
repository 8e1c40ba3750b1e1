"""Reads a job as JSON from standard input and prints a summary of its results."""

import json
import re
import sys


def camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match.group(1).upper(), name)


def get(message: dict, name: str, default=None):
    """Returns a field by its name in the .proto, because protobuf prints either that name or its camel case."""
    return message.get(name, message.get(camel(name), default))


def number(value, digits: int = 4) -> str:
    # protobuf prints 64-bit integers, NaN and infinity as strings.
    return "unknown" if value is None else f"{float(value):.{digits}g}"


def main() -> None:
    job = json.load(sys.stdin)
    job = job.get("job", job)
    precision, progress = get(job, "precision", {}), get(job, "progress", {})
    held_out, checkpoint = get(job, "held_out", {}), get(job, "latest_checkpoint", {})
    mode = get(precision, "mode", "unknown").removeprefix("PRECISION_MODE_")
    reduced = float(get(progress, "reduced_precision_steps", 0))
    overflowed = float(get(progress, "overflow_steps", 0))
    overflow = f"{overflowed / reduced:.2%}" if reduced else "none (no step in reduced precision)"
    print(f"Job          {job['id']}  {job['state'].removeprefix('JOB_STATE_')}")
    reason = get(precision, "reason", "reason unknown").removeprefix(f"{mode}: ")
    print(f"Precision    {mode} on {get(precision, 'device', 'unknown')}: {reason}")
    print(f"Final loss   {number(get(progress, 'loss'))} "
          f"after {get(progress, 'step', 0)} of {get(progress, 'total_steps', 0)} steps")
    print(f"Held out     model {number(get(held_out, 'model'))}, "
          f"persistence {number(get(held_out, 'persistence'))}, "
          f"mean {number(get(held_out, 'mean'))}  (mean squared error in units of the variance)")
    print(f"Checkpoint   {get(checkpoint, 'path', 'none')}")
    print(f"Speed        {float(get(progress, 'samples_per_second', 0)):,.0f} samples/s")
    print(f"Overflow     {overflow}")


if __name__ == "__main__":
    main()
