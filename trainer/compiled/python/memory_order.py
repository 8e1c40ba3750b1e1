"""Lays out convolutions in channels_last, in which a CPU computes them without copies.

Inductor does so by itself, but in a graph of loss and gradients only for forward: convolution_backward keeps the layouts of the trace,
and each copies three maps. The graph is therefore traced with weights and inputs in that order, and so are all intermediate values, as
in a module after .to(memory_format=torch.channels_last)."""

import torch

import random_numbers

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)


def is_rows(node):
    """Whether it is a map, or weights for maps, in contiguous order."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_contiguous() and not value.is_contiguous(
        memory_format=torch.channels_last)


def copied(graph, node, memory_format):
    made = graph.call_function(aten.clone.default, (node,), {"memory_format": memory_format})
    made.meta.update(node.meta)
    return made


def is_given(node):
    """Whether it is an input or a constant, or an alias of one, or converted to another type as by autocast."""
    while node.target in (aten.detach.default, aten._to_copy.default):
        node = node.args[0]
    return node.op in ("placeholder", "get_attr")


def depends_on_order(node):
    """Whether its values depend on the memory order of a tensor."""
    if random_numbers.draws_numbers(node):
        # Numbers are drawn in memory order. A tensor created without reference to another keeps its order.
        return any(each.all_input_nodes for each in node.all_input_nodes if each.target is not aten.new_empty.default)
    return node.target in (aten.as_strided.default, aten.as_strided_scatter.default)


def lay_out_in_channels_last(graph):
    """Converts the graph's convolutions to channels_last, unless that would change values. Returned tensors keep their order."""
    convolutions = [node for node in graph.nodes if node.target in CONVOLUTIONS]
    given = dict.fromkeys(node for each in convolutions for node in each.all_input_nodes if is_given(node) and is_rows(node))
    if not given or any(map(depends_on_order, graph.nodes)):
        return
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    for node in given:
        after = first.prev if node.op in ("placeholder", "get_attr") else node
        with graph.inserting_after(after):
            made = copied(graph, node, torch.channels_last)
        for each in convolutions:
            each.replace_input_with(node, made)
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default  # Maps in another order cannot always be viewed as a vector.
    output = graph.output_node()
    for node in output.all_input_nodes:
        if is_rows(node) and node.op == "call_function":
            with graph.inserting_before(output):
                output.replace_input_with(node, copied(graph, node, torch.contiguous_format))
    graph.lint()
