"""Folders of raw tensors, through which model_driver.cc and its tests pass values."""

import numpy
import torch


def write(folder, tensors):
    folder.mkdir()
    lines = []
    for number, (name, tensor) in enumerate(tensors.items()):
        (folder / f"{number}.bin").write_bytes(tensor.detach().contiguous().numpy().tobytes())
        lines.append(" ".join(map(str, [number, str(tensor.dtype).removeprefix("torch."), name, *tensor.shape])))
    (folder / "index.txt").write_text("\n".join(lines) + "\n")


def read(folder):
    tensors = {}
    for line in (folder / "index.txt").read_text().splitlines():
        number, type, name, *sizes = line.split()
        values = numpy.fromfile(folder / f"{number}.bin", dtype=type)
        tensors[name] = torch.from_numpy(values).reshape([int(size) for size in sizes])
    return tensors
