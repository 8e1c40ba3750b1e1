"""Finds operators that compute with several rows of a batch.

A loss with such an operator depends on the batch size, and the losses of two batches do not add up to the loss of both together.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Set

import torch
from torch.fx import Node

ATEN = torch.ops.aten
# Position of the argument with the dimension, or the list of dimensions, along which an operator normalises, scans, sorts, moves or selects,
# by the operator's name.
DIMENSION = {"_softmax": 1, "softmax": 1, "_log_softmax": 1, "log_softmax": 1, "_safe_softmax": 1, "cumsum": 1, "cumprod": 1, "logcumsumexp": 1,
             "cummax": 1, "cummin": 1, "sort": 1, "argsort": 1, "msort": 1, "flip": 1, "roll": 2, "renorm": 2, "_fft_c2c": 1, "_fft_r2c": 1,
             "_fft_c2r": 1, "gather": 1, "index_select": 1, "take_along_dim": 2}
# Operators that move whole rows.
MOVES = {"sort", "argsort", "gather", "index_select", "index", "index_put", "take_along_dim"}
SCATTERS = {"scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill"}
BATCH_NORMS = {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_batch_norm_with_update", "batch_norm"}
# Operators that sum over a dimension, so that batches add up.
SUMS = {"sum", "mean", "count_nonzero", "dot", "vdot", "mm", "bmm", "mv", "addmm", "addmv", "baddbmm", "matmul", "linear", "einsum", "tensordot", "inner",
        "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div", "l1_loss"}
GROUPED = ATEN._grouped_mm.default


class RowMixing:
    """A test of the operators of a graph.

    Args:
        nodes: all nodes of the graph.
        of_values: those that depend on the values of the batch.
        symbol: the batch size in the shapes of the graph.
    """

    def __init__(self, nodes: Any, of_values: Set[Node], symbol: Any) -> None:
        self._of_values = of_values
        self._symbol = symbol
        # A mixture of experts sorts rows by the expert of each, multiplies them in groups, and moves them back.
        self._has_groups = any(node.target is GROUPED for node in nodes)

    def inputs(self, node: Node) -> List[Node]:
        """Returns the inputs whose values matter to the rows. The ends of the groups of rows do not."""
        if node.target is GROUPED:
            return [each for each in node.args[:2] if isinstance(each, Node)]
        return node.all_input_nodes

    def mixes(self, node: Node) -> bool:
        results = list(_tensors(node.meta.get("val")))
        if node.op != "call_function" or not results:
            return False
        if any(len(self._dimensions(each)) > 1 or not all(map(self._is_multiple, each.shape)) for each in results):
            return True
        first = next((each for each in node.args if isinstance(each, (Node, list, tuple))), None)
        name = _name(node.target)
        inputs = [each for each in node.all_input_nodes if each in self._of_values and self._dimensions(each.meta.get("val"))]
        if not inputs:
            return False
        if not any(map(self._dimensions, results)):  # It reduces the dimension of the batch.
            return name not in SUMS
        if not isinstance(first, Node):
            return False
        value = first.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return False
        return self._along_batch(node, name, first, value, self._dimensions(value))

    def _along_batch(self, node: Node, name: str, first: Node, value: torch.Tensor, batch: List[int]) -> bool:
        """Returns whether an operator whose result has the dimension of the batch computes along it."""
        if name in MOVES and self._has_groups:
            return False
        if name in DIMENSION:
            return any(each in batch for each in _chosen(node, DIMENSION[name], value.dim()))
        if name in SCATTERS:
            return any(each in batch for each in _chosen(node, 1, value.dim()))
        if name in ("index", "index_put"):
            return any(index is not None and dimension in batch and not _counts_up(index) for dimension, index in enumerate(node.args[1]))
        if name == "embedding":
            return bool(batch) and first in self._of_values
        if name in BATCH_NORMS:
            trains = name in ("_native_batch_norm_legit_functional", "_batch_norm_with_update") or next(
                (each for each in node.args if isinstance(each, bool)), False)
            return trains and any(each != 1 for each in batch)
        if name in ("native_layer_norm", "layer_norm"):
            return any(each >= value.dim() - len(node.args[1]) for each in batch)
        if name in ("native_group_norm", "group_norm"):
            return any(each > 0 for each in batch)
        if "scaled_dot_product" in name:
            key = node.args[1].meta["val"]
            return key.dim() - 2 in self._dimensions(key)
        if name in ("convolution", "conv1d", "conv2d", "conv3d"):
            return any(each > 1 for each in batch)
        if "pool" in name and any(f"pool{count}d" in name for count in (1, 2, 3)):
            return any(each >= value.dim() - int(name[name.index("pool") + 4]) for each in batch)
        return False

    def _dimensions(self, value: Any) -> List[int]:
        """Returns the dimensions of a tensor whose size depends on the batch size."""
        if not isinstance(value, torch.Tensor):
            return []
        return [place for place, size in enumerate(value.shape) if isinstance(size, torch.SymInt) and self._symbol in size.node.expr.free_symbols]

    def _is_multiple(self, size: Any) -> bool:
        """Returns whether a size is a multiple of the batch size, or independent of it."""
        if not isinstance(size, torch.SymInt) or self._symbol not in size.node.expr.free_symbols:
            return True
        one, *others = (size.node.expr.subs(self._symbol, 7 * times) for times in (1, 2, 3))
        return others == [2 * one, 3 * one]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _name(target: Any) -> str:
    name = target._schema.name.split("::")[1] if isinstance(target, torch._ops.OpOverload) else ""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _chosen(node: Node, place: int, dimensions: int) -> List[int]:
    """Returns the dimensions along which an operator works."""
    schema = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments] if schema is not None else []
    name = next((each for each in ("dim", "dims") if each in names), None)
    if name is not None:
        place = names.index(name)
    value = node.kwargs.get(name) if name in node.kwargs else node.args[place] if place < len(node.args) else -1
    chosen = value if isinstance(value, (list, tuple)) else [value]
    if not chosen:  # torch.roll without dims rolls the flattened tensor.
        return list(range(dimensions))
    return [each % max(dimensions, 1) for each in chosen if isinstance(each, int)]


def _counts_up(index: Any) -> bool:
    """Returns whether an index is 0, 1, 2, ..., so that each row selects from itself, or one into the flattened rows, such as
    ``torch.arange(batch) * length + position``."""
    while isinstance(index, Node):
        name = _name(index.target)
        if name == "arange":
            return len(index.args) == 1 or (index.args[0] == 0 and index.args[2:] in ((), (1,)))
        if name == "add" and all(isinstance(each, Node) for each in index.args[:2]):
            return any(map(_counts_up, index.args[:2]))
        if name not in ("view", "reshape", "unsqueeze", "expand", "_to_copy", "to", "clone", "alias", "lift_fresh_copy", "detach", "mul"):
            return False
        index = index.args[0]
    return False
