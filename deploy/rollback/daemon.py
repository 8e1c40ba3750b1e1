"""Requests to a daemon, wherever it runs, by programs that run beside it."""

import json
import os
import pathlib
import re
import sys
import time

from command import Failure

REDUCED = {"FP16", "BF16", "MIXED_FP16", "MIXED_BF16", "AUTO"}
STATUS = "/api/training/status"
# Reads the token before the program's own standard input.
WITH_TOKEN = 'IFS= read -r GENESIS_TOKEN && export GENESIS_TOKEN && exec "$@"'


class Daemon:
    """The HTTP pages and `genesisctl` of the daemon of a target."""

    def __init__(self, target):
        self.target = target
        self.http = target.options.http.removesuffix("/") or target.default_http
        self.server = target.options.server or target.default_server
        token_file = os.environ.get("GENESIS_TOKEN_FILE", "")
        self.token = pathlib.Path(token_file).read_text().rstrip("\n") if token_file else ""

    def page(self, path):
        """Returns the command that prints a page."""
        # A container's own environment may name a proxy.
        words, stdin = ["curl", "-fsS", "--max-time", "10", "--noproxy", "localhost,127.0.0.1,::1"], ""
        if os.environ.get("GENESIS_TLS_CA") and not self.target.remote:
            words += ["--cacert", os.environ["GENESIS_TLS_CA"]]
        # The certificate's name does not matter if only the daemon's own machine is called.
        if self.http.startswith("https://127.0.0.1:"):
            words.append("--insecure")
        if self.token:
            # Not passed as an argument, which every user of the machine can read.
            words, stdin = [*words, "--config", "-"], f'header = "Authorization: Bearer {self.token}"\n'
        return self.target.inside(*words, self.http + path, stdin=stdin)

    def ctl(self, *words, stdin=""):
        """Returns a command of genesisctl. The token is sent first on stdin, so that no other program of that machine can read it."""
        full = ["genesisctl", "--server", self.server, *words]
        if self.target.remote and self.token:
            full, stdin = ["sh", "-c", WITH_TOKEN, "sh", *full], f"{self.token}\n{stdin}"
        return self.target.inside(*full, stdin=stdin)._replace(shown=["genesisctl", *words])

    def status(self, name):
        """Returns a field of the status as text; empty if it is absent, None if the daemon does not answer."""
        found = document(self.page(STATUS))
        value = "" if found is None else found.get(name, "")
        return None if found is None else str(value).lower() if isinstance(value, bool) else str(value)

    def metric(self, name):
        """Returns the value of the first series of a metric as text; empty if the metric is absent."""
        found = re.search(rf"^{name}[ {{].*?(\S+)$", self.page("/metrics").run().stdout, re.MULTILINE)
        return found[1] if found else ""

    def jobs_in_reduced_precision(self):
        """Returns the IDs of jobs that run in reduced precision; None if the daemon does not respond."""
        found = document(self.ctl("--output", "json", "jobs", "--state", "RUNNING", "--state", "STARTING"))
        return None if found is None else [job["id"] for job in found.get("jobs", []) if mode_of(job) in REDUCED]

    def wait_until_ready(self):
        timeout = self.target.options.ready_timeout
        if self.target.options.dry_run:
            return
        deadline = time.monotonic() + timeout
        while not self.page("/readyz").succeeds():
            if time.monotonic() >= deadline:
                raise Failure(f"the daemon is not ready {timeout} s after its restart. Look at {self.target.log_hint()}")
            time.sleep(0.1)
        self.target.progress.note(f"ready: {self.http}/readyz answers 200")


def document(command):
    """Returns the JSON object that a command prints; None if it fails or prints none."""
    done = command.run()
    if done.returncode != 0:
        return None
    try:
        found = json.loads(done.stdout)
        return found if isinstance(found, dict) else None
    except ValueError as error:
        print(f"{command}: no JSON was answered: {error}", file=sys.stderr)
        return None


def mode_of(job):
    return job.get("precision", {}).get("mode", "").removeprefix("PRECISION_MODE_")


def state_of(job):
    return job.get("state", "").removeprefix("JOB_STATE_")
