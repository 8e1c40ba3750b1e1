"""What the daemon's RPCs cost while a job trains on every core, beside a bare gRPC C++ echo under the
same load in the same run, and what that load costs the training.

Each round measures, one after the other: training alone; under GetJob of the echo and of the daemon,
at the higher rate with a WatchJob stream and a scrape each second besides; then Train of the echo and of the daemon, at a
lower rate. Every other round begins with the daemon. Ratios are taken within a round; figures are
medians over the rounds."""

import json
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

import harness

BUILD = harness.BIN.parent
LOAD = BUILD / "benchmarks" / "load"
ECHO = BUILD / "benchmarks" / "echo_server"
# Long enough to train through the whole run.
TRAINING = harness.spec(max_steps=1_000_000_000, batch_size=512)
TRAINING["model"] = {"world_model": {"hidden_size": 512, "latent_size": 128}}
TRAINING["checkpoint"] = {}
SECONDS = 5
OBSERVED_RATE = 1000


class Echo:
    """The bare server, with an answer of the daemon's size."""

    def __init__(self, job_file):
        self.process = subprocess.Popen([ECHO, job_file], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.address = f"127.0.0.1:{self.process.stdout.readline().strip()}"

    def stop(self):
        self.process.stdin.close()
        self.process.wait(harness.LONG)


def samples(daemon):
    return int(daemon.job("load")["progress"]["samples"])


def trained_during(daemon, work):
    """Samples a second of the training while `work` runs, and what it returns."""
    before, begin = samples(daemon), time.monotonic()
    result = work()
    return (samples(daemon) - before) / (time.monotonic() - begin), result


def call(address, method, rate, job_id, folder, seconds=SECONDS):
    done = subprocess.run([LOAD, address, method, str(rate), str(seconds), job_id,
                           folder / "spec"], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    if figures["failed"]:
        raise AssertionError(f"{method} at {address}: {figures}")
    return figures


def observed(daemon, work):
    """Runs `work` while the job is watched and /metrics is read once a second."""
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
    figures = {"alone": trained_during(daemon, lambda: time.sleep(SECONDS))[0]}

    def take(name, address, method, rate, job_id):
        def work():
            return call(address, method, rate, job_id, folder)
        seen = name == "GetJob" and rate == OBSERVED_RATE
        speed, answered = trained_during(daemon, (lambda: observed(daemon, work)) if seen else work)
        figures[f"{name} {rate}"] = {**answered, "samples_per_second": speed}

    for method, rate, job_id in (("GetJob", 100, "load"), ("GetJob", OBSERVED_RATE, "load"),
                                 ("Train", 20, f"t{number}")):
        sides = [(f"echo of {method}", echo.address), (method, daemon.grpc)]
        for name, address in sides if number % 2 == 0 else reversed(sides):
            take(name, address, method, rate, job_id)
    return figures


def compare(rounds, method, rate):
    daemon, echo = f"{method} {rate}", f"echo of {method} {rate}"

    def over(figure):
        return statistics.median(figure(each) for each in rounds)

    row = {key: {"echo": over(lambda each, key=key: each[echo][key]),
                 "daemon": over(lambda each, key=key: each[daemon][key])}
           for key in ("p50_ms", "p99_ms", "samples_per_second")}
    row["p99_ratio"] = over(lambda each: each[daemon]["p99_ms"] / each[echo]["p99_ms"])
    row["training_loss_points_over_echo"] = over(
        lambda each: 100 * (each[echo]["samples_per_second"] - each[daemon]["samples_per_second"])
        / each["alone"])
    return row


def summarize(rounds):
    alone = [each["alone"] for each in rounds]
    return {"training_samples_per_second": {"median": statistics.median(alone), "least": min(alone),
                                            "most": max(alone)},
            "GetJob at 100/s": compare(rounds, "GetJob", 100),
            f"GetJob at {OBSERVED_RATE}/s, a WatchJob stream and a scrape each second": compare(
                rounds, "GetJob", OBSERVED_RATE),
            "Train at 20/s, durable": compare(rounds, "Train", 20)}


def run(rounds, out, machine):
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        daemon = harness.Daemon(data_dir, "--queue-max-jobs", "1000000", "--log-level", "warning")
        folder = pathlib.Path(data_dir)
        try:
            daemon.train("load", TRAINING)
            daemon.wait_for_step("load", 50)
            subprocess.run([LOAD, daemon.grpc, "save", "load", folder / "spec", folder / "job"],
                           check=True)
            echo = Echo(folder / "job")
            try:
                measured = [measure_round(daemon, echo, i, folder) for i in range(rounds)]
            finally:
                echo.stop()
        finally:
            daemon.kill()
    report = {"machine": machine, "rounds": rounds, "medians": summarize(measured),
              "measured": measured}
    print(json.dumps(report["medians"], indent=2))
    if out:
        pathlib.Path(out).write_text(json.dumps(report, indent=2) + "\n")
