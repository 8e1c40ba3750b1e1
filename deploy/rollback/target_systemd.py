"""A host with genesis-trainer.service, whose environment is /etc/genesis/environment."""

import os
import pathlib
import subprocess

from command import Command
from target import require
from target_host import HostTarget

UNIT = "genesis-trainer.service"
STANDALONE = ("genesis-worker@*.service", "genesis-job@*.service")
SYSLOG = pathlib.Path("/var/log/syslog")


class Systemd(HostTarget):
    kind = "systemd"
    remote = False

    def name(self):
        return f"{UNIT}, {self.file}"

    def found(self):
        return os.path.isdir("/run/systemd/system") and Command(["systemctl", "cat", UNIT]).succeeds()

    def check(self):
        require(self.found(), f"--target systemd: there is no {UNIT} here; install the package, or name another --target")
        require(self.options.dry_run or os.getuid() == 0, f"changing {UNIT} needs root; run it with sudo")

    def inside(self, *words, stdin=""):
        return Command(list(words), stdin)

    def restart(self, gate):
        self.run("systemctl", "restart", UNIT)
        active = Command(["systemctl", "list-units", "--no-legend", "--state=active", *STANDALONE]).run(stderr=subprocess.DEVNULL)
        if active.stdout.strip():
            self.run("systemctl", "restart", *STANDALONE)

    def kill(self):
        self.run("systemctl", "kill", "--signal=KILL", UNIT)

    def running(self):
        return Command(["systemctl", "is-active", UNIT]).run(stderr=subprocess.STDOUT).stdout.strip()

    def log(self, lines):
        return Command(["tail", "-n", str(lines), self.options.log_file])

    def log_hint(self):
        return f"{self.options.log_file} and: journalctl -u {UNIT}"

    def details(self):
        yield "systemctl-status.txt", Command(["systemctl", "--no-pager", "--full", "status", UNIT])
        yield "systemctl-show.txt", Command(["systemctl", "--no-pager", "show", UNIT])
        yield "journal.txt", Command(["journalctl", "--no-pager", "--unit", UNIT, "--since", "24 hours ago"])
        yield "environment.txt", self.redacted
        for file in sorted(pathlib.Path(self.options.log_file).parent.glob("*.log")):
            yield f"logs/{file.name}", Command(["cat", str(file)])
        if SYSLOG.exists():
            yield "logs/syslog", Command(["cat", str(SYSLOG)])
