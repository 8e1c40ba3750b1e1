"""Compares genesis-worker, eager and with a compiled step, with Python: torch eager with torch.amp, torch.compile, Lightning Fabric and
Hugging Face Accelerate.

  benchmarks/run peers [--out DIR] [--blocks N] [--seconds S] [--workload NAME]... [--mode MODE]...

All sides train one after the other with the same models, weights, batches, optimizer, threads and cores. A block trains each side once
from the same weights, in an order that each block reverses. The first steps of a block and the whole first block are dropped. A side
whose losses differ from genesis-worker's is refused."""

import json
import os
import re
import statistics
import tempfile

import charts
import machine
import processor
import report
import sides
import spread

OURS = "genesis-worker"
COMPILED = "ours, compiled"
# genesis-worker's ways to execute a step, and the key in a peer's row for the peer's time divided by theirs.
FASTER = {OURS: "ours_is_faster_by", COMPILED: "compiled_is_faster_by"}
WORKLOADS = ("world_model small", "world_model large", "transformer", "radio_unet", "exported")
MODES = ("FP32", "MIXED_BF16")
PEERS = ("torch eager", "torch.compile", "Lightning Fabric", "Accelerate")
# Maximum relative difference of a loss at any step of a block.
TOLERANCE = {"FP32": 2e-3, "TF32": 1e-2, "MIXED_FP16": 5e-2, "MIXED_BF16": 5e-2}
# Number of steps whose mean is compared in mixed precision. Rounding separates single steps long before it changes the course of the
# losses.
STEPS_OF_MEAN = {"MIXED_FP16": 32, "MIXED_BF16": 32}
# Workloads for which genesis-worker uses one thread however many there are (trainer/runtime/threads.h), so peers use one too.
ONE_THREAD = ("world_model small", "exported")
FEWEST_STEPS, MOST_STEPS = 6, 3000


def arguments(words):
    parser = report.parser("peers", __doc__)
    parser.add_argument("--blocks", type=report.repeats, default=8, help="measured blocks. Default 8")
    parser.add_argument("--seconds", type=float, default=6, help="of training in a block. Default 6")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    return parser.parse_args(words)


def compare_losses(ours, theirs, mode, tolerance=None):
    """Returns the largest relative difference of losses. Raises Refused if it exceeds `tolerance`, by default that of the mode."""
    accepted = TOLERANCE[mode] if tolerance is None else tolerance
    if len(ours) != len(theirs):
        raise sides.Refused(f"{len(theirs)} losses beside our {len(ours)}")
    count = STEPS_OF_MEAN.get(mode, 1)
    worst, step, our, their = max(
        (abs(b - a) / abs(a) if a == a and b == b else float("inf"), i * count + 1, a, b)
        for i, (a, b) in enumerate(zip(means(ours, count), means(theirs, count))))
    if worst > accepted:
        raise sides.Refused(
            f"losses differ by {worst:.2g} of ours {f'from step {step} on' if count > 1 else f'at step {step}'} "
            f"({their:.6g} beside {our:.6g}); at most {accepted:.2g} is accepted in {mode}: the sides "
            "do not do the same work, so their times say nothing")
    return worst


def means(losses, count):
    """Returns the mean of each `count` values, and of the remaining ones."""
    return [statistics.fmean(losses[i:i + count]) for i in range(0, len(losses), count)]


def steps_that_fill(seconds, ask):
    """Returns the number of steps that fill a block, measured on the side behind `ask`. All sides run this number."""
    steps, trial = 2, {"seconds": 0.0}
    while trial["seconds"] < seconds / 10 and steps < MOST_STEPS:
        steps *= 2
        trial = ask(steps=steps, warm_up=steps // 2)
    wanted = seconds / (trial["seconds"] / trial["steps"])
    return int(min(max(wanted, FEWEST_STEPS), MOST_STEPS))


def warm_up_of(steps):
    """Returns the number of steps at the start of a block that are dropped."""
    return max(2, steps // 4)


class Comparison:
    """A comparison of all sides for one workload in one mode, over several blocks."""

    def __init__(self, name, mode, folder, job, facts, options):
        self.name, self.mode, self.job, self.facts = name, mode, job, facts
        self.folder, self.options = folder, options
        cores = sorted(os.sched_getaffinity(0))
        self.cores = cores[:1] if name in ONE_THREAD else cores
        self.steadiness = machine.Steadiness(self.cores)
        self.peers = PEERS
        self.seconds = {side: [] for side in (*FASTER, *self.peers)}
        self.processor_seconds = {side: [] for side in self.seconds}
        self.deviation = {side: 0.0 for side in self.seconds if side != OURS}
        self.limits, self.refusals, self.unequal = [], {}, 0

    def _job(self, steps):
        return {**self.job, "precision": {"mode": self.mode},
                "training": {**self.job["training"], "max_steps": steps}}

    def _compile(self):
        job = self.folder / "compile.json"
        job.write_text(json.dumps(self._job(1)))
        sides.compile_step(job, self.folder / "compiled")

    def _ours(self, side, steps, warm_up):
        flags = ["--compiled-dir", self.folder / "compiled"] if side == COMPILED else []
        run = sides.WorkerRun(self.folder / "worker", self._job(steps), self.cores, *flags)
        if run.modes != {self.mode}:
            raise sides.Refused(f"genesis-worker ran in {run.modes}, not in {self.mode}")
        if ("\nstep: compiled" in run.output) != (side == COMPILED):
            raise sides.Refused("genesis-worker made its steps in another way; its log has "
                                f"{re.findall('^step: .*', run.output, re.MULTILINE)}")
        self.priorities |= run.priorities
        return run.losses, *run.per_step(warm_up)

    def _block(self, processes, steps, warm_up, order):
        found, self.priorities = {}, set()
        for side in order:
            self.steadiness.measure()
            if side in FASTER:
                found[side] = self._ours(side, steps, warm_up)
            else:
                answer = processes[side].ask(steps=steps, warm_up=warm_up)
                self.priorities.add(sides.priority(processes[side].process.pid))
                found[side] = (answer["losses"], answer["seconds"] / answer["steps"],
                               answer["processor_seconds"] / answer["steps"])
        return found

    def _judge(self, found):
        for side in self.deviation:
            try:
                worst = compare_losses(found[OURS][0], found[side][0], self.mode)
                self.deviation[side] = max(self.deviation[side], worst)
            except sides.Refused as refusal:
                self.refusals[side] = str(refusal)

    def run(self):
        formats = ["FP32"] + (["BF16"] if processor.multiplies_bf16() else [])
        self._compile()
        started = {}
        try:
            for side in self.peers:
                started[side] = sides.PeerProcess(self.folder, self.cores, side, self.name,
                                                  str(self.folder), self.mode)
            limit = started["limit"] = sides.PeerProcess(self.folder, self.cores, "limit")
            # Waits until all sides have loaded and compiled, so that they leave the cores idle.
            for side in self.peers:
                started[side].ask(steps=2, warm_up=1)
            limit.ask(formats=[])
            self.steps = steps_that_fill(self.options.seconds, started["torch eager"].ask)
            self.warm_up = warm_up_of(self.steps)
            for block in range(self.options.blocks + 1):
                order = [*FASTER, *self.peers]
                found = self._block(started, self.steps, self.warm_up,
                                    order if block % 2 == 0 else order[::-1])
                self._judge(found)
                if block == 0 or not self._equal(block):
                    continue
                for side, (_, seconds, used) in found.items():
                    self.seconds[side].append(seconds)
                    self.processor_seconds[side].append(used)
                self.limits.append(limit.ask(formats=formats))
        finally:
            for process in started.values():
                process.stop()

    def _equal(self, block):
        """Returns whether all sides had the same priority during the block. Other processes may change it."""
        if len(self.priorities - {None}) > 1:
            self.unequal += 1
            print(f"{self.name}, {self.mode}: block {block} is dropped, for the sides had different "
                  f"priorities (nice {', '.join(map(str, sorted(self.priorities - {None})))})",
                  flush=True)
            return False
        return True

    def rows(self):
        if not self.limits:
            reason = ("in every block the sides had different priorities; run it where nobody changes "
                      "the niceness of processes")
            self.refusals = {side: reason for side in self.seconds}
        limit = self._limit()
        for side, seconds in self.seconds.items():
            row = {"name": f"{self.name}, {self.mode}: {side}", "workload": self.name,
                   "mode": self.mode, "side": side, "threads": len(self.cores),
                   "steps_per_block": self.steps, "warm_up_steps": self.warm_up,
                   "blocks": len(self.limits), "dropped_blocks": self.unequal}
            if side in self.refusals:
                yield {**row, "refused": self.refusals[side]}
                continue
            median = spread.summary(seconds)["median"]
            used = self.processor_seconds[side]
            yield {**row, "ms_per_step": spread.summary([1e3 * s for s in seconds]),
                   "processor_ms_per_step": spread.summary([1e3 * s for s in used]),
                   "samples_per_second": self.facts["batch"] / median,
                   "gflops": self.facts["operations"] / median / 1e9,
                   **({"share_of_limit": self.facts["operations"] / median / 1e9 / limit["gflops"],
                       "limit": limit} if limit else {}),
                   **(self._beside_ours(side) if side in self.peers else {}),
                   **({"most_loss_difference": self.deviation[side]} if side != OURS else {})}

    def _beside_ours(self, side):
        def ratio(figures, ours):
            return spread.median_interval([a / b for a, b in zip(figures[side], figures[ours])])

        return {**{name: ratio(self.seconds, ours) for ours, name in FASTER.items()
                   if ours not in self.refusals},
                "ours_uses_less_processor_by": ratio(self.processor_seconds, OURS)}

    def _limit(self):
        """Returns the measured peak of the workload's kind of operation; None if it was not measured."""
        kind = "convolution" if self.facts["convolutions"] else "GEMM"
        format = "FP32" if self.mode == "FP32" else "BF16"
        values = [each[format][kind] for each in self.limits if format in each]
        if not values:
            return None
        return {"kind": f"{kind} in {format}", "gflops": spread.summary(values)["median"]}


def interval(value, digits=3):
    return (f"{value['median']:.{digits}f} ({value['low']:.{digits}f}-"
            f"{value['high']:.{digits}f})")


def table(rows):
    """Returns a table with a line per side. Ratios are the peer's time, or processor time, divided by genesis-worker's."""
    ratios = {FASTER[OURS]: "ours faster by", FASTER[COMPILED]: "compiled faster by",
              "ours_uses_less_processor_by": "less processor by"}
    lines = [f"{'workload, mode':31}{'side':18}{'ms per step':>25}"
             + "".join(f"{title:>22}" for title in ratios.values())
             + f"{'of limit':>10}{'loss diff.':>12}"]
    for row in rows:
        head = f"{row['workload'] + ', ' + row['mode']:31}{row['side']:18}"
        if "refused" in row:
            lines.append(f"{head}refused: {row['refused']}")
            continue
        line = head + f"{interval(row['ms_per_step']):>25}"
        for name in ratios:
            line += f"{interval(row[name], 2) if name in row else '':>22}"
        line += f"{row['share_of_limit']:10.0%}" if "share_of_limit" in row else " " * 10
        lines.append(line + (f"{row['most_loss_difference']:12.1e}" if row["side"] != OURS else ""))
    return "\n".join(lines)


def plot(found, mode):
    rows = [row for row in found.rows if row["mode"] == mode]
    groups = {}
    for row in rows:
        for ours, ratio in FASTER.items():
            if ratio in row:
                label = f"{row['side']} / {'compiled' if ours == COMPILED else 'eager'}"
                groups.setdefault(row["workload"], []).append((label, row[ratio]))
    if groups:
        found.chart(charts.bars(f"Time of a step over ours, {mode} (longer than the line: ours is "
                                "faster)", list(groups.items()), "x", line=1))


def run(words):
    options = arguments(words)
    # Fail early if the peers' Python is missing, not an hour into the run.
    sides.python_of_peers()
    worker = sides.worker()
    found = None
    with tempfile.TemporaryDirectory(prefix="genesis-") as temporary:
        for number, name in enumerate(options.workload or WORKLOADS):
            folder = sides.pathlib.Path(temporary) / f"workload{number}"
            folder.mkdir()
            cores = os.sched_getaffinity(0)
            maker = sides.PeerProcess(folder, cores, "prepare")
            facts = maker.ask(workload=name, folder=str(folder))
            maker.stop()
            if found is None:
                found = report.Report("peers", "genesis-worker beside Python", machine.facts(
                    **facts["versions"], **{"genesis-worker": machine.output_of(
                        worker, "--version")}), {
                    "blocks": options.blocks, "seconds_per_block": options.seconds,
                    "loss tolerance": TOLERANCE,
                    "OMP_WAIT_POLICY": sides.waiting()})
            job = json.loads((folder / "job.json").read_text())
            for mode in options.mode or MODES:
                comparison = Comparison(name, mode, folder, job, facts, options)
                comparison.run()
                rows = list(comparison.rows())
                for row in rows:
                    found.add(row)
                found.steadiness[f"{name}, {mode}"] = comparison.steadiness.summary()
                print(table(rows), flush=True)
    for mode in options.mode or MODES:
        plot(found, mode)
    found.text("All", table(found.rows))
    found.write(options.out)
    found.exit_if_refused()
