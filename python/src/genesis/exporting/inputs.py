"""Checks the module and the sample batch of an export."""

from __future__ import annotations

import warnings
from typing import Dict, Mapping

import torch

from genesis.errors import ExportError

# Element types of dataset fields, with their names in an exported file.
FIELD_TYPES = {getattr(torch, name): name for name in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")}


def check_module(module: torch.nn.Module) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"module is a {type(module).__name__}; accepted: a torch.nn.Module")
    if isinstance(module, (torch.jit.ScriptModule, torch._dynamo.eval_frame.OptimizedModule)):
        raise ExportError(f"module is a {type(module).__name__}; accepted: the module that torch.jit or torch.compile was given")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.lazy.LazyModuleMixin) and part.has_uninitialized_params():
            raise ExportError(f"{name or 'module'} is lazy and has no shapes yet; run the module on a batch before")
        for what, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
            if tensor.is_meta:
                raise ExportError(f"{name + '.' if name else ''}{what} is on the device meta and has no values; load the weights before")
            if tensor.layout != torch.strided:
                raise ExportError(f"{name + '.' if name else ''}{what} is of the layout {tensor.layout}; accepted: torch.strided, as tensor.to_dense() "
                                  "makes it")
            if isinstance(tensor, torch.nn.Parameter) and any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride())):
                raise ExportError(f"the parameter {name + '.' if name else ''}{what} is expanded: several of its elements are one number, which no "
                                  "optimizer can update; give torch.nn.Parameter(tensor.clone())")
            if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
                raise ExportError(f"the parameter {name + '.' if name else ''}{what} has a hook of its gradient, which no graph has; remove it, and "
                                  "hook a tensor that forward computes, or give the optimizer groups")
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            warnings.warn(f"{name or 'module'} has get_extra_state(), which no file of a job holds: load a checkpoint with "
                          "load_state_dict(..., strict=False)", stacklevel=3)
        if isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.track_running_stats and part.momentum is None:
            raise ExportError(f"{name or 'module'} has momentum=None, an average over all batches that no graph can hold; give it a number")


def check_batch(batch: Mapping[str, torch.Tensor], dynamic: bool) -> None:
    if not batch:
        raise ExportError("batch is empty; accepted: a dict of tensors, one for each field of the dataset")
    sizes = {}
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"batch[{name!r}] is a {type(tensor).__name__}; accepted: a torch.Tensor")
        if tensor.dtype not in FIELD_TYPES:
            raise ExportError(f"batch[{name!r}] is of {tensor.dtype}; accepted: {', '.join(map(str, FIELD_TYPES))}")
        if tensor.dim() == 0:
            raise ExportError(f"batch[{name!r}] has no dimensions; accepted: the batch as first dimension")
        sizes[name] = tensor.shape[0]
    if len(set(sizes.values())) > 1:
        raise ExportError(f"the fields of the batch have {sizes} examples; accepted: the same number in each")
    count, least = next(iter(sizes.values())), 2 if dynamic else 1
    if count < least:
        raise ExportError(f"the batch has {count} {'example' if count == 1 else 'examples'}; accepted: {least} or more"
                          + (", because a size of 1 is a special case to PyTorch" if dynamic else ""))


def with_distinct_size(module: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Cuts the batch, if possible, to a number of examples that equals no other size, because a tracer gives equal sizes the same symbol."""
    tensors = [*module.parameters(), *module.buffers()]
    others = {size for tensor in tensors for size in tensor.shape} | {size for tensor in batch.values() for size in tensor.shape[1:]}
    most = next(iter(batch.values())).shape[0]
    size = next((size for size in range(most, 1, -1) if size not in others), most)
    return {name: tensor[:size] for name, tensor in batch.items()}
