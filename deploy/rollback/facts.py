#!/usr/bin/env python3
"""Prints one value from a JSON document on standard input, for shell scripts: facts.py NAME

If the document lacks the value, prints an empty line and exits with 0.
"""

import json
import sys

REDUCED = {"FP16", "BF16", "MIXED_FP16", "MIXED_BF16", "AUTO"}


def mode_of(job):
    return job.get("precision", {}).get("mode", "").removeprefix("PRECISION_MODE_")


def state_of(job):
    return job.get("state", "").removeprefix("JOB_STATE_")


def word(value):
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


FACTS = {
    # From /api/training/status.
    "fp16-enabled": lambda d: word(d.get("fp16_enabled_runtime")),
    "fp16-allowed": lambda d: word(d.get("fp16_allowed")),
    "fp16-reason": lambda d: word(d.get("fp16_reason")),
    "ready": lambda d: word(d.get("readiness", {}).get("ready")),
    # From `genesisctl jobs`: IDs of the jobs that train in reduced precision.
    "reduced-jobs": lambda d: "\n".join(job["id"] for job in d.get("jobs", [])
                                        if mode_of(job) in REDUCED),
    # From `genesisctl job ID`.
    "state": lambda d: state_of(d),
    "mode": lambda d: mode_of(d),
    "checkpoints": lambda d: "\n".join(each["id"] for each in d.get("checkpoints", [])),
    # From `genesisctl precision`.
    "policy-allows": lambda d: word(d.get("policy", {}).get("reduced_precision_allowed")),
}

if __name__ == "__main__":
    try:
        document = json.load(sys.stdin)
    except ValueError as error:
        sys.exit(f"facts.py {sys.argv[1]}: no JSON was answered: {error}")
    print(FACTS[sys.argv[1]](document))
