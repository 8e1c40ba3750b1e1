"""Runs one rank of PyTorch's DistributedDataParallel, for `ranks`: torchrun ddp_side.py FOLDER WORKLOAD MODE STEPS WARM_UP OUT.

Rank 0 writes {"losses", "seconds", "steps"} to OUT."""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import python_sides
import python_twins
import workloads


class Parallel(python_sides.Eager):
    def wrap(self):
        self.call = DistributedDataParallel(self.module)

    def train(self, steps, warm_up):
        """Trains on this rank's part of each batch. The parts are those of genesis-worker's ranks."""
        rank, size = dist.get_rank(), dist.get_world_size()
        part = slice(rank * self.batch, (rank + 1) * self.batch)
        batches = python_twins.batches(len(next(iter(self.examples.values()))), self.batch * size, workloads.SEED)
        losses = []
        for number in range(steps):
            if number == warm_up:
                dist.barrier()
                begin = time.perf_counter()
            rows = next(batches)[part]
            # The random seed of this rank and step is that of TrainStep::PrepareRank.
            seed = python_twins.SplitMix64(workloads.SEED, number + 1).next()
            torch.manual_seed(python_twins.SplitMix64(seed, rank).next())
            losses.append(self.step({name: values[rows] for name, values in self.examples.items()}))
        seconds = time.perf_counter() - begin
        means = torch.stack(losses)
        dist.all_reduce(means)
        return {"losses": (means / size).tolist(), "seconds": seconds, "steps": steps - warm_up}


def main(folder, workload, mode, steps, warm_up, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = Parallel(workloads.WORKLOADS[workload](folder), mode).train(int(steps), int(warm_up))
    if dist.get_rank() == 0:
        pathlib.Path(out).write_text(json.dumps(found))
    dist.barrier()
    # Skips the interpreter's shutdown, in which torch's threads sometimes abort on a busy machine.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
