"""Pure FP16 and BF16: the casts of a step whose weights are in a reduced format, as ``module.to(torch.bfloat16)`` and a loop in Python have
them. The loss is computed in FP32 where it is computed outside of the module."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterator, Optional

import torch
from torch.utils import _pytree as pytree

FORMATS = {"BF16": torch.bfloat16, "FP16": torch.float16}
# Maximum number of fields of which each subset is tried. Other fields are cast in all of them.
MOST_FIELDS = 4

Loss = Callable[[torch.nn.Module, Dict[str, torch.Tensor]], Any]


def cast(value: Any, format: Optional[torch.dtype]) -> Any:
    """Returns floating-point tensors in the format, and all else as it is. A format of None changes nothing."""
    is_cast = format is not None and isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(format) if is_cast else value


def losses(loss: Loss, is_of_module: bool, fields: Dict[str, torch.Tensor], format: torch.dtype) -> Iterator[Loss]:
    """Yields functions that compute the loss of a module whose weights are in the format; the first that runs is the one to use.

    The first casts what the module is called with, and computes the loss in FP32 from what it returns. The others cast fields of the
    batch, as few as possible: they are for a module that computes its loss (``is_of_module``), and for a function that calls parts of it.
    """
    if not is_of_module:
        yield _casting_calls(loss, format)
    floats = [name for name, tensor in fields.items() if tensor.is_floating_point()]
    first, others = floats[:MOST_FIELDS], floats[MOST_FIELDS:]
    for count in range(len(first) + 1):
        for names in itertools.combinations(first, count):
            yield _casting_fields(loss, {*names, *others}, format)


def _casting_fields(loss: Loss, names: "set[str]", format: torch.dtype) -> Loss:
    def with_cast_fields(module, fields):
        return loss(module, {name: cast(tensor, format) if name in names else tensor for name, tensor in fields.items()})
    return with_cast_fields


def _casting_calls(loss: Loss, format: torch.dtype) -> Loss:
    def with_cast_calls(module, fields):
        with contextlib.ExitStack() as hooks:
            before = module.register_forward_pre_hook(lambda _, args, kwargs: _all((args, kwargs), format), with_kwargs=True)
            hooks.callback(before.remove)
            hooks.callback(module.register_forward_hook(lambda _, args, output: _all(output, torch.float32)).remove)
            return loss(module, fields)
    return with_cast_calls


def _all(values: Any, format: torch.dtype) -> Any:
    return pytree.tree_map(lambda value: cast(value, format), values)
