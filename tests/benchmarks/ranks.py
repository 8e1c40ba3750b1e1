"""One job by as many ranks as there are cores, each with one thread, beside one process on one core, and beside
PyTorch's DistributedDataParallel with as many ranks; both started by torchrun, averaging by Gloo.

  tests/benchmarks/run ranks [--out DIR] [--rounds N] [--seconds S] [--workload NAME]... [--mode MODE]...

Each rank has the workload's batch, so that ranks of the ideal speed make steps as fast as one process."""

import json
import os
import pathlib
import subprocess
import tempfile

import charts
import machine
import peers
import report
import sides
import spread

WORKLOADS = ("world_model small", "world_model large", "transformer")
ALONE, OURS, THEIRS = "genesis-worker alone", "genesis-worker, ranks", "DistributedDataParallel, ranks"
FEWEST_STEPS = 12


def torchrun(count):
    return [sides.python_of_peers(), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]


class Comparison:
    """One workload in one mode."""

    def __init__(self, name, mode, folder, steadiness):
        self.name, self.mode, self.folder, self.steadiness = name, mode, folder, steadiness
        self.job = json.loads((folder / "job.json").read_text())
        self.cores = sorted(os.sched_getaffinity(0))
        self.seconds = {side: [] for side in (ALONE, OURS, THEIRS)}
        self.most_difference = 0.0

    def _ours(self, ranks, steps, **training):
        job = {**self.job, "precision": {"mode": self.mode},
               "training": {**self.job["training"], "max_steps": steps, "use_ddp": ranks > 1, **training}}
        cores = self.cores[:ranks]
        launcher = [*torchrun(ranks), "--no-python"] if ranks > 1 else []
        return sides.WorkerRun(self.folder / "worker", job, cores, threads=1, launcher=launcher)

    def _theirs(self, steps, warm_up):
        out = self.folder / "ddp.json"
        done = subprocess.run([*torchrun(len(self.cores)), sides.HERE / "ddp_side.py", self.folder, self.name, self.mode,
                               str(steps), str(warm_up), out], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-3000:])
        found = json.loads(out.read_text())
        return found["losses"], found["seconds"] / found["steps"]

    def run(self, rounds, seconds):
        trial = self._ours(1, peers.MOST_STEPS, time_limit_seconds=seconds)
        steps = max(FEWEST_STEPS, trial.records[-1]["step"])
        warm_up = peers.warm_up_of(steps)
        for number in range(rounds):
            self.steadiness.measure()
            losses = {}
            for side in self.seconds if number % 2 == 0 else reversed(self.seconds):
                if side == THEIRS:
                    losses[side], seconds = self._theirs(steps, warm_up)
                else:
                    run = self._ours(len(self.cores) if side == OURS else 1, steps)
                    losses[side], seconds = run.losses, run.per_step(warm_up)[0]
                self.seconds[side].append(seconds)
            self.most_difference = max(self.most_difference, peers.compare_losses(
                losses[OURS], losses[THEIRS], self.mode))

    def figures(self):
        count = len(self.cores)
        return {"ranks": count, **{side: spread.summary([1e3 * each for each in values])
                                   for side, values in self.seconds.items()},
                "speed_of_one": spread.median_interval(
                    [count * alone / ours for alone, ours in zip(self.seconds[ALONE], self.seconds[OURS])]),
                "ours_is_faster_by": spread.median_interval(
                    [theirs / ours for theirs, ours in zip(self.seconds[THEIRS], self.seconds[OURS])]),
                "most_loss_difference": self.most_difference}


def compare(name, mode, folder, options, steadiness):
    row = {"name": f"{name}, {mode}", "workload": name, "mode": mode}
    return sides.compared(row, Comparison(name, mode, folder, steadiness), options.rounds, options.seconds)


def table(rows):
    lines = [f"{'workload, mode':32}" + "".join(f"{side + ', ms':>36}" for side in (ALONE, OURS, THEIRS))
             + f"{'times the speed of one':>26}{'faster than theirs by':>26}"]
    for row in rows:
        if "refused" in row:
            lines.append(f"{row['name']:32}refused: {row['refused']}")
            continue
        lines.append(f"{row['name']:32}" + "".join(
            f"{peers.interval(row[side], 2):>36}" for side in (ALONE, OURS, THEIRS))
            + f"{peers.interval(row['speed_of_one'], 2):>26}{peers.interval(row['ours_is_faster_by'], 2):>26}")
    return "\n".join(lines)


def run(words):
    parser = report.parser("ranks", __doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=4, help="of training in a round. Default 4")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--mode", action="append", choices=peers.MODES, help="default: all")
    options = parser.parse_args(words)
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        parser.error("this process has one core; several ranks need one each")
    steadiness = machine.Steadiness(cores)
    found = report.Report("ranks", "One job by several ranks", machine.facts(**{
        "genesis-worker": machine.output_of(sides.worker(), "--version")}), {
        "rounds": options.rounds, "seconds in a round": options.seconds, "loss tolerance": peers.TOLERANCE})
    with tempfile.TemporaryDirectory(prefix="genesis-") as temporary:
        for number, name in enumerate(options.workload or WORKLOADS):
            folder = pathlib.Path(temporary) / f"workload{number}"
            folder.mkdir()
            maker = sides.PeerProcess(folder, cores, "prepare")
            maker.ask(workload=name, folder=str(folder))
            maker.stop()
            for mode in options.mode or peers.MODES:
                found.add(compare(name, mode, folder, options, steadiness))
    found.steadiness = steadiness.summary()
    found.text("A step", table(found.rows))
    compared = [row for row in found.rows if "refused" not in row]
    for figure, title in (("speed_of_one", "Samples a second over those of one process"),
                          ("ours_is_faster_by", "Time of DistributedDataParallel over ours")):
        found.chart(charts.bars(title, [("", [(row["name"], row[figure]) for row in compared])], "x", line=1))
    found.write(options.out)
    found.exit_if_refused()
