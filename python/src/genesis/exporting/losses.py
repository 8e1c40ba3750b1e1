"""The loss functions of an export, from the names and functions that users give."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Mapping, Union

import torch

from genesis.errors import ExportError

Loss = Union[None, str, Callable[[torch.nn.Module, Dict[str, torch.Tensor]], torch.Tensor]]

TARGET = "target"
LOSSES = {"mse": torch.nn.functional.mse_loss, "cross_entropy": torch.nn.functional.cross_entropy,
          "huber": torch.nn.functional.huber_loss}


def _does_not_take(module: torch.nn.Module, fields: Mapping[str, torch.Tensor]) -> str:
    """Returns why forward does not accept the fields as keyword arguments; empty if it does."""
    try:
        inspect.signature(module.forward).bind(**fields)
    except TypeError as error:
        return f"forward of {type(module).__name__}: {error}"
    except ValueError:  # forward has no signature.
        pass
    return ""


def function_of(loss: Loss, batch: Mapping[str, torch.Tensor]):
    if isinstance(loss, torch.nn.Module) or getattr(loss, "__module__", "") == "torch.nn.functional":
        name = getattr(loss, "__name__", f"torch.nn.{type(loss).__name__}")
        raise ExportError(f"loss is {name}, which takes an output and a target; accepted: a function of module and batch, as lambda module, batch: "
                          f"{'loss' if isinstance(loss, torch.nn.Module) else name}(module(batch['x']), batch['target']), or "
                          f"{', '.join(map(repr, LOSSES))}")
    if callable(loss):
        return loss
    if loss is None:
        def own(module, fields):
            fault = _does_not_take(module, fields)
            if fault:
                raise ExportError(f"{fault}; without loss=, {type(module).__name__}(**batch) must return it: give loss='cross_entropy', "
                                  f"'mse', 'huber' or a function of module and batch, or call its arguments {', '.join(fields)}")
            result = module(**fields)
            if isinstance(result, Mapping):
                if "loss" not in result:
                    raise ExportError(f"{type(module).__name__} gives a dict of {', '.join(map(str, result))}; accepted without loss=: one with "
                                      "loss; else give a function of module and batch as loss=")
                return result["loss"]
            return getattr(result, "loss", result)
        return own
    if loss not in LOSSES:
        raise ExportError(f"loss is {loss!r}; accepted: None, {', '.join(map(repr, LOSSES))}, or a function of the "
                          "module and the batch")
    if TARGET not in batch:
        raise ExportError(f"loss is {loss!r} and batch has no field {TARGET!r}; it has {', '.join(batch)}")
    function, target = LOSSES[loss], batch[TARGET]
    if not target.is_floating_point() and (loss != "cross_entropy" or target.dtype != torch.int64):
        raise ExportError(f"batch[{TARGET!r}] is of {target.dtype}; accepted with loss={loss!r}: torch.float32"
                          + (" (a probability of each class), or torch.int64 (the number of the class)" if loss == "cross_entropy" else ""))

    def named(module, fields):
        output = module(*(tensor for name, tensor in fields.items() if name != TARGET))
        if not isinstance(output, torch.Tensor):
            raise ExportError(f"{type(module).__name__} gives {describe(output)}; accepted with loss={loss!r}: a tensor; a function of module and "
                              "batch as loss= takes what it needs")
        target = fields[TARGET]
        # Class indices have one value for each position of an output [batch, classes, ...].
        wanted = output.shape if target.is_floating_point() else (*output.shape[:1], *output.shape[2:])
        if tuple(target.shape[1:]) != tuple(wanted[1:]):
            raise ExportError(f"{type(module).__name__} gives {describe(output)}, and batch[{TARGET!r}] is {describe(target)}; accepted "
                              f"with loss={loss!r}: {'one shape' if target.is_floating_point() else f'the shape {list(wanted)}'}")
        return function(output.float(), target)
    return named


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"
