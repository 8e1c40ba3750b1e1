"""Starts the real programs for end-to-end tests. Each test has its own daemon, data folder and ports."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

import tiers

BIN = pathlib.Path(os.environ["GENESIS_BIN"])
SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
TRAJECTORIES = SOURCE / "examples" / "trajectories"
# A worker without LibTorch whose behavior depends on the ID of its job, for tests of the daemon alone.
FAKE_WORKER = BIN.parent / "tests" / "fake_worker"

# Seconds after which a test fails. Not a measurement.
LONG = 600

PENDULUM = {
    "model": {"world_model": {"hidden_size": 32, "latent_size": 16}},
    "dataset": {"trajectories": {"path": "pendulum.npz"}},
    "training": {"max_steps": 200, "batch_size": 64, "seed": 7},
    "checkpoint": {"every_steps": 50},
}


def spec(**training):
    """Returns the small Pendulum job with some training settings changed."""
    changed = json.loads(json.dumps(PENDULUM))
    changed["training"].update(training)
    return changed


def clean_environment(extra=None):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("FP16_", "GENESIS_DATA", "GENESIS_GRPC", "GENESIS_HTTP"))
            and k not in ("ENABLE_FP16_TRAINING", "FEATURE_FLAGS", "GENESIS_CONFIG")}
    return {**kept, **(extra or {})}


def wait_for(what, probe, timeout=LONG):
    """Polls `probe` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while (begin := time.monotonic()) < deadline:
        found = probe()
        if found:
            return found
        # If the probe itself takes time, pauses twice as long, because trainers run at a lower priority.
        time.sleep(min(max(0.02, 2 * (time.monotonic() - begin)), 1))
    raise AssertionError(f"waited {timeout} s for {what}")


def wait_for_step(job, job_id, step):
    """Waits until a job has executed `step` steps. Returns the job, which is read by `job(job_id)`."""
    def reached():
        now = job(job_id)
        if now["state"] in ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"):
            raise AssertionError(now)
        return int(now.get("progress", {}).get("step", 0)) >= step and now

    return wait_for(f"step {step} of {job_id}", reached)


def not_run(why):
    """Ends the test as neither passed nor failed, because this machine forbids what it needs."""
    raise unittest.SkipTest(tiers.NOT_RUN + " ".join(str(why).split()))


def need_namespaces():
    """Ends the test as not run if the kernel or the container forbids mounts in new namespaces."""
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "-o",
                            "size=64k", "none", "/mnt"], capture_output=True, text=True)
    if probe.returncode != 0:
        not_run(f"namespaces and mounts are forbidden here: {probe.stderr}")


def mount_disk(folder, size, cleanup):
    """Mounts a separate file system at `folder` that is small enough to be filled.

    Ends the test as not run if mounts are forbidden. `cleanup` is the test's addCleanup."""
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    done = subprocess.run([*as_root, "mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "none",
                           str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        not_run(f"a small disk cannot be mounted here: {done.stderr}")
    cleanup(subprocess.run, [*as_root, "umount", "-l", str(folder)], check=True)


class Daemon:
    """A running genesisd."""

    def __init__(self, data_dir, *flags, environment=None):
        self.data_dir = pathlib.Path(data_dir)
        self.scheme = "https" if "--tls-certificate-file" in flags else "http"
        datasets = self.data_dir / "datasets"
        datasets.mkdir(parents=True, exist_ok=True)
        for name in ("pendulum.npz", "cartpole.npz"):
            if not (datasets / name).exists():
                shutil.copy(TRAJECTORIES / name, datasets / name)
        endpoints = self.data_dir / "run" / "endpoints"
        endpoints.unlink(missing_ok=True)
        self.output = open(self.data_dir / "stderr", "ab")
        self.process = subprocess.Popen(
            [BIN / "genesisd", "--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", *flags],
            stderr=self.output, env=clean_environment(environment))
        self._wait_until_listening(endpoints)

    def _wait_until_listening(self, endpoints):
        def listening():
            if self.process.poll() is not None:
                raise AssertionError((self.data_dir / "stderr").read_text())
            return endpoints.exists()

        wait_for("the daemon", listening)
        lines = dict(line.split(": ", 1) for line in endpoints.read_text().splitlines())
        self.grpc, self.http = lines["grpc"], lines["http"]

    def get(self, path):
        # The tests of TLS verify certificates.
        context = ssl._create_unverified_context() if self.scheme == "https" else None
        with urllib.request.urlopen(f"{self.scheme}://{self.http}{path}", timeout=LONG,
                                    context=context) as response:
            return response.read().decode()

    def get_json(self, path):
        return json.loads(self.get(path))

    def ctl(self, *arguments, check=True):
        """Runs genesisctl with --output json. Returns the parsed output or, with check=False, the finished process."""
        done = subprocess.run([BIN / "genesisctl", "--server", self.grpc, "--output", "json",
                               *arguments], capture_output=True, text=True, timeout=LONG)
        if not check:
            return done
        if done.returncode != 0:
            raise AssertionError(f"genesisctl {arguments}: {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def train(self, job_id, job_spec, check=True):
        # JSON is valid YAML.
        path = self.data_dir / f"{job_id}.yaml"
        path.write_text(json.dumps(job_spec))
        return self.ctl("train", "-f", str(path), "--job-id", job_id, check=check)

    def job(self, job_id):
        return self.ctl("job", job_id)

    def glance(self, job_id, wait_seconds=0):
        """Returns a job, after its end or `wait_seconds`. By HTTP, because each genesisctl takes processor time from the trainers, unless
        the daemon wants a token."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get_json(f"/v1/jobs/{job_id}?wait_seconds={wait_seconds}")["job"]
        return self.job(job_id)

    def wait_for_step(self, job_id, step):
        wait_for_step(self.glance, job_id, step)
        return self.job(job_id)

    def wait_for_end(self, job_id):
        final = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")

        def ended():
            return self.glance(job_id, wait_seconds=60)["state"] in final and self.job(job_id)

        return wait_for(f"the end of {job_id}", ended)

    def log(self):
        return (self.data_dir / "log" / "orchestrator.log").read_text()

    def worker_pids(self):
        """Returns the IDs of the worker processes, which are children of the daemon."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task")
        pids = []
        for task in children.iterdir():
            pids += [int(pid) for pid in (task / "children").read_text().split()]
        return pids

    def busy_worker_pid(self):
        """Returns the ID of the worker process with the most processor time, which is the one that trains."""
        def ticks(pid):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        return max(self.worker_pids(), key=ticks)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.output.close()

    def stop(self):
        """Sends SIGTERM and waits for the drain. Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LONG)
        self.output.close()
        return code


class DaemonTest(unittest.TestCase):
    """A test with a data folder. start() starts a daemon, which is stopped when the test ends."""

    def setUp(self):
        self.data_dir = tempfile.mkdtemp(prefix="genesis-")
        self.addCleanup(shutil.rmtree, self.data_dir, ignore_errors=True)

    def start(self, *flags, environment=None):
        daemon = Daemon(self.data_dir, *flags, environment=environment)
        self.addCleanup(daemon.stop)
        return daemon
