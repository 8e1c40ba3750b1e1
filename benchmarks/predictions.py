"""Measures how soon Predict responds beside a training job.

  benchmarks/run predictions [--out DIR] [--rounds N] [--seconds N] [--rate N] [--document docs/benchmarks/daemon.md]

A world model trains on one core. In a round, calls of one transition each begin at a fixed rate, whether the ones before have ended or not; the time of a
call begins when it was due. Then rollouts of 256 plans of 20 steps follow one another, beside the same rollouts by torch in the caller's process with one
thread. Needs torch and numpy, as the Python of the tests has them."""

import concurrent.futures
import pathlib
import sys
import tempfile
import time

import harness
import machine
import python_package
import report
import spread

THREADS = 32  # More than the number of calls that are ever open at once.
PLANS, STEPS = 256, 20
ROLLOUT_SECONDS = 3.0


def submit(client):
    spec = harness.spec(max_steps=10**9)
    spec["model"]["world_model"] = {}  # Default sizes.
    return client.submit(spec)


def latency(job, rate, seconds):
    """Returns the percentiles of calls at a fixed rate. Milliseconds."""
    import numpy

    inputs = {"observation": numpy.ones((1, 3), "float32"), "action": numpy.ones((1, 1), "float32")}
    begin = time.monotonic() + 0.1

    def call(number):
        due = begin + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        job.predict(inputs)
        return time.monotonic() - due

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        times = list(pool.map(call, range(int(rate * seconds))))
    return {"p50": 1e3 * spread.quantile(times, 0.5), "p99": 1e3 * spread.quantile(times, 0.99)}


def rollouts(function):
    begin, count = time.monotonic(), 0
    while (elapsed := time.monotonic() - begin) < ROLLOUT_SECONDS:
        function()
        count += 1
    return count / elapsed


def by_torch(job, observation, action):
    """Returns a function that rolls out with the job's weights in this process."""
    import torch

    sys.path.insert(0, str(harness.SOURCE / "trainer" / "compiled" / "python"))
    from twins.world_model import WorldModel

    torch.set_num_threads(1)
    twin = WorldModel(3, 1, 256, 64)
    next(job.weights()).load_into(twin)

    @torch.no_grad()
    def roll():
        at, actions = torch.tensor(observation).expand(PLANS, 3), torch.tensor(action)
        rewards = []
        for step in range(STEPS):
            ((change, reward, _),) = twin.predictions({"observation": at.unsqueeze(1), "action": actions[:, step:step + 1]})
            at = at + change[:, 0] * twin.change_std + twin.change_mean
            rewards.append(reward * twin.reward_std + twin.reward_mean)
        return torch.cat(rewards, 1).numpy()

    return roll


def table(rows, options):
    lines = ["| | |", "| --- | --- |"]
    named = {row["name"]: row["spread"] for row in rows}
    lines.append("| one transition, {} calls/s | p50 {:.2f} ms, p99 {:.2f} ms |".format(options.rate, named["p50"]["median"], named["p99"]["median"]))
    lines.append("| {} plans of {} steps | {:.1f}/s, {:.2f} of torch in the caller's process |".format(
        PLANS, STEPS, named["rollouts"]["median"], named["of torch"]["median"]))
    return "\n".join(lines)


def run(words):
    parser = report.parser("predictions", __doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=15, help="of calls at a fixed rate in a round. Default 15")
    parser.add_argument("--rate", type=float, default=200, help="calls per second. Default 200")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("predictions", "How soon Predict responds", facts, {"rounds": options.rounds, "seconds": options.seconds, "rate": options.rate})
    rounds = []
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        python_package.make_importable(folder)
        import genesis
        import numpy

        daemon = harness.Daemon(pathlib.Path(folder) / "data", "--workers-slots", "2")  # A worker gets one core.
        try:
            job = submit(genesis.Client(daemon.grpc))
            harness.wait_for("its steps", lambda: job.refresh().progress.step > 100)
            observation = numpy.ones((1, 3), "float32")
            action = numpy.random.default_rng(1).normal(size=(PLANS, STEPS, 1)).astype("float32")
            local = by_torch(job, observation, action)
            job.predict({"observation": observation, "action": action})  # Starts the process that predicts, so that no round pays for it.
            for _ in range(options.rounds):
                row = latency(job, options.rate, options.seconds)
                row["rollouts"] = rollouts(lambda: job.predict({"observation": observation, "action": action}))
                row["of torch"] = row["rollouts"] / rollouts(local)
                rounds.append(row)
                print({name: round(value, 3) for name, value in row.items()}, flush=True)
            job.cancel(now=True)
        finally:
            daemon.stop()
    for name in rounds[0]:
        found.add({"name": name, "spread": spread.summary([each[name] for each in rounds])})
    found.text("Predictions", table(found.rows, options))
    found.write(options.out)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "predictions", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores, {options.rounds} rounds "
                        f"beside a training job; medians.\n\n{table(found.rows, options)}")
