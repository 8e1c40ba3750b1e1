"""Measures one job with as many ranks as cores, each with one thread. torchrun starts the ranks.

  benchmarks/run ranks [--out DIR] [--rounds N] [--seconds S] [--workload NAME]... [--mode MODE]... [--page FILE]

The ranks exchange gradients through shared memory, with one copy of weights and optimizer (the default) or one copy each, or by Gloo.
They are compared with one process on one core, with as many independent processes at the same time, and with as many ranks of PyTorch's
DistributedDataParallel. Each rank has the workload's batch, so that ideal ranks execute steps as fast as one process. Independent
processes slow each other down only because they share the machine's memory, caches and other load. --page puts the table into a page,
between its marks."""

import concurrent.futures
import datetime
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

WORKLOADS = ("world_model small", "world_model large", "transformer", "radio_unet")
ALONE, BESIDE, OURS, COPIES, GLOO, THEIRS = "alone", "alone, at once", "ranks", "ranks, a copy each", "ranks, Gloo", "DDP"
SIDES = (ALONE, BESIDE, OURS, COPIES, GLOO, THEIRS)
FEWEST_STEPS = 12


def torchrun(count):
    return [sides.python_of_peers(), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]


class Comparison:
    """A comparison of all sides for one workload in one mode."""

    def __init__(self, name, mode, folder, steadiness):
        self.name, self.mode, self.folder, self.steadiness = name, mode, folder, steadiness
        self.job = json.loads((folder / "job.json").read_text())
        self.cores = sorted(os.sched_getaffinity(0))
        self.seconds = {side: [] for side in SIDES}
        self.most_difference = 0.0

    def _ours(self, ranks, steps, core=0, shared_memory=True, copies=False, **training):
        job = {**self.job, "precision": {"mode": self.mode},
               "training": {**self.job["training"], "max_steps": steps, "use_ddp": ranks > 1, **training}}
        if copies:
            job["distributed"] = {"shard_optimizer_state": False}
        cores = self.cores if ranks > 1 else self.cores[core:core + 1]
        switch = ["env", f"GENESIS_SHARED_MEMORY={json.dumps(shared_memory)}"]
        launcher = [*switch, *torchrun(ranks), "--no-python"] if ranks > 1 else []
        run = sides.WorkerRun(self.folder / f"worker{core}", job, cores, threads=1, launcher=launcher)
        if ranks > 1 and f", by {'shared memory' if shared_memory else 'Gloo'}" not in run.output:
            raise sides.Refused("the ranks exchange gradients in another way; the log has "
                                f"{[line for _, _, line in run.lines if line.startswith('gradients:')]}")
        return run

    def _beside(self, steps, warm_up):
        """Runs as many processes as cores at the same time, each with its own job. Returns the mean time of a step."""
        with concurrent.futures.ThreadPoolExecutor(len(self.cores)) as pool:
            runs = pool.map(lambda core: self._ours(1, steps, core), range(len(self.cores)))
            return sum(run.per_step(warm_up)[0] for run in runs) / len(self.cores)

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
                elif side == BESIDE:
                    seconds = self._beside(steps, warm_up)
                else:
                    run = self._ours(1 if side == ALONE else len(self.cores), steps, shared_memory=side != GLOO,
                                     copies=side == COPIES)
                    losses[side], seconds = run.losses, run.per_step(warm_up)[0]
                self.seconds[side].append(seconds)
            for side in OURS, COPIES, GLOO:
                self.most_difference = max(self.most_difference, peers.compare_losses(
                    losses[side], losses[THEIRS], self.mode))

    def _ratio(self, side, other):
        return spread.median_interval([b / a for a, b in zip(self.seconds[side], self.seconds[other])])

    def figures(self):
        return {"count": len(self.cores), **{side: spread.summary([1e3 * each for each in values])
                                   for side, values in self.seconds.items()},
                "efficiency": self._ratio(OURS, ALONE), "efficiency_of_copies": self._ratio(COPIES, ALONE),
                "of_the_machine": self._ratio(OURS, BESIDE),
                "faster_than_gloo": self._ratio(OURS, GLOO), "ours_is_faster_by": self._ratio(OURS, THEIRS),
                "gloo_is_faster_by": self._ratio(GLOO, THEIRS),
                "most_loss_difference": self.most_difference}


def compare(name, mode, folder, options, steadiness):
    row = {"name": f"{name}, {mode}", "workload": name, "mode": mode}
    return sides.compared(row, Comparison(name, mode, folder, steadiness), options.rounds, options.seconds)


COLUMNS = {"efficiency": "of one process", "efficiency_of_copies": "of one, a copy each", "of_the_machine": "of processes at once",
           "faster_than_gloo": "than Gloo", "ours_is_faster_by": "than DDP"}


def table(rows):
    lines = [f"{'workload, mode':32}" + "".join(f"{side + ', ms':>24}" for side in SIDES)
             + "".join(f"{title:>24}" for title in COLUMNS.values())]
    for row in rows:
        if "refused" in row:
            lines.append(f"{row['name']:32}refused: {row['refused']}")
            continue
        lines.append(f"{row['name']:32}" + "".join(f"{peers.interval(row[side], 1):>24}" for side in SIDES)
                     + "".join(f"{peers.interval(row[figure], 2):>24}" for figure in COLUMNS))
    return "\n".join(lines)


def page_table(rows, facts, rounds):
    """Returns the table for the page."""
    lines = [f"{facts['processor']}, {rows[0]['count']} cores; {datetime.date.today()}; medians of {rounds} rounds, ratios with their "
             "95 % interval.", "",
             "| workload | alone | at once | ranks | a copy each | by Gloo | DDP | efficiency | a copy each | of processes at once | "
             "faster than DDP by |",
             "|" + "---|" * 11]
    for row in rows:
        times = [f"{row[side]['median']:.3g} ms" for side in SIDES]
        ratios = [f"{row[figure]['median']:.2f} ({row[figure]['low']:.2f} to {row[figure]['high']:.2f})"
                  for figure in ("efficiency", "efficiency_of_copies", "of_the_machine", "ours_is_faster_by")]
        lines.append(f"| {' | '.join([row['name'], *times, *ratios])} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("ranks", __doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=4, help="of training in a round. Default 4")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--mode", action="append", choices=peers.MODES, help="default: all")
    parser.add_argument("--page", type=pathlib.Path, help="page whose sentence is written anew, and benchmarks/ranks.csv beside it for the table")
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
                # Rows are printed when they are measured, because a run is long and may be interrupted.
                print(table(found.rows).splitlines()[-1], flush=True)
    found.steadiness = steadiness.summary()
    found.text("A step", table(found.rows))
    compared = [row for row in found.rows if "refused" not in row]
    for figure, title in (("efficiency", "Time of a step of one process over that of the ranks"),
                          ("ours_is_faster_by", "Time of DistributedDataParallel over ours")):
        found.chart(charts.bars(title, [("", [(row["name"], row[figure]) for row in compared])], "x", line=1))
    found.write(options.out)
    if options.page is not None and compared:
        report.document_with_rows(options.page, "ranks", page_table(compared, found.facts, options.rounds))
    found.exit_if_refused()
