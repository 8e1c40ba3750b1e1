"""Rewrites operators that nativert of torch 2.11 cannot compute, or whose results it lays out in memory differently from the trace."""

from __future__ import annotations

import operator
from typing import Dict, Set

import torch

aten = torch.ops.aten

# Memory formats that need no rewriting.
PLAIN = (None, torch.contiguous_format, torch.preserve_format)
VIEWS = (aten.view.default, aten._unsafe_view.default)


def copy_in_two_steps(graph: torch.fx.GraphModule) -> None:
    """Rewrites operators with a memory format so that nativert produces that format. Call it before the export.

    nativert's ``_to_copy`` fails with ``channels_last``, so the type is converted first and the result is cloned. Its ``clone``
    keeps the gaps of its input, and its ``full_like`` supports only contiguous results."""
    for node in list(graph.graph.nodes):
        value, format = node.meta.get("val"), node.kwargs.get("memory_format")
        if node.target is aten._to_copy.default and format not in PLAIN:
            _change_type_and_clone(graph.graph, node, format)
        elif node.target is aten.clone.default and format in (None, torch.preserve_format) and value.is_contiguous():
            node.kwargs = {"memory_format": torch.contiguous_format}
        elif node.target is aten.full_like.default and not value.is_contiguous():
            with graph.graph.inserting_before(node):
                empty = graph.graph.call_function(aten.empty_like.default, node.args[:1], node.kwargs)
            node.target, node.args, node.kwargs = aten.fill.Scalar, (empty, node.args[1]), {}


def _change_type_and_clone(graph: torch.fx.Graph, node: torch.fx.Node, format: torch.memory_format) -> None:
    given = node.args[0]
    if given.meta["val"].dtype != node.meta["val"].dtype:
        options = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
        with graph.inserting_before(node):
            given = graph.call_function(aten._to_copy.default, (given,), options)
    node.target, node.args, node.kwargs = aten.clone.default, (given,), {"memory_format": format}


def reshape_views(graph: torch.fx.Graph) -> None:
    """Replaces each ``view`` by ``reshape``, which copies if the memory layout does not allow a view.

    A trace has the layouts of torch's own kernels. nativert and a worker have other kernels, with other layouts, for many operators. A view
    is kept if it or its tensor is written to, because both must share memory."""
    written = _written_to(graph)
    for node in graph.nodes:
        if node.target in VIEWS and node not in written:
            node.target = aten.reshape.default


def _written_to(graph: torch.fx.Graph) -> Set[torch.fx.Node]:
    """Returns the nodes that share memory with a node that an operator writes to."""
    memory: Dict[torch.fx.Node, torch.fx.Node] = {}
    written: Set[torch.fx.Node] = set()
    for node in graph.nodes:
        memory[node] = node
        if node.target is operator.getitem:
            memory[node] = memory[node.args[0]]
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for number, argument in enumerate(node.target._schema.arguments):
            given = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is None or not isinstance(given, torch.fx.Node):
                continue
            memory[node] = memory[given]
            if argument.alias_info.is_write:
                written.add(memory[given])
    return {node for node in memory if memory[node] in written}


def divide_where_sizes_become_floats(graph: torch.fx.Graph) -> None:
    """Replaces each ``sym_float(size)``, as in the gradient of ``x.std(0)``, by ``size / 1``, because nativert lacks ``sym_float``."""
    for node in graph.nodes:
        if node.target is torch.sym_float:
            node.target, node.args = operator.truediv, (node.args[0], 1)
