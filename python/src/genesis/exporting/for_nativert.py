"""Rewrites operators that nativert of torch 2.11 cannot compute, or whose results it lays out in memory differently from the trace."""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterator, Tuple

import torch
from torch.export.exported_program import ExportedProgram

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


def reshape_views(program: ExportedProgram) -> None:
    """Replaces each ``view`` by ``reshape``, which copies if the memory layout does not allow a view.

    A trace has the layouts of torch's own kernels, and of the module's tensors. nativert and a worker have other kernels, with other layouts,
    for many operators, and all tensors of the module are contiguous. A view is kept if it or its tensor is written to, because both must
    share memory; what it views is then laid out as in the trace."""
    bases = _bases(program.graph)
    written = {bases[given] for node in program.graph.nodes for argument, given in _tensors_of(node) if argument.alias_info.is_write}
    views = [node for node in program.graph.nodes if node.target in VIEWS]
    for node in views:
        if bases[node] not in written:
            node.target = aten.reshape.default
    for base in dict.fromkeys(bases[node] for node in views if bases[node] in written):
        if base.op == "call_function":
            _lay_out(program, base)


def _tensors_of(node: torch.fx.Node) -> Iterator[Tuple[Any, torch.fx.Node]]:
    """Yields the arguments of an operator that it writes to, or whose memory its result shares, each with its entry in the schema."""
    if isinstance(node.target, torch._ops.OpOverload):
        for number, argument in enumerate(node.target._schema.arguments):
            given = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is not None and isinstance(given, torch.fx.Node):
                yield argument, given


def _returns_a_view(node: torch.fx.Node) -> bool:
    returns = node.target._schema.returns if isinstance(node.target, torch._ops.OpOverload) else ()
    return any(each.alias_info is not None for each in returns)


def _bases(graph: torch.fx.Graph) -> Dict[torch.fx.Node, torch.fx.Node]:
    """Returns for each node the one that allocated the memory of its result. An element of a list of views has the memory of the list."""
    bases: Dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        viewed = next((given for _, given in _tensors_of(node)), None) if _returns_a_view(node) else None
        if node.target is operator.getitem and bases[node.args[0]] is not node.args[0]:
            viewed = node.args[0]
        bases[node] = node if viewed is None else bases[viewed]
    return bases


def _lay_out(program: ExportedProgram, node: torch.fx.Node) -> None:
    """Gives the result of a node the memory layout that it has in the trace."""
    value = node.meta["val"]
    sizes, strides = ([each if isinstance(each, int) else each.node.hint for each in several] for several in (value.shape, value.stride()))
    order = sorted(range(len(sizes)), key=lambda dimension: (-strides[dimension], -sizes[dimension]))
    calls = [(aten.permute.default, order), (aten.contiguous.default,), (aten.permute.default, [order.index(each) for each in range(len(order))])]
    last, users = node, list(node.users)
    for target, *arguments in calls[1:2] if order == sorted(order) else calls:
        with program.graph.inserting_after(last):
            last = program.graph.call_function(target, (last, *arguments))
        last.meta["val"] = target(last.args[0].meta["val"], *arguments)
    for user in users:
        user.replace_input_with(node, last)
    program.graph_signature.replace_all_uses(node.name, last.name)


def divide_where_sizes_become_floats(graph: torch.fx.Graph) -> None:
    """Replaces each ``sym_float(size)``, as in the gradient of ``x.std(0)``, by ``size / 1``, because nativert lacks ``sym_float``."""
    for node in graph.nodes:
        if node.target is torch.sym_float:
            node.target, node.args = operator.truediv, (node.args[0], 1)
