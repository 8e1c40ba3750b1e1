"""Measures how often the watchdog of reduced precision is wrong, with real runs of genesis-worker, healthy ones and ones with an injected
fault, which are judged by their logs.

  benchmarks/run watchdog [--out DIR] [--runs N] [--quick] [--parallel N] [--document FILE] [--read FILE]

In healthy runs the watchdog enforces, as it does by default, and every rollback is a false alarm. In runs with a fault it only advises, so
that they continue, and their own losses show from which step on the loss exceeded that of the same run without the fault, and by how
much. Each result is appended to watchdog-runs.jsonl immediately. --read evaluates such a file again, even that of an interrupted run.
--document puts the table into a page, between its two marks, and the runs into benchmarks/watchdog.csv beside it.
"""

import collections
import concurrent.futures
import csv
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import processor
import report
import sides

EXAMPLES = pathlib.Path(os.environ["GENESIS_SOURCE"]) / "examples"
INCIDENT = re.compile(r"incident \((\w+)\) at step (\d+): (.*)")
CHANGE = re.compile(r"precision changes from (\w+) to (\w+) after step (\d+) \((\w+)\)")
WINDOW = 50
SLOW = 0.8
FEW = 60  # Steps of the jobs that time the start; more than the warmup_steps of any workload.
MODES = ("MIXED_BF16", "BF16")
TRAJECTORIES = str(EXAMPLES / "trajectories")


def world_model(data, hidden, batch, steps, **training):
    return {"model": {"world_model": {"hidden_size": hidden, "latent_size": hidden // 2}}, "dataset": data,
            "training": {"max_steps": steps, "batch_size": batch, **training},
            "optimizer": {"learning_rate": 1e-3}}


def recorded(name):
    return {"trajectories": {"path": f"{TRAJECTORIES}/{name}.npz"}}


WORKLOADS = {
    "pendulum": world_model(recorded("pendulum"), 32, 64, 1500),
    "pendulum, long": world_model(recorded("pendulum"), 32, 64, 6000),
    "pendulum, example": world_model(recorded("pendulum"), 64, 256, 1500),
    "pendulum, wide": world_model(recorded("pendulum"), 512, 128, 200),
    "cartpole": world_model(recorded("cartpole"), 32, 64, 1200),
    "synthetic trajectories": world_model({"synthetic": {"trajectories": {"episodes": 64}, "seed": 1}}, 32, 64, 800),
    "transformer": {
        "model": {"transformer": {"vocabulary_size": 32, "context_length": 16, "layers": 1, "heads": 2,
                                  "embedding_size": 32}},
        "dataset": {"synthetic": {"tokens": {"size": 32768}}},
        "training": {"max_steps": 900, "batch_size": 16},
        "optimizer": {"learning_rate": 3e-3, "schedule": {"kind": "COSINE", "warmup_steps": 50}}},
    "radio_unet": {
        "model": {"radio_unet": {"part": "DIFFUSION", "base_channels": 8, "channel_multipliers": [1, 2]}},
        "dataset": {"synthetic": {"maps": {"maps": 64, "size": 16}}},
        "training": {"max_steps": 200, "batch_size": 4, "max_grad_norm": 0.5},
        "optimizer": {"learning_rate": 1e-4}},
}
# Relative numbers of healthy runs, then of runs with a fault.
SHARES = {"pendulum": 6, "pendulum, long": 1, "pendulum, example": 1, "pendulum, wide": 3, "cartpole": 3,
          "synthetic trajectories": 3, "transformer": 3, "radio_unet": 1}
FAULT_WORKLOADS = {"pendulum": 4, "cartpole": 3, "synthetic trajectories": 3, "transformer": 3, "pendulum, example": 1}
HALF = {"mode": "MIXED_FP16"}  # Emulated and slow, and therefore used only with the smallest model.


class Fault(collections.namedtuple("Fault", "share rehearsal drift precision", defaults=(None, {}))):
    """A fault that is injected into runs.

    `drift` is the relative size of a fault in the loss itself, from its first step on; None for a fault that shows only by its effect on
    the weights."""


FAULTS = {
    "drift 5 %": Fault(1, {"kind": "SPIKE", "amount": 1.05}, 0.05),
    "drift 10 %": Fault(2, {"kind": "SPIKE", "amount": 1.10}, 0.10),
    "drift 20 %": Fault(4, {"kind": "SPIKE", "amount": 1.20}, 0.20),
    "drift 50 %": Fault(2, {"kind": "SPIKE", "amount": 1.50}, 0.50),
    "stale weights": Fault(2, {"kind": "STALE"}),
    "saturated gradients": Fault(1, {"kind": "SATURATE", "amount": 1e-4}),
    "saturated gradients, emulated FP16": Fault(1, {"kind": "SATURATE", "amount": 100}, precision=HALF),
    "lost gradients": Fault(2, {"kind": "UNDERFLOW", "amount": 3e-3}),
    "weights cut, not rounded": Fault(2, {"kind": "TRUNCATE", "amount": 7}),
    "poisoned batches": Fault(2, {"kind": "POISON", "amount": 0.3}),
    "a loss scale too low, emulated FP16": Fault(1, None, precision={
        **HALF, "loss_scale": 1e-5, "min_loss_scale": 1e-6, "growth_interval": 1000000}),
    "a loss scale that is stuck, emulated FP16": Fault(1, {"kind": "INF"}, math.inf, {
        **HALF, "loss_scale": 16, "min_loss_scale": 1e-30}),
}


class Case(collections.namedtuple("Case", "kind workload mode seed baseline fault at busy")):
    """A run. `baseline` is "own" (the same job in FP32), "other" (with another seed) or "none"."""

    def job(self, baselines):
        job = json.loads(json.dumps(WORKLOADS[self.workload]))
        job["training"]["seed"] = self.seed
        job["precision"] = {"mode": self.mode, "fallbacks": ["FP32"] if self.mode != "FP32" else []}
        job["checkpoint"] = {"every_steps": 0}
        if self.kind == "start":
            job["training"]["max_steps"] = FEW
        if self.baseline != "none" and self.mode != "FP32":
            seed = self.seed if self.baseline == "own" else self.seed + 1
            job["precision"]["baseline_file"] = str(baselines[self.workload, seed])
        if self.fault:
            fault, steps = FAULTS[self.fault], job["training"]["max_steps"]
            job["precision"] |= fault.precision
            job["precision"]["watchdog"] = {"divergence": {"action": "ADVISE"}}
            if fault.rehearsal:
                job["rehearsals"] = [{**fault.rehearsal, "at_step": self.at, "steps": steps}]
        return job


class Run:
    """A finished genesis-worker --spec."""

    def __init__(self, case, baselines, folder):
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(json.dumps(case.job(baselines)))  # JSON is valid YAML.
        telemetry = folder / "telemetry.jsonl"
        begin = time.perf_counter()
        with open(folder / "log", "w+") as log:
            process = subprocess.Popen(
                [sides.worker(), "--spec", folder / "job.yaml", "--checkpoint-dir", folder / "checkpoints", "--telemetry",
                 telemetry, "--threads", "1", "--emulate-fp16"], stdout=log, stderr=log,
                env=sides.environment(ENABLE_FP16_TRAINING="true"))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            output = log.read()
        self.seconds = time.perf_counter() - begin
        self.processor_seconds = usage.ru_utime + usage.ru_stime
        if process.returncode != 0:
            raise RuntimeError(f"{case}: genesis-worker ended with {process.returncode}:\n{output}")
        self.telemetry = telemetry
        self.incidents = [(rule, int(step), message) for rule, step, message in INCIDENT.findall(output)]
        self.changes = [(trigger, int(step)) for _, _, step, trigger in CHANGE.findall(output)]
        held_out = re.findall(r"held-out loss ([-\d.e+]+)", output)
        self.held_out = float(held_out[-1]) if held_out else math.nan

    def losses(self):
        """Returns the loss of each step; of a step that was executed several times, the last one."""
        return {record["step"]: record["loss"]
                for record in map(json.loads, self.telemetry.read_text().splitlines()) if record["loss"] is not None}


def sustained(losses, healthy, excess, after):
    """Returns the first step after `after` at which the mean of 200 steps exceeds (1 + `excess`) times that of the healthy run, as does the
    mean of the next 200 steps; None if there is none.

    Noise alone lifts a mean of 50 steps above the healthy one, and among hundreds of tests one of 200. So two in a row must exceed it."""
    steps = sorted(set(losses) & set(healthy))
    length = 4 * WINDOW

    def above(part):
        return sum(losses[s] for s in part) > (1 + excess) * sum(healthy[s] for s in part)

    for i in range(length, len(steps) - length + 1, 10):
        if steps[i - length] >= after and above(steps[i - length:i]) and above(steps[i:i + length]):
            return steps[i - 1]
    return None


def follows(fault):
    """Returns whether a fault shows only by its effect on the weights."""
    return FAULTS[fault].drift is None


def spread_over(shares, count):
    """Returns `count` names in a fixed order, each as often as its share."""
    names = [name for name, share in shares.items() for _ in range(share)]
    return [names[i % len(names)] for i in range(count)]


def plan(runs):
    """Returns the healthy cases, a quarter more than `runs`, and the faulty ones."""
    chance = random.Random(20)
    healthy, faulty, seen = [], [], set()
    for i, workload in enumerate(spread_over(SHARES, runs)):
        baseline = ("own", "own", "none", "own", "other")[i % 5]
        mode = MODES[(i // 3) % 2]
        if workload == "synthetic trajectories" and baseline != "none" and i % 2:
            mode = HALF["mode"]
        seed = 100 + i % 17
        while (workload, mode, seed, baseline) in seen:  # The run would be bitwise the same.
            seed += 17
        seen.add((workload, mode, seed, baseline))
        healthy.append(Case("healthy", workload, mode, seed, baseline, None, 0, i % 7 == 3))
    # With this wide model, the modes are about as fast as FP32, so that false advice is possible. In small models they are truly slow.
    healthy += [Case("healthy", "pendulum, wide", MODES[i % 2], 1000 + i, "none", None, 0, i % 3 == 2)
                for i in range(runs // 4)]
    faults = spread_over({name: fault.share for name, fault in FAULTS.items()}, runs)
    workloads = spread_over(FAULT_WORKLOADS, 7 * runs)
    for i, name in enumerate(faults):
        workload, fault = workloads[i * 5 + i // 17], FAULTS[name]
        if fault.precision:
            workload = "synthetic trajectories"  # This is the fastest workload to emulate.
        elif name == "poisoned batches" and workload == "transformer":
            workload = "cartpole"  # Noise cannot be added to tokens.
        steps = WORKLOADS[workload]["training"]["max_steps"]
        at = chance.randrange(1, steps // 2) if fault.rehearsal else 1
        mode = fault.precision.get("mode", MODES[i % 2])
        baseline = "own" if follows(name) else ("own", "own", "own", "none", "other")[i % 5]
        faulty.append(Case("fault", workload, mode, 100 + i % 17, baseline, name, at, False))
    return healthy, faulty


class Runner:
    def __init__(self, folder, out, parallel):
        self.folder, self.out, self.parallel = pathlib.Path(folder), out, parallel
        self.baselines, self.twins, self.speeds = {}, {}, {}
        self.processor = collections.defaultdict(list)  # Seconds of each run, by workload and mode.
        self.count = 0

    def place(self):
        self.count += 1
        return self.folder / f"run-{self.count}"

    def make(self, cases, follow):
        """Runs the cases, `parallel` at a time. Calls `follow(case, run)` after each, stores the row that it returns, and returns all rows."""
        rows = []
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            waiting = {pool.submit(Run, case, self.baselines, self.place()): case for case in cases}
            for done in concurrent.futures.as_completed(waiting):
                case = waiting[done]
                if not case.busy and not case.fault:
                    self.processor[case.workload, case.mode].append(done.result().processor_seconds)
                row = follow(case, done.result())
                if row is None:
                    continue
                rows.append(row)
                with self.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"\r{len(rows)} of {len(cases)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return rows

    def add_speeds(self, rows):
        """Adds to the rows how fast their mode truly is compared with FP32, by which the advice is judged.

        The speed is that of the processor time of a step over all runs of a workload, without the time of the start."""
        for workload in {workload for workload, mode in self.processor if mode != "FP32"}:
            if (workload, "FP32") not in self.processor:
                continue
            case = Case("start", workload, "FP32", 1, "none", None, 0, False)
            starting = min(Run(case, {}, self.place()).processor_seconds for _ in range(2))
            steps = WORKLOADS[workload]["training"]["max_steps"]
            fp32 = (statistics.median(self.processor[workload, "FP32"]) - starting) / (steps - FEW)
            starting -= FEW * fp32
            for mode in MODES:
                if used := self.processor.get((workload, mode)):
                    self.speeds[workload, mode] = fp32 * steps / (statistics.median(used) - starting)
                    print(f"{workload}, {mode}: {self.speeds[workload, mode]:.2f} times the speed of FP32", flush=True)
        for row in rows:
            row["speed"] = self.speeds.get((row["workload"], row["mode"]))

    def make_baselines(self, cases):
        wanted = {(case.workload, case.seed + (case.baseline == "other"))
                  for case in cases if case.baseline != "none"}
        self.make([Case("fp32", workload, "FP32", seed, "none", None, 0, False) for workload, seed in sorted(wanted)],
                  lambda case, run: self.baselines.__setitem__((case.workload, case.seed), run.telemetry))

    def make_twins(self, cases):
        """Runs the same cases without the fault, for faults that show only by their effect on the weights."""
        wanted = {case._replace(kind="twin", fault=None, at=0, baseline="none")
                  for case in cases if follows(case.fault)}
        self.make(sorted(wanted), lambda case, run: self.twins.__setitem__((case.workload, case.mode, case.seed),
                                                                          run.losses()))

    def healthy(self, cases):
        idle = [case for case in cases if not case.busy]
        rows = self.make(idle, self.healthy_row)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        try:
            rows += self.make([case for case in cases if case.busy], self.healthy_row)
        finally:
            for process in busy:
                process.send_signal(signal.SIGKILL)
                process.wait()
        return rows

    def healthy_row(self, case, run):
        return {**case._asdict(), "rollbacks": [list(change) for change in run.changes],
                "incidents": [list(incident) for incident in run.incidents], "held_out": run.held_out,
                "seconds": round(run.seconds, 2)}

    def fault_row(self, case, run):
        # All rules that would roll back count, because the job only advises on divergence.
        found = [step for rule, step, _ in run.incidents if rule in ("divergence", "overflow", "non_finite")
                 and step >= case.at]
        early = [step for rule, step, _ in run.incidents if rule == "divergence" and step < case.at]
        row = {**case._asdict(), "found": min(found, default=None), "early": bool(early),
               "incidents": [list(incident) for incident in run.incidents], "held_out": run.held_out,
               "seconds": round(run.seconds, 2)}
        if follows(case.fault):
            losses, twin = run.losses(), self.twins[case.workload, case.mode, case.seed]
            row["shows_10"] = sustained(losses, twin, 0.1, case.at)
            row["shows_20"] = sustained(losses, twin, 0.2, case.at)
        return row


def upper_bound(wrong, count):
    """Returns the one-sided upper bound of a fraction at 95 % (Clopper and Pearson), by bisection."""
    low, high = wrong / count, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(math.comb(count, k) * middle ** k * (1 - middle) ** (count - k) for k in range(wrong + 1))
        low, high = (middle, high) if tail > 0.05 else (low, middle)
    return high


def share(found, count):
    return f"{found} of {count} ({100 * found / count:.1f} %)" if count else "none"


def summary(healthy, faulty):
    """Returns the rows of the report: kinds of cases, results, targets."""
    def row(name, found, count, wanted, **more):
        return {"name": name, "found": found, "count": count, "wanted": wanted, **more}

    def false(rows):
        return sum(any(trigger == "divergence" for trigger, _ in each["rollbacks"]) for each in rows)

    def advised(rows):
        return sum(any(rule == "slowdown" for rule, _, _ in each["incidents"]) for each in rows)

    rows = [row("healthy runs rolled back", false(healthy), len(healthy), "<= 0.5 %",
                bound=upper_bound(false(healthy), len(healthy)))]
    for name, keep in (("with the FP32 run of the same seed", lambda c: c["baseline"] == "own"),
                       ("with the FP32 run of another seed", lambda c: c["baseline"] == "other"),
                       ("without an FP32 run", lambda c: c["baseline"] == "none"),
                       ("beside busy programs", lambda c: c["busy"])):
        some = list(filter(keep, healthy))
        if some:
            rows.append(row(f"- {name}", false(some), len(some), "", bound=upper_bound(false(some), len(some))))
    # Without an FP32 run, a job measures the speed of FP32 itself.
    timed = [each for each in healthy if each["baseline"] == "none" and each.get("speed")]
    for name, keep, wanted in (("called slow, of those that are not", lambda c: c["speed"] >= SLOW, "<= 2 %"),
                               ("called slow, of those that are", lambda c: c["speed"] < 0.9 * SLOW, "")):
        some = list(filter(keep, timed))
        if some:
            rows.append(row(name, advised(some), len(some), wanted, bound=upper_bound(advised(some), len(some))))
    for fault, (_, _, drift, _) in FAULTS.items():
        some = [each for each in faulty if each["fault"] == fault]
        if drift:
            within = 200 if drift >= 0.2 else 1000
            some = [each for each in some
                    if each["at"] + within <= WORKLOADS[each["workload"]]["training"]["max_steps"] or each["found"]]
            found = [each["found"] - each["at"] for each in some if each["found"]]
            in_time = sum(each <= within for each in found)
            wanted = {0.05: "", 0.1: ">= 99 %"}.get(drift, ">= 99 %")
        else:
            within = 200
            # Only runs count that found the fault, or were long enough to find it in time.
            some = [each for each in some if each["shows_20"] and (
                each["found"] or each["shows_20"] + within <= WORKLOADS[each["workload"]]["training"]["max_steps"])]
            found = [each["found"] - each["shows_20"] for each in some if each["found"]]
            in_time = sum(each <= within for each in found)
            wanted = ">= 99 %"
        if some:
            found.sort()
            rows.append(row(f"{fault}, found within {within} steps", in_time, len(some), wanted, ever=len(found),
                            median_steps=found[len(found) // 2] if found else None))
    return rows


def table(rows):
    lines = ["| | found | wanted | at most, 95 % | found at all | median steps |", "|---|---|---|---|---|---|"]
    for each in rows:
        bound = f"{100 * each['bound']:.1f} %" if "bound" in each else ""
        steps = each.get("median_steps")
        lines.append(f"| {each['name']} | {share(each['found'], each['count'])} | {each['wanted']} | {bound} | "
                     f"{each.get('ever', '')} | {'' if steps is None else steps} |")
    return "\n".join(lines)


COLUMNS = ("kind", "workload", "mode", "seed", "baseline", "busy", "fault", "at", "found", "shows_10", "shows_20", "speed",
           "rolled_back", "rules", "held_out")


def write_runs(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            rules = " ".join(f"{rule}@{step}" for rule, step, _ in row["incidents"])
            writer.writerow({**row, "rolled_back": bool(row.get("rollbacks")), "rules": rules})


def measure(log, runs, parallel, found):
    log.unlink(missing_ok=True)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    steadiness.measure()
    healthy_cases, faulty_cases = plan(runs)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        runner = Runner(folder, log, parallel)
        runner.make_baselines(healthy_cases + faulty_cases)
        runner.make_twins(faulty_cases)
        rows = runner.healthy(healthy_cases)
        runner.add_speeds(rows)
        rows += runner.make(faulty_cases, runner.fault_row)
    steadiness.measure()
    found.steadiness = steadiness.summary()
    # Writes the file again, now with the speeds.
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def run(words):
    parser = report.parser("watchdog", __doc__)
    parser.add_argument("--runs", type=report.repeats, default=200,
                        help="healthy runs, and as many with a fault. Default 200")
    parser.add_argument("--quick", action="store_true", help="20 of each")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time. Default 2")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    parser.add_argument("--read", type=pathlib.Path, help="a watchdog-runs.jsonl to count, in place of running")
    options = parser.parse_args(words)
    runs = 20 if options.quick else options.runs
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    facts = machine.facts(worker=machine.output_of(sides.worker(), "--version"))
    found = report.Report("watchdog", "How often the watchdog is wrong", facts,
                          {"runs": runs, "parallel": options.parallel})
    if options.read:
        rows = [json.loads(line) for line in options.read.read_text().splitlines()]
    else:
        rows = measure(out / "watchdog-runs.jsonl", runs, options.parallel, found)
    healthy = [row for row in rows if row["kind"] == "healthy"]
    faulty = [row for row in rows if row["kind"] == "fault"]
    for row in summary(healthy, faulty):
        found.add(row)
    text = table(found.rows)
    found.text("Figures", text)
    found.write(options.out)
    if options.document:
        report.document(options.document, "watchdog",
                        f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} on {processor.name()}, "
                        f"{len(healthy)} healthy runs and {len(faulty)} with a fault.\n\n{text}")
        write_runs(options.document.parent / "benchmarks" / "watchdog.csv", rows)
