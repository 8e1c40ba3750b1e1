"""How often the watchdog of reduced precision is wrong: real runs of genesis-worker, healthy ones and ones with a
planted fault, each counted by what its log says.

  tests/benchmarks/run watchdog [--out DIR] [--runs N] [--quick] [--parallel N] [--document FILE]

Healthy runs enforce, as jobs do by default; a rollback is false. Runs with a fault advise, so that they go on and
their own losses show from where on the loss was how much above that of the same run without the fault. Each result is
written as it comes, to watchdog-runs.jsonl. --document puts the table into a page, between its two marks."""

import collections
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import machine
import report
import sides

EXAMPLES = pathlib.Path(os.environ["GENESIS_SOURCE"]) / "examples"
INCIDENT = re.compile(r"incident \((\w+)\) at step (\d+): (.*)")
CHANGE = re.compile(r"precision changes from (\w+) to (\w+) after step (\d+) \((\w+)\)")
BEGIN, END = "<!-- watchdog: begin -->", "<!-- watchdog: end -->"
WINDOW = 50
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
        "training": {"max_steps": 300, "batch_size": 4, "max_grad_norm": 0.5},
        "optimizer": {"learning_rate": 1e-4}},
}
# How much of the runs each has.
SHARES = {"pendulum": 6, "pendulum, long": 1, "pendulum, example": 1, "cartpole": 3, "synthetic trajectories": 3,
          "transformer": 3, "radio_unet": 1}
# name: (what it rehearses, whether it is a drift of that much in the figure itself)
FAULTS = {
    "drift 5 %": ({"kind": "SPIKE", "amount": 1.05}, 0.05),
    "drift 10 %": ({"kind": "SPIKE", "amount": 1.10}, 0.10),
    "drift 20 %": ({"kind": "SPIKE", "amount": 1.20}, 0.20),
    "drift 50 %": ({"kind": "SPIKE", "amount": 1.50}, 0.50),
    "stale weights": ({"kind": "STALE"}, None),
    "saturation": ({"kind": "SATURATE", "amount": 1e-4}, None),
    "underflow": ({"kind": "UNDERFLOW", "amount": 3e-3}, None),
    "cut weights": ({"kind": "TRUNCATE", "amount": 7}, None),
    "poisoned batches": ({"kind": "POISON", "amount": 0.5}, None),
}
FAULT_SHARES = {"drift 5 %": 1, "drift 10 %": 2, "drift 20 %": 4, "drift 50 %": 2, "stale weights": 2, "saturation": 2,
                "underflow": 2, "cut weights": 2, "poisoned batches": 2}


class Case(collections.namedtuple("Case", "kind workload mode seed baseline fault at busy")):
    """A run. `baseline`: own (the same job in FP32), other (of another seed) or none."""

    def job(self, baselines):
        job = json.loads(json.dumps(WORKLOADS[self.workload]))
        job["training"]["seed"] = self.seed
        job["precision"] = {"mode": self.mode, "fallbacks": ["FP32"] if self.mode != "FP32" else []}
        job["checkpoint"] = {"every_steps": 0}
        if self.baseline != "none" and self.mode != "FP32":
            seed = self.seed if self.baseline == "own" else self.seed + 1
            job["precision"]["baseline_file"] = str(baselines[self.workload, seed])
        if self.fault:
            steps = job["training"]["max_steps"]
            job["precision"]["watchdog"] = {"divergence": {"action": "ADVISE"}}
            job["rehearsals"] = [{**FAULTS[self.fault][0], "at_step": self.at, "steps": steps}]
        return job


class Run:
    """A finished genesis-worker --spec."""

    def __init__(self, case, baselines, folder, emulate=False):
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(json.dumps(case.job(baselines)))  # JSON is YAML.
        telemetry = folder / "telemetry.jsonl"
        begin = time.perf_counter()
        done = subprocess.run(
            [sides.worker(), "--spec", folder / "job.yaml", "--checkpoint-dir", folder / "checkpoints", "--telemetry",
             telemetry, "--threads", "1", *(["--emulate-fp16"] if emulate else [])],
            capture_output=True, text=True, env=sides.environment(ENABLE_FP16_TRAINING="true"))
        self.seconds = time.perf_counter() - begin
        if done.returncode != 0:
            raise RuntimeError(f"{case}: genesis-worker ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self.telemetry = telemetry
        self.incidents = [(rule, int(step), message) for rule, step, message in INCIDENT.findall(done.stdout)]
        self.changes = [(trigger, int(step)) for _, _, step, trigger in CHANGE.findall(done.stdout)]
        held_out = re.findall(r"held-out loss ([-\d.e+]+)", done.stdout)
        self.held_out = float(held_out[-1]) if held_out else math.nan

    def losses(self):
        """Of the last time that each step was made."""
        return {record["step"]: record["loss"]
                for record in map(json.loads, self.telemetry.read_text().splitlines()) if record["loss"] is not None}


def sustained(losses, healthy, excess, after):
    """The first step after `after` at which the mean of the last 200 is that much above the healthy run's; None where
    there is none. 200, for the mean of 50 comes there by noise."""
    steps = sorted(set(losses) & set(healthy))
    length = 4 * WINDOW
    for i in range(length, len(steps) + 1, 10):
        part = steps[i - length:i]
        if part[0] < after:
            continue
        if sum(losses[s] for s in part) > (1 + excess) * sum(healthy[s] for s in part):
            return part[-1]
    return None


def spread_over(shares, count):
    """`count` names, each as often as its share, in a fixed order."""
    names = [name for name, share in shares.items() for _ in range(share)]
    return [names[i % len(names)] for i in range(count)]


def plan(runs):
    """Healthy cases and faulty ones."""
    chance = random.Random(20)
    healthy, faulty = [], []
    for i, workload in enumerate(spread_over(SHARES, runs)):
        baseline = ("own", "own", "none", "own", "other")[i % 5]
        healthy.append(Case("healthy", workload, MODES[(i // 3) % 2], 100 + i % 17, baseline, None, 0, i % 7 == 3))
    faults = spread_over(FAULT_SHARES, runs)
    workloads = spread_over({name: share for name, share in SHARES.items() if name != "pendulum, long"}, 7 * runs)
    for i, fault in enumerate(faults):
        workload = workloads[i * 5 + i // 17]
        if fault == "poisoned batches" and workload == "transformer":
            workload = "cartpole"  # Tokens take no noise.
        steps = WORKLOADS[workload]["training"]["max_steps"]
        at = chance.randrange(1, max(2, int(steps * 0.5)))
        baseline = ("own", "own", "own", "none", "other")[i % 5] if FAULTS[fault][1] else "own"
        faulty.append(Case("fault", workload, MODES[i % 2], 100 + i % 17, baseline, fault, at, False))
    return healthy, faulty


class Runner:
    def __init__(self, folder, out, parallel):
        self.folder, self.out, self.parallel = pathlib.Path(folder), out, parallel
        self.baselines, self.twins = {}, {}
        self.count = 0

    def place(self):
        self.count += 1
        return self.folder / f"run-{self.count}"

    def make(self, cases, follow):
        """Each case's run, `parallel` at a time; `follow(case, run)` gives its row."""
        rows = []
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            waiting = {pool.submit(Run, case, self.baselines, self.place()): case for case in cases}
            for done in concurrent.futures.as_completed(waiting):
                row = follow(waiting[done], done.result())
                if row is None:
                    continue
                rows.append(row)
                with self.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"\r{len(rows)} of {len(cases)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return rows

    def make_baselines(self, cases):
        wanted = {(case.workload, case.seed + (case.baseline == "other"))
                  for case in cases if case.baseline != "none"}
        self.make([Case("fp32", workload, "FP32", seed, "none", None, 0, False) for workload, seed in sorted(wanted)],
                  lambda case, run: self.baselines.__setitem__((case.workload, case.seed), run.telemetry))

    def make_twins(self, cases):
        """The same runs without the fault, for those whose loss tells when the fault shows."""
        wanted = {case._replace(kind="twin", fault=None, at=0, baseline="none")
                  for case in cases if FAULTS[case.fault][1] is None}
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

    @staticmethod
    def healthy_row(case, run):
        return {**case._asdict(), "rollbacks": [list(change) for change in run.changes],
                "incidents": [list(incident) for incident in run.incidents], "held_out": run.held_out,
                "seconds": round(run.seconds, 2)}

    def fault_row(self, case, run):
        # Every rule that would roll back counts: the job advises only where divergence is concerned.
        found = [step for rule, step, _ in run.incidents if rule in ("divergence", "overflow", "non_finite")
                 and step >= case.at]
        early = [step for rule, step, _ in run.incidents if rule == "divergence" and step < case.at]
        row = {**case._asdict(), "found": min(found, default=None), "early": bool(early),
               "incidents": [list(incident) for incident in run.incidents], "held_out": run.held_out,
               "seconds": round(run.seconds, 2)}
        if FAULTS[case.fault][1] is None:
            losses, twin = run.losses(), self.twins[case.workload, case.mode, case.seed]
            row["shows_10"] = sustained(losses, twin, 0.1, case.at)
            row["shows_20"] = sustained(losses, twin, 0.2, case.at)
        return row


def upper_bound(wrong, count):
    """Of a share, one-sided, 95 % (Clopper and Pearson), by bisection."""
    low, high = wrong / count, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(math.comb(count, k) * middle ** k * (1 - middle) ** (count - k) for k in range(wrong + 1))
        low, high = (middle, high) if tail > 0.05 else (low, middle)
    return high


def share(found, count):
    return f"{found} of {count} ({100 * found / count:.1f} %)" if count else "none"


def summary(healthy, faulty):
    """Rows of the report: what was counted, what was found, what was wanted."""
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
    timed = [each for each in healthy if each["baseline"] == "none"]
    if timed:
        rows.append(row("healthy runs called slow", advised(timed), len(timed), "<= 2 %",
                        bound=upper_bound(advised(timed), len(timed))))
    for fault, (_, drift) in FAULTS.items():
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
            some = [each for each in some if each["shows_20"]]
            found = [each["found"] - each["shows_20"] for each in some if each["found"]]
            in_time = sum(each <= within for each in found)
            wanted = ">= 99 %"
        if some:
            found.sort()
            rows.append(row(f"{fault}, found within {within} steps", in_time, len(some), wanted, ever=len(found),
                            median_steps=found[len(found) // 2] if found else None))
    return rows


def table(rows):
    lines = ["| | found | wanted | at most, 95 % | ever found | median steps |", "|---|---|---|---|---|---|"]
    for each in rows:
        bound = f"{100 * each['bound']:.1f} %" if "bound" in each else ""
        steps = each.get("median_steps")
        lines.append(f"| {each['name']} | {share(each['found'], each['count'])} | {each['wanted']} | {bound} | "
                     f"{each.get('ever', '')} | {'' if steps is None else steps} |")
    return "\n".join(lines)


def document(path, text):
    page = path.read_text()
    if BEGIN not in page or END not in page:
        sys.exit(f"{path} has no {BEGIN} and {END} to put the table between")
    before, rest = page.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def run(words):
    parser = report.parser("watchdog", __doc__)
    parser.add_argument("--runs", type=report.repeats, default=200,
                        help="healthy runs, and as many with a fault. Default 200")
    parser.add_argument("--quick", action="store_true", help="20 of each")
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time. Default 2")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    runs = 20 if options.quick else options.runs
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    log = out / "watchdog-runs.jsonl"
    log.unlink(missing_ok=True)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    steadiness.measure()
    facts = machine.facts(worker=machine.output_of(sides.worker(), "--version"))
    found = report.Report("watchdog", "How often the watchdog is wrong", facts,
                          {"runs": runs, "parallel": options.parallel})
    healthy_cases, faulty_cases = plan(runs)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        runner = Runner(folder, log, options.parallel)
        runner.make_baselines(healthy_cases + faulty_cases)
        runner.make_twins(faulty_cases)
        healthy = runner.healthy(healthy_cases)
        faulty = runner.make(faulty_cases, runner.fault_row)
    steadiness.measure()
    found.steadiness = steadiness.summary()
    for row in summary(healthy, faulty):
        found.add(row)
    text = table(found.rows)
    found.text("Figures", text)
    found.write(options.out)
    if options.document:
        document(options.document,
                 f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} on {machine.processor()}, "
                 f"{len(healthy)} healthy runs and {len(faulty)} with a fault.\n\n{text}")
