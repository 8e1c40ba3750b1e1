"""A private Slurm cluster on this machine: a controller and two nodes with one processor each, without systemd and cgroups. Requires
root."""

import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

CONFIGURATION = """\
ClusterName=private
SlurmctldHost={host}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
LONG = 300


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Cluster:
    """A running cluster. The constructor starts it, and stop() ends it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.chmod(0o755)  # Every user must be able to reach munge's socket.
        self.daemons = []
        for name in ("state", "spool-n1", "spool-n2"):
            (self.folder / name).mkdir()
        configuration = self.folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, host=socket.gethostname().split(".")[0],
                                                      ports=free_ports(3)))
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        self.environment = {**os.environ, "SLURM_CONF": str(configuration)}
        self._start("munged", "--foreground", f"--socket={folder}/munge.sock", f"--key-file={key}",
                    f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log",
                    f"--seed-file={folder}/munge.seed", "--force")
        self._until(lambda: (self.folder / "munge.sock").exists(), "munged does not serve")
        self._start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._start("slurmd", "-D", "-N", node)
        self._until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == "2",
                    "the nodes are not idle")

    def run(self, *words, **variables):
        return subprocess.run([str(word) for word in words], env={**self.environment, **variables},
                              capture_output=True, text=True, timeout=10 * LONG)

    def wait_for_job(self, number):
        """Waits until a job ends. Returns its final state."""
        states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self._until(lambda: self.state(number) in states, f"job {number} does not end", 10 * LONG)
        return self.state(number)

    def state(self, number):
        shown = self.run("scontrol", "show", "job", number, "-o").stdout
        return next((word.split("=")[1] for word in shown.split() if word.startswith("JobState=")), "")

    def stop(self):
        # Job steps outlive the daemons.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--full", "--signal=KILL", "--user=root")
            deadline = time.monotonic() + LONG
            while self.run("squeue", "-h").stdout.strip() and time.monotonic() < deadline:
                time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(LONG)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, program, *words):
        # Debian installs the programs in /usr/sbin.
        path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")
        log = open(self.folder / f"{program}-{len(self.daemons)}.out", "w")
        with log:
            self.daemons.append(subprocess.Popen([path, *words], env=self.environment, stdout=log, stderr=log))

    def _until(self, reached, fault, seconds=LONG):
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                self.stop()
                logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"{fault}\n{logs}")
            time.sleep(0.1)
