"""Reads a torch Dataset for a job: once, or several times if random transforms return other values in each reading."""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import TYPE_CHECKING, Any, Iterator, Tuple

from genesis.data import Chunks, chunks_of, example_of, is_loader
from genesis.errors import InvalidArgumentError
from genesis.training.v1 import dataset_pb2, field_rule_pb2

if TYPE_CHECKING:
    from genesis.data import Arrays

# Number of examples that are read twice to find random transforms.
COMPARED = 4


def _is_dataset(data: Any) -> bool:
    """Returns whether the data is a torch Dataset of examples with numbers, or a DataLoader of one."""
    if is_loader(data):
        return data.batch_size is not None and _is_dataset(data.dataset)
    # A list has these methods too, but its values stay the same.
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and any(each.__module__.startswith("torch.utils.data") for each in type(data).__mro__)


def warn_if_random(data: Any) -> None:
    """Warns if the first examples of a torch Dataset have other values when they are read again, because a job would train on one reading."""
    import numpy

    if not _is_dataset(data):
        return
    dataset = data.dataset if is_loader(data) else data
    for number in range(min(COMPARED, len(dataset))):
        with contextlib.suppress(Exception):  # The data is checked when it is sent.
            first, again = (example_of(dataset[number], number) for _ in range(2))
            field = next((name for name in first if not numpy.array_equal(first[name], again[name], equal_nan=first[name].dtype.kind == "f")), None)
            if field is not None:
                warnings.warn(f"{type(dataset).__name__} gives example {number} another {field} each time, as random transforms do; the job reads it "
                              "once and trains on that in all epochs: give data_passes=8 to store 8 readings, or draw in forward of the module",
                              stacklevel=3)
                return


def several(data: Any, passes: int, holdout_fraction: Any) -> Tuple[Chunks, float]:
    """Returns several readings of a torch Dataset as one dataset, and the fraction of it that is held out.

    The held-out examples are stored once, from the last reading, so that the job does not train on them.

    Raises:
        InvalidArgumentError: the data is not a torch Dataset of examples.
    """
    if not _is_dataset(data):
        raise InvalidArgumentError(f"data_passes is {passes} and data is a {type(data).__name__}, which is read once; accepted: a torch Dataset with "
                                   "__getitem__ and __len__, or a DataLoader of one that gives examples")
    count = len(data.dataset if is_loader(data) else data)
    if holdout_fraction is None:
        rule = dataset_pb2.ArrayFileSpec.DESCRIPTOR.fields_by_name["holdout_fraction"].GetOptions().Extensions[field_rule_pb2.rule]
        holdout_fraction = rule.default_value
    # Rounded as by the trainer.
    held_out = max(1, min(count - 1, math.floor(holdout_fraction * count + 0.5)))

    def chunks() -> "Iterator[Arrays]":
        for number in range(passes):
            left = count if number == passes - 1 else count - held_out
            for arrays in chunks_of(data):
                yield {name: array[:left] for name, array in arrays.items()}
                left -= len(next(iter(arrays.values())))
                if left <= 0:
                    break

    return Chunks(chunks), held_out / ((count - held_out) * passes + held_out)
