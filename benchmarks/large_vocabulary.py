"""Compares language models with a large vocabulary in genesis-worker, built in and exported, with the same model in torch eager: peak
memory and time of a step.

  benchmarks/run large-vocabulary [--out DIR] [--rounds N] [--steps N] [--only MODEL]...
                               [--document docs/benchmarks/optimizations.md]

Each side trains in a process of its own from the same weights, with the same batches and fused AdamW; a round runs each side once. Memory is
the maximum resident memory of the process. Time is processor time, because it hardly depends on what else runs. A side whose losses
differ from torch eager's is refused. Needs the Python of deploy/setup.sh --bench, or of the tests in GENESIS_BENCH_PYTHON."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import machine
import report
import sides
import spread

BUILT_IN, EXPORTED, EAGER = "built in", "exported", "torch eager"
MODES = ("FP32", "MIXED_BF16")
VOCABULARY, SEED, LEARNING_RATE = 50304, 7, 1e-4
# Width, layers, heads, context and batch of each model.
MODELS = {
    "256 x 2": {"width": 256, "layers": 2, "heads": 4, "context": 256, "batch": 8},
    "512 x 4": {"width": 512, "layers": 4, "heads": 8, "context": 256, "batch": 8},
}
WARM_UP = 2
MIB = 2**20
# Maximum relative difference of a loss.
TOLERANCE = {"FP32": 1e-4, "MIXED_BF16": 2e-2}


def write_data(folder, size):
    """Writes the same examples for built-in and exported models. They are from a Markov chain, so that the loss falls."""
    import numpy
    generator = numpy.random.default_rng(SEED)
    count = 10 * size["batch"]
    flat = numpy.zeros(count * size["context"] + 1, "<u4")
    steps = generator.integers(1, 5, len(flat))
    for i in range(1, len(flat)):
        flat[i] = (flat[i - 1] * 31 + steps[i]) % VOCABULARY
    flat.tofile(folder / "text.tokens")
    rows = numpy.lib.stride_tricks.sliding_window_view(flat, size["context"] + 1)[:: size["context"]]
    numpy.savez(folder / "rows.npz", tokens=rows.astype("int64"))


def twin(size):
    import python_twins
    return python_twins.Transformer(VOCABULARY, size["context"], size["layers"], size["heads"], size["width"], False, SEED)


def loss_of(module, batch):
    import torch
    tokens = batch["tokens"]
    return torch.nn.functional.cross_entropy(module(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


def export(folder, size):
    import python_package
    python_package.make_importable(folder)
    import genesis
    import numpy
    import torch
    rows = torch.from_numpy(numpy.load(folder / "rows.npz")["tokens"])
    genesis.export(twin(size), {"tokens": rows[:size["batch"]]}, folder / "module.pt2", loss=loss_of, precisions=list(MODES),
                   dynamic_batch=False)


def train_eagerly(folder, size, mode, steps):
    """Returns losses, processor seconds and wall seconds of a step, and peak bytes of this process."""
    import numpy
    import python_twins
    import torch
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokens = torch.from_numpy(numpy.load(folder / "rows.npz")["tokens"])
    module = twin(size)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
    rows = python_twins.batches(len(tokens) - len(tokens) // 10, size["batch"], SEED)
    losses = []
    for number in range(steps):
        if number == WARM_UP:
            used, begin = time.process_time(), time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode != "FP32"):
            now = loss_of(module, {"tokens": tokens[next(rows)]})
        now.backward()
        optimizer.step()
        losses.append(now.item())
    timed = steps - WARM_UP
    return {"losses": losses, "processor_seconds": (time.process_time() - used) / timed,
            "seconds": (time.perf_counter() - begin) / timed,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def in_python(*words):
    """Runs a function of this file in a process of its own, so that only its memory is measured. Returns its result."""
    done = subprocess.run([sides.python_of_peers(), __file__, *map(str, words)], capture_output=True, text=True,
                          env=sides.environment(PYTHONDONTWRITEBYTECODE="1"))
    if done.returncode != 0:
        raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def train(side, folder, size, mode, steps, cores):
    if side == EAGER:
        return in_python("train", folder, json.dumps(size), mode, steps)
    data = {BUILT_IN: {"tokens": {"path": str(folder / "text.tokens"), "type": "UINT32"}},
            EXPORTED: {"arrays": {"path": str(folder / "rows.npz")}}}[side]
    model = {BUILT_IN: {"transformer": {"vocabulary_size": VOCABULARY, "context_length": size["context"], "layers": size["layers"],
                                        "heads": size["heads"], "embedding_size": size["width"]}},
             EXPORTED: {"exported": {"path": str(folder / "module.pt2")}}}[side]
    run = sides.WorkerRun(folder / "worker", {
        "model": model, "dataset": data, "optimizer": {"learning_rate": LEARNING_RATE},
        "precision": {"mode": mode, "watchdog": {rule: {"action": "OFF"} for rule in ("divergence", "slowdown")}},
        "training": {"max_steps": steps, "batch_size": size["batch"], "seed": SEED, "max_grad_norm": -1},
        "checkpoint": {"every_steps": steps}}, cores)
    if run.modes != {mode}:
        raise RuntimeError(f"asked for {mode}, the job ran in {run.modes}:\n{run.output}")
    seconds, used = run.per_step(WARM_UP)
    return {"losses": run.losses, "processor_seconds": used, "seconds": seconds, "peak_bytes": run.peak_bytes}


def compare(name, size, mode, folder, options, cores):
    """Returns the row of a model in a mode."""
    found = {side: [] for side in (BUILT_IN, EXPORTED, EAGER)}
    for number in range(options.rounds):
        for side in list(found)[:: -1 if number % 2 else 1]:
            found[side].append(train(side, folder, size, mode, options.steps, cores))
    deviation = max(abs(a - b) / b for side in (BUILT_IN, EXPORTED) for ours, theirs in zip(found[side], found[EAGER])
                    for a, b in zip(ours["losses"], theirs["losses"]))
    row = {"name": name, "mode": mode, "deviation": deviation}
    if deviation > TOLERANCE[mode]:
        return {**row, "refused": f"losses differ by {deviation:.2e}"}
    for side, runs in found.items():
        row[side] = {"mib": spread.summary([run["peak_bytes"] / MIB for run in runs]),
                     "processor_ms": spread.summary([run["processor_seconds"] * 1000 for run in runs]),
                     "ms": spread.summary([run["seconds"] * 1000 for run in runs])}
    return row


def section(rows, facts):
    """Returns the table for the page."""
    what = f"Peak MiB and processor ms of a step, medians; vocabulary {VOCABULARY}, {facts['cores of this process']} threads"
    lines = [f"{what} ({time.strftime('%Y-%m-%d')}, {facts['processor']}).", "",
             "| width x layers | mode | " + " | ".join(f"{side}: MiB, ms" for side in (BUILT_IN, EXPORTED, EAGER)) + " | memory saved |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        if "refused" in row:
            continue
        cells = [f"{row[side]['mib']['median']:.0f}, {row[side]['processor_ms']['median']:.0f}" for side in (BUILT_IN, EXPORTED, EAGER)]
        saved = [1 - row[side]["mib"]["median"] / row[EAGER]["mib"]["median"] for side in (BUILT_IN, EXPORTED)]
        lines.append(f"| {row['name']} | {row['mode']} | {' | '.join(cells)} | {saved[0]:.0%}, {saved[1]:.0%} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("large-vocabulary", __doc__, rounds=3)
    parser.add_argument("--steps", type=int, default=12, help="steps of a run. Default 12")
    parser.add_argument("--only", choices=MODELS, action="append", help="a model to run. Default all")
    parser.add_argument("--document", type=pathlib.Path, help="page with a section large-vocabulary to write the table to")
    options = parser.parse_args(words)
    cores = os.sched_getaffinity(0)
    facts = machine.facts(**{"genesis-worker": machine.output_of(sides.worker(), "--version")})
    found = report.Report("large-vocabulary", "Large vocabularies", facts,
                          {"rounds": options.rounds, "steps": options.steps, "models": MODELS})
    for name in options.only or MODELS:
        with tempfile.TemporaryDirectory(prefix="genesis-") as text:
            folder = pathlib.Path(text)
            in_python("prepare", folder, json.dumps(MODELS[name]))
            for mode in MODES:
                found.add(compare(name, MODELS[name], mode, folder, options, cores))
    text = section(found.rows, facts)
    found.text("Peak memory and time of a step", text)
    found.write(options.out)
    found.exit_if_refused()
    if options.document:
        report.document(options.document, "large-vocabulary", text)


def in_this_process(word, folder, size, *rest):
    folder, size = pathlib.Path(folder), json.loads(size)
    if word == "prepare":
        write_data(folder, size)
        export(folder, size)
        return {}
    mode, steps = rest
    return train_eagerly(folder, size, mode, int(steps))


if __name__ == "__main__":
    print(json.dumps(in_this_process(*sys.argv[1:])))
