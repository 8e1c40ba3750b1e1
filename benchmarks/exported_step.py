"""Compares exported modules in genesis-worker, as graphs and with compiled steps, with the same modules in Python: torch eager with
torch.amp, and torch.compile.

  benchmarks/run exported-step [--out DIR] [--blocks N] [--seconds S] [--only TEXT]... [--mode MODE]...
                                     [--earlier REPORT.json] [--document docs/exported_modules.md]

The modules come from torchvision, timm and transformers. All sides train one after the other on one core with one thread, from the same
weights, with the same batches and optimizer. A block trains each side once, in an order that each block reverses. The first quarter
of its steps and the whole first block are dropped. A side whose losses differ from genesis-worker's is refused. Needs the Python of
deploy/setup.sh --bench."""

import concurrent.futures
import copy
import functools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import statistics
import tempfile
import time
import warnings

import numpy
import torch

import conformance
import machine
import peers
import report
import sides
import spread

OURS, OURS_COMPILED, EAGER, COMPILED = "genesis-worker", "ours, compiled", "torch eager", "torch.compile"
# The way of genesis-worker to execute a step with which each peer is compared.
BESIDE = {EAGER: OURS, COMPILED: OURS_COMPILED}
MODES = ("FP32", "MIXED_BF16")
BATCH, SEED = 32, 3
# Low enough that the few examples are not memorized, because differences of losses near 0 would only show rounding.
LEARNING_RATE = 1e-5
# Maximum relative change of a loss due to a compiler's rounding.
MOST_OF_COMPILER = 0.05


def modules():
    """Returns modules that are so large that the arithmetic of a step outweighs its overhead."""
    import architectures as made

    large = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
    return {
        "resnet18": made.vision("resnet18"),
        "mobilenet_v2": made.vision("mobilenet_v2"),
        "convnext_atto": made.image_model("convnext_atto"),
        "vit_tiny": made.image_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=6),
        "swin_tiny": made.image_model("swin_tiny_patch4_window7_224", img_size=32, window_size=4, depths=(1, 1), num_heads=(2, 4),
                                      embed_dim=64),
        "Llama": made.language("Llama", **large, num_key_value_heads=4, max_position_embeddings=32),
        "GPT2": made.language("GPT2", n_embd=256, n_layer=4, n_head=8, n_positions=32),
        "Bert": made.masked("Bert", **large),
        "T5": made.translation("T5", d_model=256, d_ff=1024, d_kv=32, num_layers=2, num_heads=8),
        "Mamba": made.language("Mamba", hidden_size=128, num_hidden_layers=2, state_size=8),
    }


class Python:
    """A persistent process with a training loop in Python: torch eager, or with torch.compile around the loss."""

    def __init__(self, side, made, mode, core, folder):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=self._serve, args=(theirs, side, made, mode, core, folder), daemon=False)
        self.process.start()
        theirs.close()

    def ask(self, steps):
        try:
            self.pipe.send(steps)
            answer = self.pipe.recv()
        except (EOFError, BrokenPipeError):
            self.process.join()
            raise sides.Refused(f"the process ended with {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise sides.Refused(answer)
        return answer

    def stop(self):
        self.process.kill()
        self.process.join()

    @staticmethod
    def _serve(pipe, side, made, mode, core, folder):
        os.sched_setaffinity(0, [core])
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        module, arrays, loss = made
        call = functools.partial(loss, module)
        if side == COMPILED:
            import torch._inductor.config as inductor

            inductor.fallback_random = True  # Uses the random numbers of eager mode.
            call = torch.compile(call)
        start = copy.deepcopy(module.state_dict())
        try:
            while True:
                pipe.send(Python._train(module, arrays, call, mode, start, pipe.recv()))
        except EOFError:
            pass
        # An exception of a module or of the compiler becomes the reason in the row.
        except Exception as error:
            pipe.send(" ".join(str(error).split())[:300] or type(error).__name__)

    @staticmethod
    def _train(module, arrays, call, mode, start, steps):
        module.load_state_dict(start)
        module.train()
        optimizer = torch.optim.AdamW([each for each in module.parameters() if each.requires_grad], lr=LEARNING_RATE, weight_decay=0.01,
                                      fused=True)
        data = {name: torch.tensor(array) for name, array in arrays.items()}
        examples = len(next(iter(data.values())))
        order = conformance.twin().batches(examples - examples // 10, BATCH, SEED)
        chosen = [next(order) for _ in range(steps)]
        torch.manual_seed(SEED)
        losses = []
        for number, rows in enumerate(chosen):
            if number == peers.warm_up_of(steps):
                begin = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=mode != "FP32"):
                now = call({name: tensor[rows] for name, tensor in data.items()}).float()
            now.backward()
            optimizer.step()
            losses.append(now.detach())
        seconds = time.perf_counter() - begin
        return {"losses": [each.item() for each in losses], "seconds": seconds, "steps": steps - peers.warm_up_of(steps),
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


class Comparison:
    """A comparison of all sides for one module in one mode, over several blocks."""

    def __init__(self, made, mode, folder, options):
        self.made, self.mode, self.folder, self.options = made, mode, folder, options
        self.core = min(os.sched_getaffinity(0))
        self.seconds = {side: [] for side in (OURS, OURS_COMPILED, EAGER, COMPILED)}
        self.peak = {}
        self.deviation = 0.0

    def _job(self, steps):
        return {"model": {"exported": {"path": str(self.folder / "module.pt2")}},
                "dataset": {"arrays": {"path": str(self.folder / "rows.npz")}},
                "training": {"max_steps": steps, "batch_size": BATCH, "seed": SEED, "max_grad_norm": -1},
                "optimizer": {"learning_rate": LEARNING_RATE},
                "precision": {"mode": self.mode, "watchdog": {rule: {"action": "OFF"} for rule in ("divergence", "slowdown")}}}

    def _compile(self):
        job = self.folder / "compile.json"
        job.write_text(json.dumps(self._job(1)))
        try:
            sides.compile_step(job, self.folder / "compiled")
        except RuntimeError as error:
            raise sides.Refused(f"{OURS_COMPILED}: {str(error).strip().splitlines()[-1]}") from None

    def _ours(self, side, steps):
        flags = ["--compiled-dir", self.folder / "compiled"] if side == OURS_COMPILED else []
        run = sides.WorkerRun(self.folder / "worker", self._job(steps), [self.core], *flags)
        if ("\nstep: compiled" in run.output) != (side == OURS_COMPILED) or run.modes != {self.mode}:
            raise sides.Refused(f"genesis-worker ran in {run.modes}, and its log has {re.findall('^step: .*', run.output, re.MULTILINE)}")
        return {"losses": run.losses, "seconds": run.per_step(peers.warm_up_of(steps))[0], "steps": 1, "peak_bytes": run.peak_bytes}

    def run(self):
        started = {side: Python(side, self.made, self.mode, self.core, self.folder) for side in (EAGER, COMPILED)}
        ways = {**{side: functools.partial(self._ours, side) for side in (OURS, OURS_COMPILED)},
                **{side: process.ask for side, process in started.items()}}
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                compiled = pool.submit(self._compile)
                started[COMPILED].ask(4)
                compiled.result()
            self.steps = peers.steps_that_fill(
                self.options.seconds, lambda steps, warm_up: {"seconds": 0.0, **started[EAGER].ask(max(steps, 8))})
            self.steps = max(self.steps, 12)
            for block in range(self.options.blocks + 1):
                order = list(ways) if block % 2 == 0 else list(ways)[::-1]
                found = {side: ways[side](self.steps) for side in order}
                for side, one in found.items():
                    try:
                        self.deviation = max(self.deviation, peers.compare_losses(found[OURS]["losses"], one["losses"], self.mode,
                                                                                  self._tolerance(side, found)))
                    except sides.Refused as refused:
                        raise sides.Refused(f"{side}: {refused}") from None
                    if block > 0:
                        self.seconds[side].append(one["seconds"] / one["steps"])
                        self.peak[side] = one["peak_bytes"]
        finally:
            for process in started.values():
                process.stop()

    def _tolerance(self, side, found):
        """Returns the tolerance for the losses of a side; None for the default.

        Eager sides compute the same sums. Compilers sum in other orders, which in some modules (at first those with consecutive batch
        norms) leads to other losses within a few steps. The compiled step may then differ from eager by twice as much as torch.compile
        does."""
        if side not in (OURS_COMPILED, COMPILED):
            return None
        theirs = peers.compare_losses(found[EAGER]["losses"], found[COMPILED]["losses"], self.mode, MOST_OF_COMPILER)
        return max(peers.TOLERANCE[self.mode], min(2 * theirs, MOST_OF_COMPILER))

    def figures(self):
        return {"steps_per_block": self.steps, "most_loss_difference": self.deviation,
                **{f"{side} ms_per_step": spread.summary([1e3 * each for each in values]) for side, values in self.seconds.items()},
                **{f"over {side}": spread.median_interval([a / b for a, b in zip(self.seconds[side], self.seconds[ours])])
                   for side, ours in BESIDE.items()},
                **{f"{side} peak_mib": value / 2**20 for side, value in self.peak.items()}}


def table(rows, facts):
    lines = ["Times of a step; torch eager over the graph, and torch.compile over the compiled step (above 1: genesis-worker is faster), "
             f"with the 95 % interval of the median of the blocks; one thread, batches of {BATCH} ({facts['date']}, {facts['processor']}). "
             "Memory is the peak of genesis-worker with the graph, of that of the eager process.", "",
             "| module | mode | graph | torch eager | compiled | torch.compile | memory |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        if "refused" in row:
            lines.append(f"| {row['module']} | {row['mode']} | refused: {row['refused'].replace('|', '/')[:160]} | | | | |")
            continue
        lines.append(f"| {row['module']} | {row['mode']} | {row[f'{OURS} ms_per_step']['median']:.1f} ms | "
                     f"{peers.interval(row[f'over {EAGER}'], 2)} | {row[f'{OURS_COMPILED} ms_per_step']['median']:.1f} ms | "
                     f"{peers.interval(row[f'over {COMPILED}'], 2)} | "
                     f"{row[f'{OURS} peak_mib']:.0f} of {row[f'{EAGER} peak_mib']:.0f} MiB |")
    for mode in MODES:
        measured = [row for row in rows if row["mode"] == mode and "refused" not in row]
        if measured:
            medians = [f"{statistics.median(row[f'over {side}']['median'] for row in measured):.2f}" for side in BESIDE]
            lines.append(f"| median of {len(measured)} | {mode} | | torch eager {medians[0]} | | torch.compile {medians[1]} | |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("exported-step", __doc__)
    parser.add_argument("--blocks", type=report.repeats, default=6, help="measured blocks. Default 6")
    parser.add_argument("--seconds", type=float, default=3, help="of training in a block. Default 3")
    parser.add_argument("--only", default=[], action="append", help="modules whose name contains this; may be given again")
    parser.add_argument("--earlier", type=pathlib.Path, help="a report of this machine: rows that are not measured now are its")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the medians into, and benchmarks/exported-step.csv beside it for the table")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="genesis-") as name:
        folder = pathlib.Path(name)
        versions = conformance.prepare(folder)
        import genesis

        found = report.Report("exported-step", "Exported modules beside Python", machine.facts(date=time.strftime("%Y-%m-%d"), **versions),
                              {"batch size": BATCH, "blocks": options.blocks, "seconds_per_block": options.seconds, "threads": 1})
        for module_name, make in modules().items():
            if options.only and not any(each.lower() in module_name.lower() for each in options.only):
                continue
            torch.manual_seed(0)
            module, arrays, loss = made = make()
            numpy.savez(folder / "rows.npz", **arrays)
            genesis.export(module.train(), {field: torch.tensor(array[:BATCH]) for field, array in arrays.items()}, folder / "module.pt2",
                           loss=loss, precisions=list(MODES))
            for mode in options.mode or MODES:
                row = sides.compared({"name": f"{module_name}, {mode}", "module": module_name, "mode": mode},
                                     Comparison(made, mode, folder, options))
                found.add(row)
                print(json.dumps(row), flush=True)
    if options.earlier:
        rows = {row["name"]: row for row in [*json.loads(options.earlier.read_text())["rows"], *found.rows]}
        found.rows = list(rows.values())
    text = table(found.rows, found.facts)
    found.text("Speed", text)
    found.write(options.out)
    if options.document:
        report.document_with_rows(options.document, "exported-step", text)
