"""The post-mortem folder: the state of the daemon before and after, and all related data."""

import pathlib
import subprocess
import tarfile

import incident
from command import Command
from daemon import STATUS

MACHINE = "uname -a; cat /etc/os-release; df -P; free -b 2>/dev/null || cat /proc/meminfo"
FP16_STATS = "SELECT * FROM fp16_stats WHERE timestamp > datetime('now', '-24 hours')"


class PostMortem:
    """Collects data into the folder of --output. A dry run only prints what it would collect."""

    def __init__(self, daemon):
        self.daemon, self.target, self.options, self.note = daemon, daemon.target, daemon.target.options, daemon.target.progress.note
        self.folder = pathlib.Path(self.options.output)
        self.missing = self.folder / "NOT_COLLECTED"

    def would(self, text):
        """Returns whether this is a dry run, after printing the text."""
        if self.options.dry_run:
            self.note(f"would {text}")
        return self.options.dry_run

    def create(self):
        if not self.options.dry_run:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)

    def collect(self, name, command):
        """Saves the output of a command; a failure adds a line to NOT_COLLECTED."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            done = command.run(stdout=file, stderr=subprocess.PIPE)
        if done.returncode != 0:
            with open(self.missing, "a", errors="surrogateescape") as missing:
                missing.write(f"{name}: {command}: {''.join(done.stderr.splitlines()[-1:])}\n")
            if not path.stat().st_size:
                path.unlink()

    def snapshot(self, name):
        """Saves the daemon's current state. It is fast, because an emergency waits for it."""
        if self.would(f"keep status, statistics, metrics and jobs as they are now ({name})"):
            return
        self.collect(f"{name}/time", Command(["date", "+%s"]))
        self.collect(f"{name}/status.json", self.daemon.page(STATUS))
        self.collect(f"{name}/stats.json", self.daemon.page("/api/training/stats"))
        self.collect(f"{name}/metrics.txt", self.daemon.page("/metrics"))
        self.collect(f"{name}/jobs.json", self.daemon.ctl("--output", "json", "jobs"))
        self.note(f"in {self.folder / name}")

    def collect_all(self):
        """Collects the data required by the rollback plan, after a snapshot."""
        self.snapshot("after")
        if self.would("collect logs, metrics, history, settings and GPU telemetry"):
            return
        for name, command in (*self.target.details(), *self.details()):
            self.collect(f"details/{name}", command)

    def details(self):
        """Yields (file, command) for the data that every kind of target has."""
        ctl, inside = self.daemon.ctl, self.target.inside
        yield "metrics-export.json", self.daemon.page("/api/metrics/export")
        yield "history.csv", ctl("history", "--csv", "--since", "24h")
        # Not created if missing: root would own it, and the daemon could not write it.
        path = self.options.metrics_db.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        yield "fp16-stats.csv", inside("sqlite3", "-csv", "-header", f"file:{path}?mode=rw", FP16_STATS)
        yield "settings.txt", ctl("config", "show")
        yield "precision.json", ctl("--output", "json", "precision")
        yield "workers.txt", ctl("workers")
        yield "checkpoints.json", ctl("--output", "json", "checkpoints")
        yield "version.txt", inside("genesisd", "--version")
        yield "machine.txt", Command(["sh", "-c", MACHINE])
        if inside("sh", "-c", "command -v nvidia-smi").succeeds():
            yield "nvidia-smi.txt", inside("nvidia-smi", "-q")
            yield "gpu-stats.log", inside("nvidia-smi", "dmon", "-s", "pucvmet", "-c", "5")

    def write_incident(self, recovered, checks_failed):
        path = self.folder / "incident.txt"
        if self.would(f"write {path}"):
            return
        (self.folder / "steps.tsv").write_text("".join(f"{took}\t{step}\n" for took, step in self.target.progress.times))
        text = incident.text(self.folder, self.options, self.target.name(), recovered, checks_failed)
        path.write_text(text, errors="surrogateescape")
        self.note(path)

    def pack(self):
        if self.options.dry_run:
            return
        packed = f"{self.folder}.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(self.folder, self.folder.name)
        self.note(f"{packed}, {Command(['du', '-h', packed]).output().split()[0]}")
        if self.missing.exists():
            lines = self.missing.read_text(errors="surrogateescape").splitlines()
            self.note(f"not collected (NOT_COLLECTED says why): {' '.join(line.split(':')[0] for line in lines)}")
