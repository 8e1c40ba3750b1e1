"""Measures what a reader of the weights of a running job costs the job.

  benchmarks/run weights [--out DIR] [--rounds N] [--seconds N] [--document docs/benchmarks/daemon.md]

One job trains a model of 45 MB on one core. A round measures its steps per second without a reader, with one that maps ten versions a second in
shared memory, and with one to which they are streamed, in an order that reverses. Needs torch and numpy, as the Python of the tests has them."""

import pathlib
import statistics
import tempfile
import threading
import time
from unittest import mock

import harness
import machine
import python_package
import report
import spread

ALONE, MAPPED, STREAMED = "no reader", "shared memory", "stream"
INTERVAL = 0.1
WIDTH = 2300


def submit(client):
    import numpy
    from torch import nn

    layers = [nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16)]
    data = numpy.random.randn(4096, 256).astype("float32"), numpy.random.randint(0, 16, 4096)
    return client.train(nn.Sequential(*layers), data, loss="cross_entropy", max_steps=10**9, batch_size=64)


def next_step(job):
    """Waits until the daemon reports another step. Returns that step and the time."""
    before = job.refresh().progress.step
    while (step := job.refresh().progress.step) == before:
        time.sleep(0.005)
    return step, time.monotonic()


class Reader:
    """A reader of the weights on a thread of its own; none for ALONE."""

    def __init__(self, job, side):
        from genesis import weights

        self.count, self.versions = 0, iter(())
        if side != ALONE:
            with mock.patch.object(weights, "is_local", lambda server: side == MAPPED):
                self.versions = job.weights(interval=INTERVAL)
            next(self.versions)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for version in self.versions:
            version.tensors()
            self.count += 1


def measure(job, side, seconds):
    """Returns (steps, versions) per second."""
    reader = Reader(job, side)
    try:
        (first, begin), count = next_step(job), reader.count
        time.sleep(seconds)
        (last, end), read = next_step(job), reader.count - count
    finally:
        if side != ALONE:
            reader.versions.close()
    return (last - first) / (end - begin), read / (end - begin)


def table(rows):
    lines = ["| | steps/s | versions/s | of the steps without a reader |", "| --- | --- | --- | --- |"]
    for row in rows:
        lines.append(f"| {row['name']} | {row['steps']['median']:.2f} | {row['versions']:.1f} | "
                     "{median:.1%} ({low:.1%} to {high:.1%}) |".format(**row["ratio"]))
    return "\n".join(lines)


def run(words):
    parser = report.parser("weights", __doc__, rounds=9)
    parser.add_argument("--seconds", type=float, default=15, help="of each side in a round. Default 15")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("weights", "What a reader of weights costs", facts, {"rounds": options.rounds, "seconds": options.seconds})
    sides, rounds = (ALONE, MAPPED, STREAMED), []
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        python_package.make_importable(folder)
        import genesis

        daemon = harness.Daemon(pathlib.Path(folder) / "data", "--workers-slots", "2")  # One core for each worker.
        try:
            job = submit(genesis.Client(daemon.grpc))
            harness.wait_for("its steps", lambda: job.refresh().progress.step > 20)
            for number in range(options.rounds):
                rounds.append({side: measure(job, side, options.seconds) for side in (sides if number % 2 else sides[::-1])})
                print({side: f"{steps:.2f} steps/s, {versions:.1f} versions/s" for side, (steps, versions) in rounds[-1].items()}, flush=True)
            job.cancel(now=True)
        finally:
            daemon.stop()
    for side in sides:
        found.add({"name": side, "steps": spread.summary([each[side][0] for each in rounds]),
                   "versions": statistics.median(each[side][1] for each in rounds),
                   "ratio": spread.summary([each[side][0] / each[ALONE][0] for each in rounds])})
    found.text("Weights", table(found.rows))
    found.write(options.out)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "weights", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores, {options.rounds} rounds; "
                        f"medians (quartiles).\n\n{table(found.rows)}")
