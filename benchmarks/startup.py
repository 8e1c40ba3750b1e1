"""Measures start-up times: of the daemon, of a worker, and of the first step of a job, compared with Ray Jobs.

  benchmarks/run startup [--out DIR] [--rounds N]

A round starts a daemon in a new folder and measures the time until it is ready and until a worker is warm. It then submits a job to a
running daemon, and a Python script with the same first step to Ray Jobs."""

import os
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error

import charts
import harness
import machine
import report
import sides
import spread

TARGETS = {"daemon ready": 0.3, "worker cold to warm": 1.0, "Train to first step": 0.05}


def poll(probe):
    deadline = time.monotonic() + harness.LONG
    while not probe():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing after {harness.LONG} s")
        time.sleep(0.002)


def ready(daemon):
    try:
        return bool(daemon.get("/readyz"))
    except urllib.error.HTTPError:
        return False


def warm(daemon):
    match = re.search(r'^genesis_workers\{[^}]*state="warm"[^}]*\} (\d+)', daemon.get("/metrics"),
                      re.MULTILINE)
    return match is not None and int(match[1]) > 0


def age(pid):
    """Returns the seconds since a process started, with the resolution of a clock tick."""
    ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def start_daemon():
    """Starts a daemon. Returns the seconds until it is ready, and those from the start of its first worker until the worker is warm."""
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        begin = time.perf_counter()
        daemon = harness.Daemon(folder)
        try:
            poll(lambda: ready(daemon))
            to_ready = time.perf_counter() - begin
            poll(lambda: warm(daemon))
            return to_ready, max(map(age, daemon.worker_pids()))
        finally:
            daemon.stop()


def first_step(daemon):
    """Returns the seconds from Train to the end of the first step, on a warm worker."""
    done = subprocess.run([sides.benchmark_program("first_step"), daemon.grpc, "pendulum.npz", "1"], capture_output=True,
                          text=True, check=True)
    return float(re.search(r"run 1: ([\d.]+) ms", done.stdout)[1]) / 1e3


def measure(rounds, folder, steadiness):
    cores = os.sched_getaffinity(0)
    maker = sides.PeerProcess(folder, cores, "prepare")
    facts = maker.ask(workload="world_model small", folder=folder)
    maker.stop()
    found = {name: [] for name in (*TARGETS, "Ray Jobs, submit to first step")}
    ray = sides.PeerProcess(folder, cores, "ray", folder)
    data_dir = pathlib.Path(folder) / "daemon"
    data_dir.mkdir()
    daemon = harness.Daemon(data_dir)
    try:
        ray.ask()  # The first job of a cluster has one-time costs.
        first_step(daemon)
        for _ in range(rounds):
            steadiness.measure()
            found["Train to first step"].append(first_step(daemon))
            found["Ray Jobs, submit to first step"].append(ray.ask()["seconds"])
            to_ready, to_warm = start_daemon()
            found["daemon ready"].append(to_ready)
            found["worker cold to warm"].append(to_warm)
    finally:
        daemon.stop()
        ray.ask(stop=True)
        ray.stop()
    return found, facts["versions"]


def table(rows):
    lines = [f"{'what':34}{'median (quartiles), s':30}wanted"]
    for row in rows:
        value = row["seconds"]
        lines.append(f"{row['name']:34}"
                     + f"{value['median']:.3f} ({value['low']:.3f} to {value['high']:.3f})".ljust(30)
                     + (f"at most {row['wanted']}" if "wanted" in row else ""))
    return "\n".join(lines)


def run(words):
    options = report.parser("startup", __doc__, rounds=7).parse_args(words)
    sides.python_of_peers()
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        seconds, versions = measure(options.rounds, folder, steadiness)
    found = report.Report("startup", "How soon things begin", machine.facts(
        **versions, **{"genesisd": machine.output_of(harness.BIN / "genesisd", "--version")}),
        {"rounds": options.rounds})
    for name, values in seconds.items():
        found.add({"name": name, "seconds": spread.summary(values),
                   **({"wanted": TARGETS[name]} if name in TARGETS else {})})
    found.steadiness = steadiness.summary()
    found.text("Seconds", table(found.rows))
    found.chart(charts.bars("Seconds", [("", [(row["name"], row["seconds"]) for row in found.rows])],
                            "s"))
    found.write(options.out)
