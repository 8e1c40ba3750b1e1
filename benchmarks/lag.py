"""Measures the lags of the loop between agents and a job that learns from them.

  benchmarks/run lag [--out DIR] [--rounds N] [--document docs/benchmarks/daemon.md]

A world model follows a replay buffer on one core. A round appends an episode of 50 transitions, and measures from its acknowledgement to the daemon's
report of a step that could draw it; and it takes the next version of the weights, and measures from the end of its step to the version in the reader's
hands. Needs numpy, as the Python of the tests has it."""

import pathlib
import tempfile
import time

import harness
import machine
import python_package
import report
import spread

EPISODE = 50
SEEN, HELD = "acknowledged append to the report of a step that can draw it", "end of a step to its weights in the reader"


def append(buffer, random):
    at = random.normal(size=(EPISODE + 1, 3)).astype("float32")
    terminals = [0] * (EPISODE - 1) + [1]
    buffer.extend(at[:-1], random.normal(size=(EPISODE, 1)), random.normal(size=EPISODE), at[1:], terminals)


def seen_after(job, buffer, random):
    """Appends an episode. Returns the seconds until a report of a step counts it."""
    append(buffer, random)
    begin = time.monotonic()
    while job.refresh().progress.next_transition < buffer.buffer_transitions:
        time.sleep(0.002)
    return time.monotonic() - begin


def held_after(job, versions):
    """Takes a version of the weights. Returns the seconds since the end of its step, whose time is read from the curves."""
    version = next(versions)
    now = time.time()
    harness.wait_for("the curves of its step", lambda: job.curves("loss", from_step=version.step)["last_step"])
    curves = job.curves("loss", from_step=version.step, to_step=version.step)
    return now - curves["time"][0]


def table(rows):
    lines = ["| from ... to ... | p50 | p99 | count |", "| --- | --- | --- | --- |"]
    lines += [f"| {row['name']} | {1000 * row['p50']:.0f} ms | {1000 * row['p99']:.0f} ms | {row['count']} |" for row in rows]
    return "\n".join(lines)


def run(words):
    parser = report.parser("lag", __doc__, rounds=200)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("lag", "Lags of the loop", facts, {"rounds": options.rounds})
    lags = {SEEN: [], HELD: []}
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        python_package.make_importable(folder)
        import genesis
        import numpy

        daemon = harness.Daemon(pathlib.Path(folder) / "data", "--workers-slots", "2")  # A worker gets one core.
        try:
            client, random = genesis.Client(daemon.grpc), numpy.random.default_rng(1)
            with client.append("loop") as buffer:
                for _ in range(40):
                    append(buffer, random)
                spec = harness.spec(max_steps=10**9)
                spec["dataset"] = {"replay": {"path": "loop", "follow": True}}
                job = client.submit(spec)
                harness.wait_for("its steps", lambda: job.refresh().progress.step > 100)
                with job.weights(interval=0) as versions:
                    for _ in range(options.rounds):
                        lags[SEEN].append(seen_after(job, buffer, random))
                        lags[HELD].append(held_after(job, versions))
            job.cancel(now=True)
        finally:
            daemon.stop()
    for name, values in lags.items():
        found.add({"name": name, "p50": spread.quantile(values, 0.5), "p99": spread.quantile(values, 0.99), "count": len(values)})
    found.text("Lags", table(found.rows))
    found.write(options.out)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "lag", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores.\n\n{table(found.rows)}")
