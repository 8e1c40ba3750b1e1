"""A Python side of `peers` or `gpu`, or the measurement of the machine, in a process of its own.

peer_process.py THREADS prepare|limit|checkpoint|ray|gpu|<side> [[WORKLOAD] FOLDER [MODE]] reads one request per line (JSON) and writes one
response per line. A training side responds to {"steps": N, "warm_up": W} with the losses of all steps and the duration of those after
the warm-up. Each request trains from the same weights."""

import contextlib
import json
import os
import sys
import time

import torch

import peer_limits
import python_sides
import workloads


def save_with_torch(request):
    """Returns the seconds of torch.save, of torch.save and fsync, and of torch.load, for a state of the requested size."""
    layers = max(1, request["mebibytes"] * 2**20 // (2048 * 2048 * 12))
    model = {f"layers.{i}.weight": torch.randn(2048, 2048) for i in range(layers)}
    moments = {i: {"step": torch.tensor(7.0), "exp_avg": torch.randn(2048, 2048),
                   "exp_avg_sq": torch.rand(2048, 2048)} for i in range(layers)}
    path = os.path.join(request["folder"], "torch.pt")
    os.sync()  # The other sides also sync before each write: see Remove in checkpoint_speed.cc.
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
        return peer_limits.limits
    if kind == "checkpoint":
        return save_with_torch
    if kind == "gpu":
        import gpu_process
        return gpu_process.handler(*rest)
    if kind == "prepare":
        return lambda request: {
            **workloads.prepare(workloads.WORKLOADS[request["workload"]](request["folder"])),
            "versions": versions()}
    if kind == "ray":
        import ray_side
        return ray_side.Cluster(rest[0]).answer
    name, folder, mode = rest
    side = python_sides.SIDES[kind](workloads.WORKLOADS[name](folder), mode)
    return lambda request: side.train(request["steps"], request["warm_up"])


def main():
    torch.set_num_threads(int(sys.argv[1]))
    # Frameworks print to standard output, so responses use a copy of standard output, which itself is redirected to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    handle = handler(sys.argv[2:])
    for line in sys.stdin:
        answers.write(json.dumps(handle(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
