"""Ray Jobs for `startup`: a cluster on this machine, and a job that executes the first step of the small world model. Run as a program
(ray_side.py FOLDER OUT), it is that job."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ADDRESS = "127.0.0.1"


class Cluster:
    """A running Ray head with its dashboard, which serves Ray Jobs on a port of its own, without an external network."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        # Ray creates sockets in this folder, whose paths must be short.
        self.temporary = tempfile.TemporaryDirectory(prefix="ray-")
        ray = pathlib.Path(sys.executable).parent / "ray"
        port = free_port()
        self.head = subprocess.Popen(
            [ray, "start", "--head", "--block", f"--node-ip-address={ADDRESS}",
             f"--port={free_port()}", f"--dashboard-host={ADDRESS}", f"--dashboard-port={port}",
             f"--temp-dir={self.temporary.name}", "--object-store-memory=100000000"],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}, stdout=sys.stderr)
        from ray.job_submission import JobSubmissionClient
        deadline = time.monotonic() + 120
        while True:
            try:
                self.client = JobSubmissionClient(f"http://{ADDRESS}:{port}")
                return
            except ConnectionError:
                if time.monotonic() > deadline or self.head.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.5)

    def submit(self):
        """Submits the job. Returns the seconds from submit_job to the end of its first step."""
        out = self.folder / "first_step"
        out.unlink(missing_ok=True)
        begin = time.time()
        job = self.client.submit_job(
            entrypoint=f"{sys.executable} {pathlib.Path(__file__).resolve()} {self.folder} {out}")
        while not out.exists():
            if self.client.get_job_status(job).is_terminal() and not out.exists():
                raise RuntimeError(self.client.get_job_logs(job)[-2000:])
            time.sleep(0.05)
        seconds = float(out.read_text()) - begin
        while not self.client.get_job_status(job).is_terminal():
            time.sleep(0.05)
        return {"seconds": seconds}

    def answer(self, request):
        return self.stop() if request.get("stop") else self.submit()

    def stop(self):
        """Ends the head and its processes by their IDs. `ray stop` would end every Ray on this machine."""
        started = descendants(self.head.pid)
        self.head.terminate()
        try:
            self.head.wait(30)
        except subprocess.TimeoutExpired:
            self.head.kill()
            self.head.wait()
        for pid, ticks in started:
            if start_ticks(pid) == ticks:
                os.kill(pid, signal.SIGKILL)
        self.temporary.cleanup()
        return {}


def start_ticks(pid):
    """Returns the start time of a process, which distinguishes it from a later one with the same ID; None if it does not exist."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def descendants(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [(child, start_ticks(child)), *descendants(child)]
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]


def first_step(folder, out):
    import python_sides
    import torch
    import workloads
    torch.set_num_threads(1)
    side = python_sides.Eager(workloads.WORKLOADS["world_model small"](folder), "FP32")
    side.train(1, 0)
    written = pathlib.Path(out + ".new")
    written.write_text(repr(time.time()))
    written.rename(out)


if __name__ == "__main__":
    first_step(*sys.argv[1:])
