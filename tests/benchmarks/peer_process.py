"""A Python side of `peers`, or the measure of the machine, in a process of its own.

peer_process.py THREADS prepare|limit|checkpoint|ray|<side> [[WORKLOAD] FOLDER [MODE]]: reads a request per line
(JSON), answers with a line each. A training side answers {"steps": N, "warm_up": W} with losses of
all steps and the seconds of those after the warm-up; every request trains from the same weights."""

import contextlib
import json
import os
import sys
import time

import torch

import python_twins
import workloads

CLIP = 1.0


class Loss(torch.nn.Module):
    """The twin's loss as a forward, so that frameworks can wrap it."""

    def __init__(self, twin, mixed):
        super().__init__()
        self.twin, self.mixed = twin, mixed

    def forward(self, **fields):
        return self.twin.loss(fields, torch.autocast("cpu", torch.bfloat16, enabled=self.mixed))


class Eager:
    """torch.amp, fused AdamW, clipping: the loop that PyTorch's own pages show."""

    frees_autocast_to_framework = False

    def __init__(self, workload, mode):
        self.mixed = mode == "MIXED_BF16"
        twin = workload.twin()
        self.random = torch.get_rng_state()
        if workload.convolutions:
            twin = twin.to(memory_format=torch.channels_last)
        self.batch, self.examples = workload.batch, workload.examples()
        self.module = Loss(twin, self.mixed and not self.frees_autocast_to_framework)
        self.initial = {name: value.clone() for name, value in self.module.state_dict().items()}
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=workload.learning_rate,
                                           weight_decay=0.01, fused=True)
        self.wrap()

    def wrap(self):
        self.call = self.module

    def reset(self):
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(self.initial[name])
        self.clear_optimizer()
        torch.set_rng_state(self.random)

    def clear_optimizer(self):
        self.optimizer.state.clear()

    def step(self, fields):
        self.optimizer.zero_grad()
        loss = self.call(**fields)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), CLIP)
        self.optimizer.step()
        return loss.detach()

    def train(self, steps, warm_up):
        self.reset()
        count = len(next(iter(self.examples.values())))
        batches = python_twins.batches(count, self.batch, workloads.SEED)
        rows = [next(batches) for _ in range(steps)]
        losses, begin = [], None
        for number, chosen in enumerate(rows):
            if number == warm_up:
                begin, used = time.perf_counter(), time.process_time()
            fields = {name: values[chosen] for name, values in self.examples.items()}
            losses.append(self.step(fields))
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        return {"losses": [loss.item() for loss in losses], "seconds": seconds,
                "processor_seconds": used, "steps": steps - warm_up}


class Compiled(Eager):
    """The same with torch.compile around the loss."""

    def wrap(self):
        import torch._inductor.config as inductor
        inductor.fallback_random = True  # Draws the numbers that eager draws.
        self.call = torch.compile(self.module)


class Scripted(Eager):
    """The same with the module of the TorchScript file, as a Python program would train it."""

    def wrap(self):
        scripted = torch.jit.script(self.module.twin.module)

        def call(**fields):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
                return scripted(*(fields[name] for name in workloads.Scripted.FIELDS))

        self.call = call


class Fabric(Eager):
    """Lightning Fabric: setup, backward, clip_gradients."""

    frees_autocast_to_framework = True

    def wrap(self):
        from lightning.fabric import Fabric as Lightning
        self.fabric = Lightning(accelerator="cpu", devices=1,
                                precision="bf16-mixed" if self.mixed else "32-true")
        self.call, self.stepper = self.fabric.setup(self.module, self.optimizer)

    def step(self, fields):
        self.stepper.zero_grad()
        loss = self.call(**fields)
        self.fabric.backward(loss)
        self.fabric.clip_gradients(self.call, self.stepper, max_norm=CLIP)
        self.stepper.step()
        return loss.detach()


class Accelerate(Eager):
    """Hugging Face Accelerate: prepare, backward, clip_grad_norm_."""

    frees_autocast_to_framework = True

    def wrap(self):
        from accelerate import Accelerator
        self.accelerator = Accelerator(cpu=True, mixed_precision="bf16" if self.mixed else "no")
        self.call, self.stepper = self.accelerator.prepare(self.module, self.optimizer)

    def step(self, fields):
        self.stepper.zero_grad()
        loss = self.call(**fields)
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.call.parameters(), CLIP)
        self.stepper.step()
        return loss.detach()


SIDES = {"torch eager": Eager, "torch.compile": Compiled, "Lightning Fabric": Fabric,
         "Accelerate": Accelerate, "torch.jit": Scripted}


def rate(call, operations, seconds=0.25):
    """Operations a second: the best of calls for that long, for a limit is a best."""
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return operations / best


def matrix_rates(kind):
    for size in (512, 1024, 2048):
        left, right, out = (torch.randn(size, size).to(kind) for _ in range(3))
        yield rate(lambda: torch.mm(left, right, out=out), 2 * size**3)


def convolution_rates(kind):
    for channels, size in ((64, 64), (128, 32), (256, 16)):
        images = torch.randn(8, channels, size, size).to(kind, memory_format=torch.channels_last)
        layer = torch.nn.Conv2d(channels, channels, 3, padding=1).to(
            kind, memory_format=torch.channels_last)
        yield rate(lambda: layer(images), 2 * 8 * channels**2 * 9 * size**2)


def limits(request):
    """GFLOP/s of the fastest product and convolution, by format."""
    found = {}
    with torch.no_grad():
        for name in request["formats"]:
            kind = {"FP32": torch.float32, "BF16": torch.bfloat16}[name]
            found[name] = {"GEMM": max(matrix_rates(kind)) / 1e9,
                           "convolution": max(convolution_rates(kind)) / 1e9}
    return found


def save_with_torch(request):
    """Seconds of torch.save alone and with fsync, and of torch.load, of a state of that many MiB."""
    layers = max(1, request["mebibytes"] * 2**20 // (2048 * 2048 * 12))
    model = {f"layers.{i}.weight": torch.randn(2048, 2048) for i in range(layers)}
    moments = {i: {"step": torch.tensor(7.0), "exp_avg": torch.randn(2048, 2048),
                   "exp_avg_sq": torch.rand(2048, 2048)} for i in range(layers)}
    path = os.path.join(request["folder"], "torch.pt")
    begin = time.perf_counter()
    with open(path, "wb") as file:
        torch.save({"model_state_dict": model, "optimizer_state_dict": {"state": moments}}, file)
        saved = time.perf_counter() - begin
        os.fsync(file.fileno())
    durable = time.perf_counter() - begin
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()
    torch.load(path)
    loaded = time.perf_counter() - begin
    size = os.path.getsize(path)
    os.remove(path)
    return {"bytes": size, "saved": saved, "durable": durable, "loaded": loaded}


def versions():
    import importlib.metadata
    found = {"torch": torch.__version__}
    for name in ("lightning", "accelerate", "ray"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def handler(arguments):
    kind, *rest = arguments
    if kind == "limit":
        return limits
    if kind == "checkpoint":
        return save_with_torch
    if kind == "prepare":
        return lambda request: {**workloads.prepare(request["workload"], request["folder"]),
                                "versions": versions()}
    if kind == "ray":
        import ray_side
        return ray_side.Cluster(rest[0]).answer
    name, folder, mode = rest
    side = SIDES[kind](workloads.WORKLOADS[name](folder), mode)
    return lambda request: side.train(request["steps"], request["warm_up"])


def main():
    torch.set_num_threads(int(sys.argv[1]))
    # Frameworks print; answers have the standard output for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    handle = handler(sys.argv[2:])
    for line in sys.stdin:
        answers.write(json.dumps(handle(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
