"""Compares the compiled step with the eager one, for other sizes than `peers`.

  benchmarks/run compiled-step [--out DIR] [--rounds N] [--seconds S] [--workload NAME]... [--mode MODE]...

A round trains the same job in both ways, one after the other; which comes first alternates. The first quarter of the steps is dropped. A
comparison is refused if the losses differ."""

import json
import os
import pathlib
import re
import tempfile

import charts
import machine
import peers
import report
import sides
import spread


def world(hidden, latent):
    return {"model": {"world_model": {"hidden_size": hidden, "latent_size": latent}},
            "dataset": {"synthetic": {"trajectories": {}}}}


# (job without its training section, batch size).
WORKLOADS = {
    "world_model 256, batch 128": (world(256, 64), 128),
    "world_model 256, batch 32": (world(256, 64), 32),
    "world_model 2048, batch 512": (world(2048, 512), 512),
    "transformer 6x384, batch 4": ({
        "model": {"transformer": {"vocabulary_size": 4096, "context_length": 128, "layers": 6,
                                  "heads": 6, "embedding_size": 384}},
        "dataset": {"synthetic": {"tokens": {}}}}, 4),
    "radio_unet 32 at 32x32, batch 8": ({
        "model": {"radio_unet": {"base_channels": 32, "channel_multipliers": [1, 2, 2]}},
        "dataset": {"synthetic": {"maps": {"size": 32}}}}, 8),
}
WAYS = ("eager", "compiled")
# In BF16, two runs that round differently drift apart, the more so the longer they are.
FEWEST_STEPS, MOST_STEPS = 12, 256


class Comparison:
    """A comparison of the compiled step with the eager one for one workload in one mode."""

    def __init__(self, name, mode, folder, steadiness):
        self.name, self.mode, self.steadiness = name, mode, steadiness
        self.folder = pathlib.Path(folder)
        self.cores = os.sched_getaffinity(0)
        self.seconds = {way: [] for way in WAYS}
        self.most_difference = 0.0
        path = self.folder / "compile.json"
        path.write_text(json.dumps(self._job(1)))
        sides.compile_step(path, self.folder / "compiled")

    def _job(self, steps, **training):
        settings, batch = WORKLOADS[self.name]
        return {**settings, "precision": {"mode": self.mode},
                "training": {"max_steps": steps, "batch_size": batch, "seed": 7, **training}}

    def _train(self, way, steps, **training):
        flags = ["--compiled-dir", self.folder / "compiled"] if way == "compiled" else []
        run = sides.WorkerRun(self.folder / "worker", self._job(steps, **training), self.cores, *flags)
        if ("\nstep: compiled" in run.output) != (way == "compiled") or run.modes != {self.mode}:
            raise sides.Refused(f"the steps of {way} were made otherwise, in {', '.join(sorted(run.modes))}: "
                                f"{re.findall('^step: .*', run.output, re.MULTILINE)}")
        return run

    def run(self, rounds, seconds):
        trial = self._train("eager", MOST_STEPS, time_limit_seconds=seconds)
        steps = max(FEWEST_STEPS, trial.records[-1]["step"])
        for number in range(rounds):
            self.steadiness.measure()
            losses = {}
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                run = self._train(way, steps)
                self.seconds[way].append(run.per_step(peers.warm_up_of(steps))[0])
                losses[way] = run.losses
            self.most_difference = max(self.most_difference, peers.compare_losses(
                losses["eager"], losses["compiled"], self.mode))

    def figures(self):
        ratios = [eager / compiled for eager, compiled in zip(*self.seconds.values())]
        return {**{f"{way}_ms": spread.summary([1e3 * each for each in self.seconds[way]]) for way in WAYS},
                "compiled_is_faster_by": spread.median_interval(ratios),
                "most_loss_difference": self.most_difference}


def compare(name, mode, options, steadiness):
    row = {"name": f"{name}, {mode}", "workload": name, "mode": mode}
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        return sides.compared(row, Comparison(name, mode, folder, steadiness), options.rounds, options.seconds)


def table(rows):
    lines = [f"{'workload, mode':46}{'eager, ms':>24}{'compiled, ms':>24}{'faster by':>20}{'loss diff.':>12}"]
    for row in rows:
        if "refused" in row:
            lines.append(f"{row['name']:46}refused: {row['refused']}")
            continue
        lines.append(f"{row['name']:46}" + "".join(f"{peers.interval(row[f'{way}_ms'], 2):>24}" for way in WAYS)
                     + f"{peers.interval(row['compiled_is_faster_by'], 2):>20}{row['most_loss_difference']:12.1e}")
    return "\n".join(lines)


def run(words):
    parser = report.parser("compiled-step", __doc__, rounds=6)
    parser.add_argument("--seconds", type=float, default=3, help="of training each way in a round. Default 3")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--mode", action="append", choices=peers.MODES, help="default: all")
    options = parser.parse_args(words)
    sides.python_of_peers()
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    found = report.Report("compiled-step", "The compiled step beside the eager one", machine.facts(**{
        "genesis-worker": machine.output_of(sides.worker(), "--version")}), {
        "rounds": options.rounds, "seconds each way in a round": options.seconds,
        "loss tolerance": peers.TOLERANCE, "OMP_WAIT_POLICY": sides.waiting()})
    for name in options.workload or WORKLOADS:
        for mode in options.mode or peers.MODES:
            found.add(compare(name, mode, options, steadiness))
    found.steadiness = steadiness.summary()
    found.text("A step", table(found.rows))
    compared = [row for row in found.rows if "refused" not in row]
    found.chart(charts.bars("Time of an eager step over that of a compiled one", [
        ("", [(row["name"], row["compiled_is_faster_by"]) for row in compared])], "x", line=1))
    found.write(options.out)
    found.exit_if_refused()
