"""Compares the peak memory of a job in FP32 and in MIXED_BF16, in turn.

  benchmarks/run memory [--out DIR] [--rounds N]

It is the maximum resident memory of genesis-worker --spec. `gpu` measures GPU memory."""

import os
import tempfile

import charts
import machine
import report
import sides
import spread

MODES = ("FP32", "MIXED_BF16")
MIB = 2**20

JOBS = {
    # This job is almost empty, so it shows the memory of the program and its libraries.
    "floor": {
        "model": {"world_model": {"hidden_size": 8, "latent_size": 8}},
        "dataset": {"synthetic": {"trajectories": {"episodes": 10}}},
        "training": {"max_steps": 2, "batch_size": 8},
    },
    "transformer": {
        "model": {"transformer": {"vocabulary_size": 1024, "context_length": 128, "layers": 4,
                                  "heads": 4, "embedding_size": 192}},
        "dataset": {"synthetic": {"tokens": {"size": 16384}}},
        "training": {"max_steps": 2, "batch_size": 16},
    },
    "radio_unet": {
        "model": {"radio_unet": {"part": "DIFFUSION", "base_channels": 16,
                                 "channel_multipliers": [1, 2, 4]}},
        "dataset": {"synthetic": {"maps": {"maps": 32, "size": 64}}},
        "training": {"max_steps": 2, "batch_size": 8, "max_grad_norm": 0.5},
    },
}


def peak_mib(job, mode, cores):
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        run = sides.WorkerRun(folder, {**job, "precision": {"mode": mode}}, cores)
    if run.modes != {mode}:
        raise SystemExit(f"asked for {mode}, the job ran in {', '.join(sorted(run.modes))}:\n{run.output}")
    return run.peak_bytes / MIB


def measure(job, rounds, cores):
    """Returns {mode: MiB in each round}."""
    found = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            found[mode].append(peak_mib(job, mode, cores))
    return found


def row(name, peaks):
    fp32, mixed = (peaks[mode] for mode in MODES)
    return {"name": name, **{f"{mode}_mib": spread.summary(peaks[mode]) for mode in MODES},
            "change": spread.median_interval([b / a - 1 for a, b in zip(fp32, mixed)])}


def table(rows):
    lines = [f"{'job':14}" + "".join(f"{mode + ', MiB (quartiles)':>28}" for mode in MODES)
             + f"{'change (interval)':>28}"]
    for each in rows:
        lines.append(f"{each['name']:14}" + "".join(
            "{median:.0f} ({low:.0f} to {high:.0f})".format(**each[f"{mode}_mib"]).rjust(28) for mode in MODES)
            + "{median:+.1%} ({low:+.1%} to {high:+.1%})".format(**each["change"]).rjust(28))
    return "\n".join(lines)


def run(words):
    options = report.parser("memory", __doc__, rounds=3).parse_args(words)
    cores = os.sched_getaffinity(0)
    found = report.Report("memory", "Peak memory", machine.facts(**{
        "genesis-worker": machine.output_of(sides.worker(), "--version")}),
        {"rounds": options.rounds, "jobs": JOBS})
    for name, job in JOBS.items():
        found.add(row(name, measure(job, options.rounds, cores)))
    found.text("Most resident", table(found.rows))
    found.chart(charts.bars("Most resident", [
        (each["name"], [(mode, each[f"{mode}_mib"]) for mode in MODES]) for each in found.rows], "MiB"))
    found.write(options.out)
