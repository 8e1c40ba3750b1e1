"""Checks that the service really runs in FP32, or may use reduced precision. Each check is a line."""

import fnmatch
import os
import pathlib
import re
import subprocess
import time

from daemon import STATUS, document, mode_of, state_of

# Seconds for an adopted job to leave reduced precision at its next step, shortly after ready.
ADOPTION = 10


class Verification:
    """The checks of one service. `failed` counts those that failed."""

    def __init__(self, daemon):
        self.daemon, self.target, self.note, self.failed = daemon, daemon.target, daemon.target.progress.note, 0

    def check(self, text, expected, found):
        """Prints whether `found` matches the pattern `expected`."""
        if fnmatch.fnmatchcase(found or "", expected):
            self.note(f"ok      {text}: {found}")
        else:
            self.note(f"FAILED  {text}: {found or 'nothing'}, expected {expected}")
            self.failed += 1

    def check_daemon(self, field, status, metric):
        self.check(f"{STATUS} {field}", status, self.daemon.status(field))
        self.check("/metrics genesis_reduced_precision_enabled", metric, self.daemon.metric("genesis_reduced_precision_enabled"))

    def fp32(self):
        if self.target.options.dry_run:
            self.note("would check: service, log, status, metrics, running jobs, a probe job")
            return
        self.check("service", "active", self.target.running())
        log = self.target.log(2000).run(stderr=subprocess.STDOUT).stdout
        self.check("log", "*FP16 training disabled - using FP32*",
                   newest(r"FP16 training (?:disabled|enabled)|fp16_enabled: True", log))
        self.check("log", "*fp16_enabled: False*", newest("fp16_enabled: ", log))
        self.check_daemon("fp16_enabled_runtime", "false", "0")
        deadline = time.monotonic() + ADOPTION
        while (jobs := self.daemon.jobs_in_reduced_precision()) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.check("jobs in reduced precision", "none", None if jobs is None else " ".join(jobs) or "none")
        if not self.target.options.no_probe:
            self.probe()

    def enabled(self):
        if self.target.options.dry_run:
            return
        self.check("service", "active", self.target.running())
        self.check_daemon("fp16_allowed", "true", "1")
        if self.failed:
            self.note(f"because: {self.daemon.status('fp16_reason') or ''}")

    def probe(self):
        """Runs a small job to its end. Its priority takes a slot from a running job, which is checkpointed and queued again."""
        name, ctl = f"probe-{int(time.time())}-{os.getpid()}", self.daemon.ctl
        spec = pathlib.Path(__file__).with_name("probe.yaml").read_text()
        if not ctl("train", "--file", "-", "--job-id", name, "--watch", stdin=spec).succeeds():
            self.note(f"the probe job {name} did not succeed; genesisctl job {name} says why")
        job = document(ctl("--output", "json", "job", name)) or {}
        self.check(f"probe job {name}", "SUCCEEDED in FP32", f"{state_of(job)} in {mode_of(job)}")
        found = document(ctl("--output", "json", "checkpoints", name)) or {}
        removals = [ctl("checkpoint-delete", each["id"]) for each in found.get("checkpoints", [])] + [ctl("delete", name)]
        if not all(command.run().returncode == 0 for command in removals):
            self.note(f"the probe job {name} could not be removed")


def newest(pattern, log):
    """Returns the last line of the log that matches; empty if there is none."""
    return "".join(re.findall(f"^.*(?:{pattern}).*$", log, re.MULTILINE)[-1:])
