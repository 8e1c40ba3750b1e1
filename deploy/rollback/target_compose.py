"""Service genesis-orchestrator of a docker-compose project. Its containers read the environment file at each start."""

import os
import shutil
import subprocess

from command import Command
from target import require
from target_host import HostTarget

SERVICE = "genesis-orchestrator"
DAEMONS = (SERVICE, "genesis-workers")


class Compose(HostTarget):
    kind = "compose"

    def name(self):
        return f"service {SERVICE} of {self.options.compose_file}, {self.file}"

    def compose(self, *words, stdin=""):
        # docker-compose, or docker's plugin of the same name.
        program = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        return Command([*program, "--file", self.options.compose_file, *words], stdin, ["docker-compose", *words])

    def services(self):
        return self.compose("config", "--services").run(stderr=subprocess.DEVNULL).stdout.splitlines()

    def found(self):
        return os.path.exists(self.options.compose_file) and SERVICE in self.services()

    def check(self):
        file = self.options.compose_file
        require(os.path.exists(file), f"--target compose: there is no {file}; name it with --compose-file")
        require(self.found(), f"--target compose: {file} has no service {SERVICE}, or docker-compose does not run")

    def inside(self, *words, stdin=""):
        return self.compose("exec", "-T", SERVICE, *words, stdin=stdin)

    def restart(self, gate):
        self.progress.run(self.compose("restart", *self.daemons()))

    def daemons(self):
        """Returns the services that are daemons."""
        return sorted(set(self.compose("config", "--services").output().splitlines()).intersection(DAEMONS))

    def kill(self):
        self.progress.run(self.compose("kill", *self.daemons()))

    def running(self):
        done = self.compose("ps", "--status", "running", "--services").run(stderr=subprocess.PIPE)
        return "active" if SERVICE in done.stdout.splitlines() else done.stderr.strip()

    def log(self, lines):
        return self.compose("logs", "--no-log-prefix", "--tail", str(lines), SERVICE)

    def log_hint(self):
        return f"docker-compose --file {self.options.compose_file} logs {SERVICE}"

    def details(self):
        yield "environment.txt", self.redacted
        yield "ps.txt", self.compose("ps", "--all")
        yield "config.yaml", self.compose("config")
        yield "logs/orchestrator.log", self.log(100000)
