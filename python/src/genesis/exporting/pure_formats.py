"""Casts for pure FP16 and BF16, in which the weights have a reduced format, as after ``module.to(torch.bfloat16)`` in Python.

A loss that is computed outside of the module is computed in FP32."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterator, Optional

import torch
from torch.utils import _pytree as pytree

FORMATS = {"BF16": torch.bfloat16, "FP16": torch.float16}
# Maximum number of fields of which every subset is tried. Any further fields are always cast.
MOST_FIELDS = 4

Loss = Callable[[torch.nn.Module, Dict[str, torch.Tensor]], Any]


def cast(value: Any, format: Optional[torch.dtype]) -> Any:
    """Casts a floating-point tensor to the format. Returns other values unchanged, and all values if the format is None."""
    is_cast = format is not None and isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(format) if is_cast else value


def copy_of(tensor: torch.Tensor, format: Optional[torch.dtype]) -> torch.Tensor:
    """Returns a copy, in the format if it is a floating-point tensor."""
    return tensor.clone() if format is None or not tensor.is_floating_point() else tensor.to(format, copy=True)


def losses(loss: Loss, is_of_module: bool, fields: Dict[str, torch.Tensor], format: torch.dtype) -> Iterator[Loss]:
    """Yields variants of the loss function for a module with weights in the format. The caller uses the first one that runs.

    The first variant casts the arguments of the module, and computes the loss in FP32 from its output. It is left out for a module that
    computes its own loss (``is_of_module``). The others cast fields of the batch, starting with as few as possible. They serve such modules,
    and functions that call submodules.
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
