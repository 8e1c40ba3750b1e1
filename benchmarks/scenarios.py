"""Runs the scenarios of the founding documents: the world model on deterministic synthetic trajectories, in FP32 and in reduced precision.
Times are those of training, from the first step to the last.

  benchmarks/run basic [--out DIR] [--rounds N]
  benchmarks/run comprehensive [--out DIR] [--rounds N] [--scenario NAME]...

basic compares FP32 with MIXED_BF16. comprehensive compares all modes, and shows the choice of AUTO. In a round all modes run one after the
other, in an order that rotates. The first of several rounds is dropped."""

import os
import pathlib
import re
import tempfile

import charts
import machine
import processor
import report
import sides
import spread

# (trajectories, epochs).
SCENARIOS = {"warmup": (128, 1), "standard": (256, 3), "stress": (512, 5)}
BASIC = ("FP32", "MIXED_BF16")
ALL = ("FP32", "MIXED_BF16", "BF16", "MIXED_FP16", "FP16")
BATCH = 128
# The only scenario for emulated FP16, which takes minutes for a second of FP32.
EMULATED_ONLY_IN = "warmup"


def job(scenario, mode):
    episodes, epochs = SCENARIOS[scenario]
    return {"model": {"world_model": {}},
            "dataset": {"synthetic": {"trajectories": {"episodes": episodes}, "seed": 1}},
            "training": {"epochs": epochs, "batch_size": BATCH, "seed": 1},
            "precision": {"mode": mode}}


def emulated(mode):
    """Returns "emulated" if this processor emulates the mode; otherwise an empty text."""
    if mode.endswith("FP16"):
        native = "avx512_fp16" in processor.instruction_sets()
    else:
        native = mode == "FP32" or processor.multiplies_bf16()
    return "" if native else "emulated"


class Figures:
    """The results of one run."""

    def __init__(self, run, mode):
        if run.modes != {mode}:
            raise sides.Refused(f"asked for {mode}, the job ran in {', '.join(sorted(run.modes))}")
        self.seconds = run.step_times()[-1][1] - run.time_of("started:")
        self.process_seconds = run.seconds
        self.mib = run.peak_bytes / 2**20
        self.loss = run.losses[-1]
        self.held_out = float(re.findall(r"held-out loss ([-\d.e+]+)", run.output)[-1])
        self.overflow = sum(record["skipped"] for record in run.records) / len(run.records)
        self.steps = len(run.records)


class Scenario:
    """A scenario that runs in some modes, in several rounds."""

    def __init__(self, name, modes, rounds, folder, steadiness):
        self.name, self.modes, self.rounds = name, modes, rounds
        self.folder, self.steadiness = pathlib.Path(folder), steadiness
        self.cores = os.sched_getaffinity(0)
        self.found = {mode: [] for mode in modes}
        self.refusals = {}

    def _run(self, mode):
        flags = ["--emulate-fp16"] if mode.endswith("FP16") else []
        return Figures(sides.WorkerRun(self.folder, job(self.name, mode), self.cores, *flags), mode)

    def _skips(self, mode, round):
        if not (mode.endswith("FP16") and emulated(mode)):
            return False
        if self.name != EMULATED_ONLY_IN:
            self.refusals[mode] = ("not run: this processor emulates FP16, which takes minutes and shows "
                                   f"nothing about its speed; {EMULATED_ONLY_IN} is the rehearsal")
        return self.name != EMULATED_ONLY_IN or round != self.rounds - 1

    def run(self):
        for round in range(self.rounds):
            for mode in self.modes if round % 2 == 0 else self.modes[::-1]:
                if self._skips(mode, round):
                    continue
                self.steadiness.measure()
                try:
                    figures = self._run(mode)
                except sides.Refused as refusal:
                    self.refusals[mode] = str(refusal)
                    continue
                if round > 0 or self.rounds == 1:
                    self.found[mode].append(figures)

    def rows(self):
        base = self.found["FP32"]
        for mode in self.modes:
            row = {"name": f"{self.name}, {mode}", "scenario": self.name, "mode": mode,
                   "trajectories": SCENARIOS[self.name][0], "epochs": SCENARIOS[self.name][1],
                   "formats": emulated(mode) or "native"}
            runs = self.found[mode]
            if mode in self.refusals or not runs:
                yield {**row, "refused": self.refusals.get(mode, "no round of it ended")}
                continue
            # Each run is compared with the FP32 run of the same round. A mode that ran only once is compared with the last FP32 run.
            pairs = zip(base[-len(runs):], runs)
            yield {**row, "steps": runs[0].steps,
                   "seconds": spread.summary([each.seconds for each in runs]),
                   "process_seconds": spread.summary([each.process_seconds for each in runs]),
                   "speedup": spread.median_interval([a.seconds / b.seconds for a, b in pairs]),
                   "peak_mib": spread.summary([each.mib for each in runs]),
                   "memory_change": spread.summary([each.mib for each in runs])["median"]
                   / spread.summary([each.mib for each in base])["median"] - 1,
                   "loss": runs[-1].loss, "held_out_loss": runs[-1].held_out,
                   "degradation": runs[-1].held_out / base[-1].held_out - 1,
                   "overflow": runs[-1].overflow}


def speed_table(rows, mode):
    """Returns the table in the form of the founding documents."""
    lines = [f"Scenario    | FP32 Time | {mode} Time".ljust(45) + "| Speedup | Overflow",
             "------------|-----------|".ljust(45, "-") + "|---------|---------"]
    speedups = []
    for name in dict.fromkeys(row["scenario"] for row in rows):
        base, other = (next(row for row in rows if (row["scenario"], row["mode"]) == (name, wanted))
                       for wanted in ("FP32", mode))
        if "refused" in other:
            lines.append(f"{name:12}| {other['refused']}")
            continue
        speedups.append(other["speedup"]["median"])
        note = " (emulated)" if other["formats"] == "emulated" else ""
        lines.append(f"{name:12}| {base['seconds']['median']:.3f}s".ljust(24)
                     + f"| {other['seconds']['median']:.3f}s{note}".ljust(21)
                     + f"| {speedups[-1]:.2f}x".ljust(10) + f"| {other['overflow']:.1%}")
    if speedups:
        lines += ["", f"Average CPU Speedup: {sum(speedups) / len(speedups):.2f}x"]
    return "\n".join(lines)


def loss_table(rows, mode):
    lines = [f"{'Scenario':14}{'FP32 Loss':13}{mode + ' Loss':18}Degradation",
             f"{'---------':14}{'---------':13}{'---------':18}-----------"]
    for row in rows:
        if row["mode"] != mode or "refused" in row:
            continue
        base = next(each for each in rows
                    if (each["scenario"], each["mode"]) == (row["scenario"], "FP32"))
        lines.append(f"{row['scenario']:14}{base['held_out_loss']:<13.4f}"
                     f"{row['held_out_loss']:<18.4f}{row['degradation']:+.2%}")
    return "\n".join(lines)


def memory_table(rows):
    lines = [f"{'Scenario':14}{'Mode':14}{'Peak on the host':20}Change"]
    lines += [f"{row['scenario']:14}{row['mode']:14}{row['peak_mib']['median']:8.0f} MiB".ljust(48)
              + f"{row['memory_change']:+.1%}" for row in rows if "refused" not in row]
    return "\n".join(lines)


def what_auto_takes(scenarios, folder, cores):
    lines = []
    for name in scenarios:
        run = sides.WorkerRun(folder, job(name, "AUTO"), cores)
        said = re.findall(r"^precision: (.*)$", run.output, re.MULTILINE)[-1]
        lines.append(f"{name:12}{said}")
    return "\n".join(lines)


def arguments(name, words):
    parser = report.parser(name, __doc__)
    parser.add_argument("--rounds", type=int, default=6, help="default 6")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="default: all")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; accepted: 1 or more")
    return options


def _run(name, words):
    options = arguments(name, words)
    modes = BASIC if name == "basic" else ALL
    scenarios = options.scenario or list(SCENARIOS)
    worker = sides.worker()
    cores = os.sched_getaffinity(0)
    steadiness = machine.Steadiness(cores)
    found = report.Report(name, f"Scenarios of the founding documents: {name}", machine.facts(**{
        "genesis-worker": machine.output_of(worker, "--version"),
        "device": machine.output_of(worker, "--describe-device")}),
        {"rounds": options.rounds, "threads at most": len(cores), "modes": ", ".join(modes),
         "OMP_WAIT_POLICY": sides.waiting()})
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        for scenario in scenarios:
            one = Scenario(scenario, modes, options.rounds, folder, steadiness)
            one.run()
            for row in one.rows():
                found.add(row)
        if name == "comprehensive":
            found.text("What AUTO takes", what_auto_takes(scenarios, folder, cores))
    found.steadiness = steadiness.summary()
    for mode in modes[1:]:
        found.text(f"{mode} beside FP32: time", speed_table(found.rows, mode))
        found.text(f"{mode} beside FP32: held-out loss", loss_table(found.rows, mode))
    found.text("Memory", memory_table(found.rows))
    there = [row for row in found.rows if "refused" not in row]
    for scenario in scenarios:
        rows = [row for row in there if row["scenario"] == scenario]
        found.chart(charts.bars(f"{scenario}: seconds of training",
                                [("", [(row["mode"], row["seconds"]) for row in rows])], "s"))
    found.write(options.out)


def basic(words):
    _run("basic", words)


def comprehensive(words):
    _run("comprehensive", words)
