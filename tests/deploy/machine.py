"""A separate Debian 12 on this host: an overlay over the file system that deploy/setup.sh created, in new namespaces for processes, mounts,
network and control groups, with a real systemd as its first process.

Requires root, like installing a package and starting a service.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import BIN, LONG, need_namespaces, wait_for, wait_for_step  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "genesis"
TREE = CACHE / "debian-12"
BOOT = pathlib.Path(__file__).resolve().parent / "boot_machine.sh"
PACKAGES = BIN.parent / "package"
LIBTORCH = "/opt/genesis/libtorch"
# Mount points of control groups version 2, on a host with only that version or with both.
CGROUPS = [path for path in (pathlib.Path("/sys/fs/cgroup/unified"), pathlib.Path("/sys/fs/cgroup"))
           if (path / "cgroup.procs").exists()]


def package_file():
    """Returns the newest package of deploy/package.sh. The test make_package of CTest builds it first."""
    found = sorted(PACKAGES.glob("genesis-trainer_*.deb"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise AssertionError(f"there is no package in {PACKAGES}; run deploy/package.sh --deb-only")
    return found[-1]


class Machine:
    """A running machine. The constructor starts it, and stop() removes everything that it created."""

    def __init__(self, *, boot=True, mounts=()):
        """Starts the machine. `mounts` are read-only (folder of the host, folder inside)."""
        need_namespaces()
        if not (TREE / ".complete").exists():
            raise AssertionError(f"{TREE} is missing; run deploy/setup.sh --test")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="genesis-machine-"))
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir()
        self.cgroup = CGROUPS[0] / f"genesis-test-{uuid.uuid4().hex[:12]}"
        self.cgroup.mkdir()
        self.first = None
        self.process = None
        try:
            self._start(boot, mounts)
        except BaseException:
            self.stop()
            raise

    def _start(self, boot, mounts):
        def enter():
            (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

        # All mounts belong to the machine's own namespace and end with it.
        first = ["/sbin/init"] if boot else ["/bin/sleep", "infinity"]
        self.console = open(self.folder / "console", "wb")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork",
             "--kill-child", BOOT, TREE, self.folder, *[f"{outside}:{inside}" for outside, inside in mounts],
             "--", *first], preexec_fn=enter, stdin=subprocess.DEVNULL, stdout=self.console,
            stderr=self.console)
        self.first = wait_for("the machine", self._first_program)
        if boot:
            wait_for("its systemd", lambda: self.run("systemctl is-system-running", check=False)
                     .stdout.strip() in ("running", "degraded"))

    def _first_program(self):
        """Returns the process ID of systemd or sleep once it has replaced the script, otherwise a false value."""
        if self.process.poll() is not None:
            raise AssertionError(f"the machine ended: {(self.folder / 'console').read_text()}")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = children.read_text().split()
        return found and pathlib.Path(f"/proc/{found[0]}/exe").readlink().name in (
            "systemd", "sleep") and int(found[0])

    def path(self, inside):
        """Returns the host's path of a file in the machine."""
        return pathlib.Path(f"/proc/{self.first}/root{inside}")

    def run(self, command, *, check=True, user=None, stdin=None, timeout=LONG):
        """Runs a shell command in the machine. Returns the finished process."""
        words = ["nsenter", "--target", str(self.first), "--all", "--root", "--wd"]
        if user:
            words += ["runuser", "-u", user, "--"]
        done = subprocess.run(
            [*words, "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
             "HOME=/root", "LC_ALL=C.UTF-8", "bash", "-c", command], capture_output=True, text=True,
            timeout=timeout, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
            check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def read(self, path):
        return self.run(f"cat {path}").stdout

    def copy_in(self, file, inside):
        with open(file, "rb") as content:
            subprocess.run(["nsenter", "--target", str(self.first), "--all", "--root", "--wd", "sh",
                            "-c", f"cat > {inside}"], stdin=content, check=True)

    def install(self):
        self.copy_in(package_file(), "/var/tmp/genesis-trainer.deb")
        return self.run("DEBIAN_FRONTEND=noninteractive dpkg --install /var/tmp/genesis-trainer.deb")

    def stop(self):
        if self.process:
            # Killing the first process ends all others.
            if self.first:
                os.kill(self.first, signal.SIGKILL)
            else:
                self.process.kill()
            self.process.wait(LONG)
            self.console.close()
        for folder, _, _ in os.walk(self.cgroup, topdown=False):
            wait_for(f"the end of all in {folder}", lambda f=folder: self._removed(f))
        shutil.rmtree(self.folder)

    @staticmethod
    def _removed(folder):
        try:
            os.rmdir(folder)
        except OSError:
            return False
        return True


class Service(Machine):
    """A machine on which the package is installed, and LibTorch where the package expects it."""

    def __init__(self):
        torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
        prefix = pathlib.Path(sys.prefix)
        super().__init__(mounts=[(prefix, "/opt/genesis/python")])
        try:
            self.install()
            self.run(f"ln -s /opt/genesis/python/{torch.relative_to(prefix)} {LIBTORCH}")
        except BaseException:
            self.stop()
            raise

    def environment(self, *lines):
        """Writes the environment file and restarts the service."""
        self.run("cat > /etc/genesis/environment", stdin="\n".join(lines) + "\n")
        self.run("systemctl restart genesis-trainer")

    def train(self, job_id, text):
        self.run(f"genesisctl train --file - --job-id {job_id}", stdin=text)

    def job(self, job_id):
        return json.loads(self.run(f"genesisctl --output json job {job_id}").stdout)

    def wait_for_step(self, job_id, step):
        return wait_for_step(self.job, job_id, step)

    def property(self, name, unit="genesis-trainer"):
        return self.run(f"systemctl show --property={name} --value {unit}").stdout.strip()

    def log(self):
        return self.read("/var/log/genesis/orchestrator.log")
