"""Runs one rank of PyTorch's data-parallel training loop, for torchrun: ddp_loop.py OUT STEPS BATCH_SIZE SEED HOOK

Rank 0 writes the mean loss of each step to OUT as JSON. Each step uses the same examples as genesis-worker's ranks. HOOK is none,
error_feedback, or one of torch.distributed's default hooks for gradient compression."""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import twin


class Loss(torch.nn.Module):
    """The loss as forward(), because DistributedDataParallel wraps only that."""

    def __init__(self, model, dataset):
        super().__init__()
        self.model, self.dataset = model, dataset

    def forward(self, rows):
        return self.model.loss(self.dataset, rows)


def error_feedback(carried, bucket):
    """Sends gradients in BF16 with error feedback (1-bit SGD, Seide et al. 2014): a rank adds its rounding errors to its gradients of the
    next step. `carried` has the errors by parameter, because the buckets change after the first step."""
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        gradient.div_(dist.get_world_size()).add_(carried.get(parameter, 0))
        carried[parameter] = gradient - gradient.bfloat16()
    sum = dist.all_reduce(bucket.buffer().bfloat16(), async_op=True).get_future()
    return sum.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def main(out, hook, steps, batch_size, seed):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dataset = twin.Dataset(twin.TRAJECTORIES / "pendulum.npz")
    torch.manual_seed(seed)
    model = twin.WorldModel(dataset.observation.shape[1], dataset.action.shape[1], 32, 16)
    model.take_statistics(dataset)
    parallel = DistributedDataParallel(Loss(model, dataset))
    if hook == "error_feedback":
        parallel.register_comm_hook({}, error_feedback)
    elif hook != "none":
        parallel.register_comm_hook(None, getattr(default_hooks, hook))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    rows = twin.batches(dataset.training_size, batch_size * size, seed)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = parallel(next(rows)[rank * batch_size:(rank + 1) * batch_size])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(losses))
    dist.barrier()
    # Skips the interpreter's shutdown, in which torch's threads sometimes abort on a busy machine.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[5], *map(int, sys.argv[2:5]))
