"""Measures how cost grows with the size of the model, with the batch size, and with the number of waiting jobs, of watchers of a job, and
of finished jobs.

  benchmarks/run scale [--out DIR] [--rounds N] [--kind NAME]...

Each size is measured in turn, in an order that rotates with each round. For the last three kinds, a worker without LibTorch holds the
jobs, so that only the daemon is measured."""

import os
import pathlib
import tempfile
import threading
import time

import grpc

import charts
import harness
import machine
import orchestrator
import report
import sides
import spread
import store

SIZES = {
    "model": (64, 128, 256, 512, 1024),
    "batch": (32, 128, 512, 2048),
    "waiting jobs": (1, 100, 900),
    "watchers": (0, 16, 64, 256),
    "ended jobs": (100, 1000, 5000),
}
TITLES = {"model": "hidden size of the world model, batch 128", "batch": "batch of the world model, hidden size 256",
          "waiting jobs": "jobs in the queue", "watchers": "WatchJob streams on one running job",
          "ended jobs": "jobs that have ended"}
CALLS = 200
SECONDS = 1.5  # Duration of training, and of watching.


def job(hidden, batch, steps):
    spec = harness.spec(batch_size=batch, max_steps=steps)
    spec["model"] = {"world_model": {"hidden_size": hidden, "latent_size": max(16, hidden // 4)}}
    spec["dataset"]["trajectories"]["path"] = str(harness.TRAJECTORIES / spec["dataset"]["trajectories"]["path"])
    spec["precision"] = {"mode": "FP32"}
    return spec


class Training:
    """A measurement of the milliseconds of a training step."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.steps = kind, folder, {}

    def measure(self, size):
        hidden, batch = (size, 128) if self.kind == "model" else (256, size)
        cores = sorted(os.sched_getaffinity(0))
        if size not in self.steps:
            trial = job(hidden, batch, 10**6)
            trial["training"]["time_limit_seconds"] = SECONDS
            self.steps[size] = max(12, sides.WorkerRun(self.folder, trial, cores).records[-1]["step"])
        steps = self.steps[size]
        seconds, used = sides.WorkerRun(self.folder, job(hidden, batch, steps), cores).per_step(steps // 4)
        return {"step_ms": 1e3 * seconds, "processor_ms": 1e3 * used, "samples_per_second": batch / seconds}


def held_daemon(folder):
    """Starts a daemon whose only slot holds a job that cannot be preempted. Returns the daemon and a client."""
    daemon = store.start(folder)
    client = orchestrator.Orchestrator(daemon.grpc)
    holding = harness.spec()
    holding["scheduling"] = {"priority": 10}
    client.call("Train", job_id="hold-1", spec=holding)
    daemon.wait_for_step("hold-1", 5)
    return daemon, client


class Serving:
    """A measurement of how a daemon affects its callers and the machine."""

    def __init__(self, kind, folder):
        self.kind, self.folder = kind, folder

    def measure(self, size):
        with tempfile.TemporaryDirectory(dir=self.folder) as data_dir:
            daemon, client = held_daemon(data_dir)
            try:
                if self.kind == "watchers":
                    return self.watched(daemon, client, size)
                for number in range(size):
                    if self.kind == "ended jobs":
                        store.submit(client, number)
                    else:
                        client.call("Train", job_id=f"job-{number:06d}", spec=harness.spec())
                return self.figures(daemon, client, "job-000000")
            finally:
                client.close()
                daemon.stop()

    def watched(self, daemon, client, size):
        watcher = orchestrator.Orchestrator(daemon.grpc)
        streams = [watcher.call("WatchJob", job_id="hold-1") for _ in range(size)]
        heard = [threading.Event() for _ in streams]

        def listen(stream, event):
            try:
                for _ in stream:
                    event.set()
            except grpc.RpcError:
                return  # The stream was cancelled.

        listeners = [threading.Thread(target=listen, args=pair) for pair in zip(streams, heard)]
        for listener in listeners:
            listener.start()
        try:
            for event in heard:
                if not event.wait(harness.LONG):
                    raise RuntimeError("a watcher has heard nothing")
            begin, used = time.perf_counter(), sides.processor_seconds(daemon.process.pid)
            time.sleep(SECONDS)
            share = (sides.processor_seconds(daemon.process.pid) - used) / (time.perf_counter() - begin)
            return {**self.figures(daemon, client, "hold-1"), "processor_share": share}
        finally:
            for stream in streams:
                stream.cancel()
            for listener in listeners:
                listener.join()
            watcher.close()

    @staticmethod
    def figures(daemon, client, job_id):
        number = iter(range(10**6))
        return {
            "get_ms": store.milliseconds(lambda: client.call("GetJob", job_id=job_id), CALLS)["p50_ms"],
            "list_ms": store.milliseconds(lambda: client.call("ListJobs"), CALLS)["p50_ms"],
            "train_ms": store.milliseconds(lambda: client.call(
                "Train", job_id=f"more-{next(number)}", spec=harness.spec()), 20)["p50_ms"],
            "resident_mib": store.resident_kib(daemon.process.pid) / 1024}


def measure(kind, rounds, folder, steadiness):
    """Returns {size: {metric: [value in each round]}}."""
    sizes = SIZES[kind]
    found = {size: {} for size in sizes}
    side = (Training if kind in ("model", "batch") else Serving)(kind, pathlib.Path(folder))
    for number in range(rounds):
        for size in sizes if number % 2 == 0 else sizes[::-1]:
            steadiness.measure()
            for figure, value in side.measure(size).items():
                found[size].setdefault(figure, []).append(value)
    return found


def table(kind, rows):
    names = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    lines = [f"{kind:>14}" + "".join(f"{name:>22}" for name in names)]
    for row in rows:
        lines.append(f"{row['size']:14}" + "".join(f"{row[name]['median']:22.3g}" for name in names))
    return "\n".join(lines)


def run(words):
    parser = report.parser("scale", __doc__, rounds=3)
    parser.add_argument("--kind", action="append", choices=SIZES, help="default: all")
    options = parser.parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    found = report.Report("scale", "How cost grows", machine.facts(), {"rounds": options.rounds, "calls": CALLS})
    for kind in options.kind or SIZES:
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            sizes = measure(kind, options.rounds, folder, steadiness)
        rows = [{"name": f"{kind}: {size}", "kind": kind, "size": size,
                 **{figure: spread.summary(values) for figure, values in figures.items()}}
                for size, figures in sizes.items()]
        for row in rows:
            found.add(row)
        found.text(TITLES[kind], table(kind, rows))
        shown = "step_ms" if kind in ("model", "batch") else "get_ms"
        found.chart(charts.bars(f"{TITLES[kind]}: {'a step' if shown == 'step_ms' else 'GetJob'}",
                                [("", [(row["size"], row[shown]) for row in rows])], "ms"))
    found.steadiness = steadiness.summary()
    found.write(options.out)
