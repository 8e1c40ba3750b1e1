"""Tests modules of transformers, torchvision and timm: export, training, resuming, and loading of the weights in Python.

  benchmarks/run conformance [--out DIR] [--only TEXT ...] [--device cuda] [--jobs N] [--document docs/exported_modules.md]

Each module is exported, and trained for 50 steps in FP32 and in MIXED_BF16 by genesis-worker and by a loop in Python, on the same batches
and with LibTorch's kernels. Its row has the largest relative difference of a loss. The second half of the steps is trained again from a
checkpoint and must give bitwise equal losses, and the module must load the weights. Needs the Python of deploy/setup.sh --bench.

With --device cuda, worker and loop train on a GPU, whose kernels sum in no fixed order, so that two runs drift apart within 50 steps. The
difference is then relative to the loss, or to a tenth of the first loss if that is larger, and a resumed run may differ by as much. The
graph of MIXED_BF16 rounds where autocast on a CPU does.
"""

import copy
import csv
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import torch

import machine
import python_package
import report

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
STEPS, BATCH, SEED = 50, 6, 3
MODES = ("FP32", "MIXED_BF16")
TOLERANCES = {"cpu": {"FP32": 1e-5, "MIXED_BF16": 2e-2}, "cuda": {"FP32": 1e-2, "MIXED_BF16": 1e-1}}
# Seconds after which an attempt has failed.
LONGEST = 600


def twin():
    """Returns tests/interop/twin.py, which orders batches like the worker."""
    for name in ("GENESIS_SCALER_DRIVER", "GENESIS_TRAJECTORIES"):
        os.environ.setdefault(name, "")
    os.environ.setdefault("GENESIS_WORKER", str(BIN / "genesis-worker"))
    sys.path.insert(0, str(SOURCE / "tests" / "interop"))
    import twin as found

    return found


def train(job, folder, device, *flags):
    """Trains a job with genesis-worker. Returns the losses of the steps."""
    folder.mkdir(exist_ok=True)
    telemetry = folder / "telemetry.jsonl"
    done = subprocess.run([BIN / "genesis-worker", "--spec", job, "--checkpoint-dir", folder, "--telemetry", telemetry,
                           "--threads", "1", "--device", "cuda:0" if device == "cuda" else "cpu", *flags],
                          capture_output=True, text=True, env={**os.environ, "ENABLE_FP16_TRAINING": "true",
                                                               # The worker's own kernels round BF16 less often than the loop in Python.
                                                               "GENESIS_OWN_KERNELS": "false"})
    if done.returncode != 0:
        raise RuntimeError(next(line for line in done.stderr.splitlines() if "FAILURE" in line or "failed" in line))
    if f" on {device}" not in done.stdout + done.stderr:
        raise RuntimeError(f"genesis-worker did not run on {device}")
    return [json.loads(line)["loss"] for line in telemetry.read_text().splitlines()]


def loop(module, arrays, loss, mode, device):
    """Trains the same steps in Python. Returns their losses."""
    torch.backends.cudnn.allow_tf32 = False  # On by default for convolutions, but off in genesis-worker.
    module = copy.deepcopy(module).train().to(device)
    optimizer = torch.optim.AdamW([each for each in module.parameters() if each.requires_grad], lr=1e-3, weight_decay=0.01, fused=True)
    examples = len(next(iter(arrays.values())))
    order = twin().batches(examples - examples // 10, BATCH, SEED)
    data = {name: torch.tensor(array).to(device) for name, array in arrays.items()}
    torch.manual_seed(SEED)
    losses = []
    # oneDNN's BF16 LSTM fails on a processor without AVX-512. ATen's does not, and a graph uses ATen's.
    recurrent = any(isinstance(part, torch.nn.RNNBase) for part in module.modules())
    for _ in range(STEPS):
        chosen = next(order).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=mode != "FP32"), torch.backends.mkldnn.flags(enabled=not recurrent):
            now = loss(module, {name: tensor[chosen] for name, tensor in data.items()}).float()
        now.backward()
        optimizer.step()
        losses.append(now.item())
    return losses


def difference(ours, theirs, device):
    """Returns the largest difference of a loss, relative to the loss in Python, on a GPU to at least a tenth of the first one. A loss may
    be 0 if the module has memorized its few examples."""
    least = abs(theirs[0]) / 10 if device == "cuda" else 0.0

    def of(a, b):
        return 0.0 if a == b else abs(a - b) / max(abs(b), least) if b or least else float("inf")

    return max(of(a, b) for a, b in zip(ours, theirs, strict=True))


def prepare(folder):
    """Makes the package genesis importable, from the bundle or as it is committed here. Returns the versions of the libraries."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    python_package.make_importable(folder)
    return {name: __import__(name).__version__ for name in ("torch", "transformers", "torchvision", "timm")}


def go_through(make, device):
    """Exports and trains one module. Returns its row. Raises an exception that shows where it failed."""
    import genesis

    torch.manual_seed(0)
    module, arrays, loss, *options = make()
    module.train()
    row = {"parameters": sum(each.numel() for each in module.parameters())}
    with tempfile.TemporaryDirectory(prefix="genesis-") as name:
        folder = pathlib.Path(name)
        numpy.savez(folder / "rows.npz", **arrays)
        begin = time.monotonic()
        genesis.export(module, {field: torch.tensor(array[:BATCH]) for field, array in arrays.items()}, folder / "module.pt2",
                       loss=loss, precisions=list(MODES), **(options[0] if options else {}))
        row["export_seconds"] = round(time.monotonic() - begin, 1)
        for mode in MODES:
            job = folder / f"{mode}.yaml"
            job.write_text(json.dumps({
                "model": {"exported": {"path": str(folder / "module.pt2")}}, "dataset": {"arrays": {"path": str(folder / "rows.npz")}},
                "training": {"max_steps": STEPS, "batch_size": BATCH, "seed": SEED, "max_grad_norm": -1},
                "checkpoint": {"every_steps": STEPS // 2}, "precision": {"mode": mode, "watchdog": {
                    rule: {"action": "OFF"} for rule in ("divergence", "slowdown")}}}))
            ours = train(job, folder / mode, device)
            row[mode] = difference(ours, loop(module, arrays, loss, mode, device), device)
            half, whole = sorted((folder / mode).glob("*.pt"))
            rest = train(job, folder / f"{mode} rest", device, "--resume", str(half))
            row[f"{mode} resumed"] = difference([ours[0], *rest], [ours[0], *ours[STEPS // 2:]], device)
            copy.deepcopy(module).load_state_dict(torch.load(whole)["model_state_dict"])
    return row


def alone(make, device, queue):
    try:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        queue.put(go_through(make, device))
    except Exception as error:  # Any exception of a module is reported in its row.
        queue.put({"fault": " ".join(str(error).split())[:300] or type(error).__name__})


class Attempt:
    """One module in its own process, because it may use up all memory."""

    def __init__(self, make, device):
        context = multiprocessing.get_context("fork")
        self.queue = context.SimpleQueue()
        self.process = context.Process(target=alone, args=(make, device, self.queue))
        self.process.start()
        self.until = time.monotonic() + LONGEST

    def is_over(self):
        return not self.process.is_alive() or time.monotonic() > self.until

    def row(self):
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            return {"fault": f"took more than {LONGEST} s"}
        return {"fault": f"the process ended with {self.process.exitcode}"} if self.queue.empty() else self.queue.get()

    def stop(self):
        self.process.kill()
        self.process.join()


def go_through_all(wanted, device, jobs):
    """Yields (name, row) of each module when it ends, with `jobs` of them at a time.

    A single thread starts the processes, because some libraries do not allow a fork beside other threads."""
    left, running = list(wanted.items()), {}
    try:
        while left or running:
            while left and len(running) < jobs:
                name, make = left.pop(0)
                running[name] = Attempt(make, device)
            multiprocessing.connection.wait([attempt.process.sentinel for attempt in running.values()], timeout=1)
            for name in [name for name, attempt in running.items() if attempt.is_over()]:
                yield name, running.pop(name).row()
    finally:
        for attempt in running.values():
            attempt.stop()


def resumes(row):
    """Returns whether a resumed run gave the same losses: bitwise on a CPU, within the tolerance on a GPU."""
    return all(row[f"{mode} resumed"] <= (TOLERANCES["cuda"][mode] if row["device"] == "cuda" else 0) for mode in MODES)


def passes(row):
    return "fault" not in row and resumes(row) and all(row[mode] <= most for mode, most in TOLERANCES[row["device"]].items())


def table(rows, facts):
    def shown(value):
        return "0" if value == 0 else f"{value:.0e}"

    lines = [f"{sum(map(passes, rows))} of {len(rows)} pass ({facts['date']}, {facts['measured device']}, transformers {facts['transformers']}, "
             f"torchvision {facts['torchvision']}, timm {facts['timm']}). The last {sum(row['last'] for row in rows)} were not "
             "looked at while the exporter was made.", "",
             "| module | parameters | export | FP32 | MIXED_BF16 | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        if "fault" in row:
            lines.append(f"| {row['name']} | | | | | {row['fault'].replace('|', '/')[:160]} |")
        else:
            lines.append(f"| {row['name']} | {row['parameters']:,} | {row['export_seconds']:.1f} s | {shown(row['FP32'])} | "
                         f"{shown(row['MIXED_BF16'])} | {'' if passes(row) else 'does not pass' if resumes(row) else 'does not resume'} |")
    return "\n".join(lines)


def with_the_rows_of(page, section, text, date, order):
    """Returns the text of the page's table after replacing or adding the rows in `text`."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    old = page.read_text().split(begin)[1].split(end)[0]
    with report.rows_beside(page, section).open(newline="") as file:
        rows = {row[0]: row for row in csv.reader(file)}
    again = {row[0]: row for row in report.cells(text)}
    head = again.pop("module")
    rows |= again
    kept = [rows[name] for name in order if name in rows]
    passing = sum(not row[-1] for row in kept)
    facts, last = re.search(r"pass \((.*?)\)\. (.*)", old).groups()
    return "\n".join([f"{passing} of {len(kept)} pass ({facts}; again on {date}: {', '.join(again)}). {last}", "",
                      *(f"| {' | '.join(row)} |" for row in [head, *kept])])


def run(words):
    parser = report.parser("conformance", __doc__)
    parser.add_argument("--only", default=[], action="append", help="modules whose name contains this; may be given again")
    parser.add_argument("--device", choices=TOLERANCES, default="cpu", help="default: cpu")
    parser.add_argument("--jobs", type=report.repeats, default=1, help="modules that are gone through at a time. Default 1")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the sentence into, and benchmarks/conformance.csv beside it for the table; with --only their rows")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        versions = prepare(folder)
        import architectures

        facts = machine.facts(date=time.strftime("%Y-%m-%d"), **versions)
        facts["measured device"] = machine.output_of("nvidia-smi", "--id=0", "--query-gpu=name", "--format=csv,noheader") \
            if options.device == "cuda" else facts["processor"]
        found = report.Report("conformance", "Exported modules beside Python's own loop", facts,
                              {"steps": STEPS, "batch size": BATCH, "tolerance": TOLERANCES[options.device]})
        every = {**architectures.ARCHITECTURES, **architectures.LAST}
        wanted = {name: make for name, make in every.items()
                  if not options.only or any(each.lower() in name.lower() for each in options.only)}
        rows = {}
        try:
            for name, row in go_through_all(wanted, options.device, options.jobs):
                rows[name] = {"name": name, "last": name in architectures.LAST, "device": options.device, **row}
                print(name, row, flush=True)
        finally:  # Also reports what was measured until an interrupt.
            for name in wanted:
                if name in rows:
                    found.add(rows[name])
            text = table(found.rows, found.facts)
            found.text("Conformance", text)
            found.write(options.out)
    section = "conformance" if options.device == "cpu" else f"conformance-{options.device}"
    if options.document and options.only:
        text = with_the_rows_of(options.document, section, text, found.facts["date"], every)
    if options.document:
        report.document_with_rows(options.document, section, text)
