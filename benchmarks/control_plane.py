"""Measures how long RPCs of the daemon take while a job trains on all cores, and how much this load slows down the training. Both are
compared with a plain gRPC echo server in C++ under the same load.

  benchmarks/run control-plane [--out DIR] [--rounds N]

A round measures one after the other: training alone; training under calls of GetJob to the echo server and to the daemon, at the higher
rate also with a WatchJob stream and a scrape each second; then under calls of Train to both, at a lower rate. Every other round starts
with the daemon. Ratios are taken within a round. Results are medians over the rounds."""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import charts
import harness
import machine
import report
import sides
import spread

# The job is long enough to train during the whole measurement.
TRAINING = harness.spec(max_steps=1_000_000_000, batch_size=512)
TRAINING["model"] = {"world_model": {"hidden_size": 512, "latent_size": 128}}
TRAINING["checkpoint"] = {}
SECONDS = 5
OBSERVED_RATE = 1000
# (method, calls per second): (name of the load, its target).
LOADS = {
    ("GetJob", 100): ("GetJob at 100/s", "p99 at most 1.5 times the echo's"),
    ("GetJob", OBSERVED_RATE): (
        f"GetJob at {OBSERVED_RATE}/s, a WatchJob stream and a scrape each second",
        "p99 at most 1.5 times the echo's, training at most 2 points slower"),
    ("Train", 20): ("Train at 20/s, one fsync each", "p99 at most 3 times the echo's"),
}


class Echo:
    """The echo server, whose response is as large as the daemon's."""

    def __init__(self, job_file):
        self.process = subprocess.Popen([sides.benchmark_program("echo_server"), job_file], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.address = f"127.0.0.1:{self.process.stdout.readline().strip()}"

    def stop(self):
        self.process.stdin.close()
        self.process.wait(harness.LONG)


def samples(daemon):
    return int(daemon.job("load")["progress"]["samples"])


def trained_during(daemon, work):
    """Runs `work` while the job trains. Returns the samples per second of the training, and the result of `work`."""
    before, begin = samples(daemon), time.monotonic()
    result = work()
    return (samples(daemon) - before) / (time.monotonic() - begin), result


def call(address, method, rate, job_id, folder, seconds=SECONDS):
    done = subprocess.run([sides.benchmark_program("load"), address, method, str(rate), str(seconds), job_id,
                           folder / "spec"], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    if figures["failed"]:
        raise AssertionError(f"{method} at {address}: {figures}")
    return figures


def observed(daemon, work):
    """Runs `work` while the job is watched and /metrics is read each second. Returns the result of `work`."""
    watch = subprocess.Popen([harness.BIN / "genesisctl", "--server", daemon.grpc, "watch", "load"],
                             stdout=subprocess.DEVNULL)
    stop = threading.Event()

    def scrape():
        while not stop.wait(1):
            daemon.get("/metrics")

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        return work()
    finally:
        stop.set()
        thread.join()
        if watch.poll() is not None:
            raise AssertionError(f"genesisctl watch ended with {watch.returncode} before the load did")
        watch.kill()
        watch.wait()


def measure_round(daemon, echo, number, folder):
    """Measures one round. Returns {"alone": samples per second, load: {"echo": metrics, "daemon": metrics}}."""
    figures = {"alone": trained_during(daemon, lambda: time.sleep(SECONDS))[0]}
    for method, rate in LOADS:
        found = figures[method, rate] = {}
        addresses = {"echo": echo.address, "daemon": daemon.grpc}
        for side in addresses if number % 2 == 0 else reversed(addresses):
            def work():
                return call(addresses[side], method, rate, f"t{number}" if method == "Train" else "load", folder)

            seen = side == "daemon" and method == "GetJob" and rate == OBSERVED_RATE
            speed, answered = trained_during(daemon, (lambda: observed(daemon, work)) if seen else work)
            found[side] = {**answered, "samples_per_second": speed}
    return figures


def row(load, rounds):
    """Returns the row of a load, with its cost over the rounds."""
    name, wanted = LOADS[load]
    pairs = [(each[load]["echo"], each[load]["daemon"], each["alone"]) for each in rounds]
    figures = {f"{side}_{key}": spread.summary([pair[i][key] for pair in pairs])
               for i, side in enumerate(("echo", "daemon")) for key in ("p50_ms", "p99_ms", "samples_per_second")}
    return {"name": name, **figures,
            "p99_ratio": spread.median_interval([daemon["p99_ms"] / echo["p99_ms"] for echo, daemon, _ in pairs]),
            "training_points_below_echo": spread.median_interval(
                [100 * (echo["samples_per_second"] - daemon["samples_per_second"]) / alone
                 for echo, daemon, alone in pairs]),
            "wanted": wanted}


def table(rows):
    lines = []
    for each in rows:
        lines += [f"{each['name']}; wanted: {each['wanted']}",
                  "  p50 {:.2f} ms beside the echo's {:.2f}, p99 {:.2f} beside {:.2f}".format(
                      *(each[f"{side}_{key}"]["median"] for key in ("p50_ms", "p99_ms")
                        for side in ("daemon", "echo"))),
                  "  p99 ratio {median:.2f} ({low:.2f} to {high:.2f})".format(**each["p99_ratio"]),
                  "  training {median:+.1f} points below that under the echo ({low:+.1f} to {high:+.1f})".format(
                      **each["training_points_below_echo"])]
    return "\n".join(lines)


def measure(rounds, data_dir, steadiness):
    daemon = harness.Daemon(data_dir, "--queue-max-jobs", "1000000", "--log-level", "warning")
    folder = pathlib.Path(data_dir)
    measured = []
    try:
        daemon.train("load", TRAINING)
        daemon.wait_for_step("load", 50)
        subprocess.run([sides.benchmark_program("load"), daemon.grpc, "save", "load", folder / "spec",
                        folder / "job"], check=True)
        echo = Echo(folder / "job")
        try:
            for number in range(rounds):
                steadiness.measure()
                measured.append(measure_round(daemon, echo, number, folder))
        finally:
            echo.stop()
    finally:
        daemon.kill()
    return measured


def run(words):
    options = report.parser("control-plane", __doc__, rounds=4).parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        measured = measure(options.rounds, data_dir, steadiness)
    found = report.Report("control-plane", "RPCs beside training", machine.facts(
        genesisd=machine.output_of(harness.BIN / "genesisd", "--version")),
        {"rounds": options.rounds, "seconds of each piece": SECONDS, "training": TRAINING})
    rows = [row(load, measured) for load in LOADS]
    for each in rows:
        found.add(each)
    found.add({"name": "training alone",
               "samples_per_second": spread.summary([each["alone"] for each in measured])})
    found.steadiness = steadiness.summary()
    found.text("Loads", table(rows))
    for key in ("p50_ms", "p99_ms"):
        found.chart(charts.bars(f"Latency, {key[:3]}", [
            (each["name"], [(side, each[f"{side}_{key}"]) for side in ("echo", "daemon")]) for each in rows], "ms"))
    found.write(options.out)
