"""Modules of transformers, torchvision and timm through genesis.export, training, resume, and back into Python.

  tests/benchmarks/run conformance [--out DIR] [--only TEXT ...] [--document docs/exported_modules.md]

Each module is exported, and trained for 50 steps in FP32 and in MIXED_BF16 by genesis-worker and by a loop in Python, on the same
batches, both with LibTorch's kernels: its row has the largest relative difference of a loss. The second half is trained again from a checkpoint and has
to give the same losses to the bit, and the module has to take the weights. Needs the Python of deploy/setup.sh --bench.
"""

import copy
import json
import multiprocessing
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
import report

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
STEPS, BATCH, SEED = 50, 6, 3
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 2e-2}
# A bound on a broken run.
LONGEST = 600


def twin():
    """tests/interop/twin.py, which orders batches as the worker does."""
    for name in ("GENESIS_SCALER_DRIVER", "GENESIS_TRAJECTORIES"):
        os.environ.setdefault(name, "")
    os.environ.setdefault("GENESIS_WORKER", str(BIN / "genesis-worker"))
    sys.path.insert(0, str(SOURCE / "tests" / "interop"))
    import twin as found

    return found


def train(job, folder, *flags):
    """Losses of the steps that genesis-worker made."""
    folder.mkdir(exist_ok=True)
    telemetry = folder / "telemetry.jsonl"
    done = subprocess.run([BIN / "genesis-worker", "--spec", job, "--checkpoint-dir", folder, "--telemetry", telemetry,
                           "--threads", "1", *flags],
                          capture_output=True, text=True, env={**os.environ, "ENABLE_FP16_TRAINING": "true",
                                                               # Ours round BF16 less often than those of the loop in Python.
                                                               "GENESIS_OWN_KERNELS": "false"})
    if done.returncode != 0:
        raise RuntimeError(next(line for line in done.stderr.splitlines() if "FAILURE" in line or "failed" in line))
    return [json.loads(line)["loss"] for line in telemetry.read_text().splitlines()]


def loop(module, arrays, loss, mode):
    """Losses of the same steps in Python."""
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.AdamW([each for each in module.parameters() if each.requires_grad], lr=1e-3, weight_decay=0.01, fused=True)
    examples = len(next(iter(arrays.values())))
    order = twin().batches(examples - examples // 10, BATCH, SEED)
    data = {name: torch.tensor(array) for name, array in arrays.items()}
    torch.manual_seed(SEED)
    losses = []
    for _ in range(STEPS):
        chosen = next(order)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode != "FP32"):
            now = loss(module, {name: tensor[chosen] for name, tensor in data.items()}).float()
        now.backward()
        optimizer.step()
        losses.append(now.item())
    return losses


def difference(ours, theirs):
    """Relative to theirs, which is 0 where a module has learnt its few examples by heart."""
    if ours == theirs:
        return 0.0
    return abs(ours - theirs) / abs(theirs) if theirs else float("inf")


def prepare(folder):
    """Lets this Python import the package as it is committed here; the versions of what modules are made with."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    subprocess.run([SOURCE / "deploy" / "wheel.sh", "--output", folder, "--install", f"{folder}/python"], check=True,
                   stdout=subprocess.DEVNULL)
    sys.path.insert(0, f"{folder}/python")
    return {name: __import__(name).__version__ for name in ("torch", "transformers", "torchvision", "timm")}


def go_through(make):
    """The figures of one module; an exception says where it stops."""
    import genesis

    torch.manual_seed(0)
    module, arrays, loss = make()
    module.train()
    row = {"parameters": sum(each.numel() for each in module.parameters())}
    with tempfile.TemporaryDirectory(prefix="genesis-") as name:
        folder = pathlib.Path(name)
        numpy.savez(folder / "rows.npz", **arrays)
        begin = time.monotonic()
        genesis.export(module, {field: torch.tensor(array[:BATCH]) for field, array in arrays.items()}, folder / "module.pt2",
                       loss=loss, precisions=list(TOLERANCE))
        row["export_seconds"] = round(time.monotonic() - begin, 1)
        for mode in TOLERANCE:
            job = folder / f"{mode}.yaml"
            job.write_text(json.dumps({
                "model": {"exported": {"path": str(folder / "module.pt2")}}, "dataset": {"arrays": {"path": str(folder / "rows.npz")}},
                "training": {"max_steps": STEPS, "batch_size": BATCH, "seed": SEED, "max_grad_norm": -1},
                "checkpoint": {"every_steps": STEPS // 2}, "precision": {"mode": mode, "watchdog": {
                    rule: {"action": "OFF"} for rule in ("divergence", "slowdown")}}}))
            ours = train(job, folder / mode)
            theirs = loop(module, arrays, loss, mode)
            row[mode] = max(difference(a, b) for a, b in zip(ours, theirs, strict=True))
            half, whole = sorted((folder / mode).glob("*.pt"))
            row[f"{mode} resumes to the bit"] = train(job, folder / f"{mode} rest", "--resume", str(half)) == ours[STEPS // 2:]
            copy.deepcopy(module).load_state_dict(torch.load(whole)["model_state_dict"])
    return row


def alone(make, queue):
    try:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        queue.put(go_through(make))
    except Exception as error:  # Whatever a module throws is its row.
        queue.put({"fault": " ".join(str(error).split())[:300] or type(error).__name__})


def figures(make):
    """In a process of its own: a module may take all memory with it."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=alone, args=(make, queue))
    process.start()
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        process.join()
        return {"fault": f"took more than {LONGEST} s"}
    return {"fault": f"the process ended with {process.exitcode}"} if queue.empty() else queue.get()


def passes(row):
    return "fault" not in row and all(row[mode] <= most and row[f"{mode} resumes to the bit"] for mode, most in TOLERANCE.items())


def table(rows, facts):
    def shown(value):
        return "0" if value == 0 else f"{value:.0e}"

    lines = [f"{sum(map(passes, rows))} of {len(rows)} pass ({facts['date']}, {facts['processor']}, transformers {facts['transformers']}, "
             f"torchvision {facts['torchvision']}, timm {facts['timm']}). The last {sum(row['last'] for row in rows)} were not "
             "looked at while the exporter was made.", "",
             "| module | parameters | export | FP32 | MIXED_BF16 | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        if "fault" in row:
            lines.append(f"| {row['name']} | | | | | {row['fault'].replace('|', '/')[:160]} |")
        else:
            resumed = all(row[f"{mode} resumes to the bit"] for mode in TOLERANCE)
            lines.append(f"| {row['name']} | {row['parameters']:,} | {row['export_seconds']:.1f} s | {shown(row['FP32'])} | "
                         f"{shown(row['MIXED_BF16'])} | {'' if passes(row) else 'does not pass' if resumed else 'does not resume to the bit'} |")
    return "\n".join(lines)


def row_names(text):
    """The lines of a table by the name that each begins with."""
    return {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ") and line.count(" |") > 4
            and not line.startswith(("| module |", "| ---"))}


def with_the_rows_of(page, text, date, order):
    """The table of the page with the rows of `text` in place of its own, or among them."""
    begin, end = "<!-- conformance: begin -->", "<!-- conformance: end -->"
    old = page.read_text().split(begin)[1].split(end)[0]
    rows, again = row_names(old), row_names(text)
    rows |= again
    lines = [rows[name] for name in order if name in rows]
    passing = sum(line.endswith("|  |") for line in lines)
    facts, last = re.search(r"pass \((.*?)\)\. (.*)", old).groups()
    head = next(line for line in text.splitlines() if line.startswith("| module |"))
    return "\n".join([f"{passing} of {len(lines)} pass ({facts}; again on {date}: {', '.join(again)}). {last}", "", head,
                      "| --- | ---: | ---: | ---: | ---: | --- |", *lines])


def run(words):
    parser = report.parser("conformance", __doc__)
    parser.add_argument("--only", default=[], action="append", help="modules whose name contains this; may be given again")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into; with --only their rows")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        versions = prepare(folder)
        import architectures

        found = report.Report("conformance", "Exported modules beside Python's own loop",
                              machine.facts(date=time.strftime("%Y-%m-%d"), **versions),
                              {"steps": STEPS, "batch size": BATCH, "tolerance": TOLERANCE})
        for last, group in ((False, architectures.ARCHITECTURES), (True, architectures.LAST)):
            for name, make in group.items():
                if options.only and not any(each.lower() in name.lower() for each in options.only):
                    continue
                row = {"name": name, "last": last, **figures(make)}
                found.add(row)
                print(name, {key: value for key, value in row.items() if key not in ("name", "last")}, flush=True)
    text = table(found.rows, found.facts)
    found.text("Conformance", text)
    found.write(options.out)
    if options.document and options.only:
        text = with_the_rows_of(options.document, text, found.facts["date"], [*architectures.ARCHITECTURES, *architectures.LAST])
    if options.document:
        report.document(options.document, "conformance", text)
