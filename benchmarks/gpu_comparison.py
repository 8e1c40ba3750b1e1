"""Compares one workload in one mode on the device: genesis-worker's two ways to execute a step, and the Python sides, in turn."""

import json
import re
import shutil
import statistics

import gpu_figures
import machine
import peers
import sides
import spread
from gpu_figures import GRAPH, OURS
from time_budget import TimeUp

CAPTURED = "step: captured in step "
# The losses of this many steps are compared one by one, later ones by their mean. The sides round differently, and long runs drift apart on
# a device that multiplies with 8 or 11 bits.
ONE_BY_ONE = 200
# A watched job starts with steps in FP32, whose memory would count, and may leave the measured mode.
UNWATCHED = {name: {"action": "OFF"} for name in ("overflow", "divergence", "slowdown")}
FEWEST_BLOCKS = 2
# Minimum number of steps between the first and the last timed line.
FEWEST_TIMED = 3
# genesis-worker prints at most ten lines of steps per second. A side that is faster than Python executes more steps, so that there are
# enough lines for timing.
MOST_STEPS = 50000


class NotRun(Exception):
    """A comparison that could not be measured here. The message is the reason."""


def compare(ours, theirs, mode):
    """Returns the largest difference of the losses of the common steps. Raises Refused if it is too large."""
    both = min(len(ours), len(theirs))
    worst = peers.compare_losses(ours[: min(both, ONE_BY_ONE)], theirs[: min(both, ONE_BY_ONE)], mode)
    if both > ONE_BY_ONE:
        means = [[statistics.fmean(each[ONE_BY_ONE:both])] for each in (ours, theirs)]
        worst = max(worst, peers.compare_losses(*means, mode))
    return worst


def asked(process, **request):
    """Sends a request to a Python side and returns the response. Raises Refused with its error."""
    answer = process.ask(**request)
    if "error" in answer:
        raise sides.Refused(answer["error"])
    return answer


def precision_of(mode, folder):
    """Returns the precision section of a job in this mode."""
    if not mode.startswith("MIXED"):
        return {"mode": "FP32", **({"tf32": "ON"} if mode == "TF32" else {})}
    baseline = folder / "baseline.jsonl"
    baseline.write_text('{"step": 1, "loss": 1}\n')
    return {"mode": mode, "watchdog": UNWATCHED, "baseline_file": str(baseline)}


def briefly(error):
    """Returns the first and the last line of a failed program's error."""
    lines = str(error).splitlines()
    return " ... ".join([lines[0], *lines[1:][-1:]])


def says_it_captured(output):
    """Raises Refused unless the last report of a run with --cuda-graphs says that the step was captured."""
    said = re.findall(r"^step: .*$", output, re.MULTILINE)
    if not said or not said[-1].startswith(CAPTURED):
        raise sides.Refused("genesis-worker --cuda-graphs does not say that it captured the step; its log has "
                            + (f'"{said[-1]}"' if said else 'no line that begins with "step: "'))


class Comparison:
    """A comparison of all sides for one workload in one mode.

    Args:
        processes: the Python sides that are available, and "machine".
        missing: why the others are not available.
    """

    def __init__(self, name, mode, folder, facts, processes, missing, options):
        self.name, self.mode, self.folder, self.facts = name, mode, folder, facts
        self.processes, self.options = dict(processes), options
        self.machine = self.processes.pop("machine")
        self.job = json.loads((folder / "job.json").read_text())
        self.cores = machine.os.sched_getaffinity(0)
        self.steadiness = machine.Steadiness(self.cores)
        self.missing = dict(missing)
        self.sides = [OURS, *([] if GRAPH in missing else [GRAPH]), *self.processes]
        self.refusals, self.blocks, self.deviation = {}, [], {}
        self.steps = {}

    def _run_worker(self, side):
        """Runs genesis-worker on the job, with the number of steps of this side."""
        precision = precision_of(self.mode, self.folder)
        job = {**self.job, "precision": precision,
               "training": {**self.job["training"], "max_steps": self.steps[side]}}
        flags = ["--cuda-graphs"] if side == GRAPH else []
        if self.options.device == "cpu" and self.mode == "MIXED_FP16":
            flags.append("--emulate-fp16")
        device = "cuda:0" if self.options.device == "cuda" else "cpu"
        folder = self.folder / "worker"
        try:
            run = sides.WorkerRun(folder, job, self.cores, *flags, device=device)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # The checkpoints take gigabytes.
        if f" on {device} (" not in run.output or run.modes != {precision["mode"]}:
            raise sides.Refused(f"genesis-worker ran in {run.modes}; its log begins: {run.output[:200]}")
        if side == GRAPH:
            says_it_captured(run.output)
        return run

    def _timed(self, run, side):
        """Returns the duration of the timed steps as the printed lines show it; 0 if there are too few."""
        warm_up = peers.warm_up_of(self.steps[side])
        timed = [(done, at) for done, at, _ in run.step_times() if done >= warm_up]
        return timed[-1][1] - timed[0][1] if timed and timed[-1][0] - timed[0][0] >= FEWEST_TIMED else 0.0

    def _ours(self, side):
        run = self._run_worker(side)
        while (took := self._timed(run, side)) < self.options.seconds / 3 and self.steps[side] < MOST_STEPS:
            longer = min(max(self.options.seconds / max(took, 0.01), 2), 8)
            self.steps[side] = min(int(self.steps[side] * longer), MOST_STEPS)
            run = self._run_worker(side)
        seconds, _ = run.per_step(peers.warm_up_of(self.steps[side]))
        peak = re.search(r"^peak device memory (\d+) bytes", run.output, re.MULTILINE)
        return {"losses": run.losses, "seconds": seconds,
                "skipped": sum(record["skipped"] for record in run.records),
                **({"peak_bytes": int(peak[1])} if peak else {})}

    def _theirs(self, side, steps=None, warm_up=None):
        steps = steps or self.steps[side]
        warm_up = warm_up or peers.warm_up_of(steps)
        answer = asked(self.processes[side], do="train", workload=self.name, folder=str(self.folder),
                       mode=self.mode, steps=steps, warm_up=warm_up)
        return {**answer, "seconds_of_all": answer["seconds"],
                "seconds": answer["seconds"] / answer["steps"]}

    def _choose_steps(self):
        """Loads and compiles the Python sides, and chooses the number of steps by the speed of the first of them."""
        for side in list(self.processes):
            self._try(side, lambda side=side: self._theirs(side, 2, 1))
        timed = next((side for side in self.sides if side in self.processes), None)
        if timed is None:
            raise NotRun("no Python side runs here, so there is nothing to compare with")

        def ask(steps, warm_up):
            trial = self._theirs(timed, steps, warm_up)
            return {"seconds": trial["seconds_of_all"], "steps": trial["steps"]}

        self.steps = dict.fromkeys(self.sides, peers.steps_that_fill(self.options.seconds, ask))

    def _try(self, side, call):
        """Returns the result of `call` for a side; None if it was refused, which excludes the side from later blocks."""
        try:
            return call()
        except (sides.Refused, RuntimeError) as refusal:
            self.refusals[side] = briefly(refusal)
            self.sides.remove(side)
            return None

    def _block(self, order):
        found = {}
        for side in order:
            self.steadiness.measure()
            got = self._try(side, lambda side=side: self._ours(side) if side in (OURS, GRAPH)
                            else self._theirs(side))
            if got:
                found[side] = got
        return found

    def _judge(self, found):
        if OURS not in found:
            raise sides.Refused(f"{OURS}, which it is compared with, was refused")
        for side in [side for side in found if side != OURS]:
            def differs(side=side):
                return compare(found[OURS]["losses"], found[side]["losses"], self.mode)

            worst = self._try(side, differs)
            if worst is not None:
                self.deviation[side] = max(self.deviation.get(side, 0.0), worst)

    def run(self):
        """Measures all blocks. Errors are reported in the rows."""
        try:
            self._choose_steps()
            for block in range(self.options.blocks):
                found = self._block(self.sides[:: 1 if block % 2 == 0 else -1])
                self._judge(found)
                format = gpu_figures.FORMAT[self.mode]
                limit = asked(self.machine, do="limits", formats=[format])[format]
                self.blocks.append({**found, "limit": limit})
        except TimeUp:
            if len(self.blocks) < FEWEST_BLOCKS:
                self.missing = dict.fromkeys(self.sides, "the time was up while it was measured (--limit)") \
                    | self.missing
        except NotRun as reason:
            self.missing = dict.fromkeys(self.sides, str(reason)) | self.missing
        except (sides.Refused, RuntimeError) as refusal:
            self.refusals = dict.fromkeys(self.sides, briefly(refusal)) | self.refusals

    def rows(self):
        for side in dict.fromkeys((OURS, GRAPH, *gpu_figures.PEERS)):
            row = {"name": f"{self.name}, {self.mode}: {side}", "workload": self.name, "mode": self.mode,
                   "side": side, "blocks": len(self.blocks)}
            if side in self.refusals:
                yield {**row, "refused": self.refusals[side]}
            elif side in self.missing:
                yield {**row, "not_run": self.missing[side]}
            else:
                yield {**row, **self._figures(side)}

    def _figures(self, side):
        runs = [block[side] for block in self.blocks]
        seconds = [run["seconds"] for run in runs]
        median = statistics.median(seconds)
        measured = statistics.median(block["limit"] for block in self.blocks)
        listed = gpu_figures.datasheet(self.facts["device"]).get(gpu_figures.FORMAT[self.mode])
        counted = self.facts["operations"]
        row = {"steps_per_block": self.steps[side], "warm_up_steps": peers.warm_up_of(self.steps[side]),
               "ms_per_step": spread.summary([1e3 * each for each in seconds]),
               "ms_of_blocks": [1e3 * each for each in seconds],
               "samples_per_second": self.facts["batch"] / median,
               "teraflops": counted / median / 1e12,
               "mfu": {"measured": gpu_figures.mfu(counted, median, measured),
                       **({"datasheet": gpu_figures.mfu(counted, median, listed)} if listed else {})},
               "skipped_steps": statistics.fmean(run["skipped"] for run in runs)}
        row["skipped_share"] = row["skipped_steps"] / self.steps[side]
        if all("peak_bytes" in run for run in runs):
            row["peak_mib"] = max(run["peak_bytes"] for run in runs) / 2**20
        if side in gpu_figures.PEERS:
            for ours, name in gpu_figures.FASTER.items():
                if ours in self.sides:
                    row[name] = gpu_figures.ratio(seconds, [block[ours]["seconds"] for block in self.blocks])
        if side != OURS:
            row["most_loss_difference"] = self.deviation[side]
        return row
