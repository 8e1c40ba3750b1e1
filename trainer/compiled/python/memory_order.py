"""Lays out convolutions in channels_last, in which a CPU computes them without copies.

In a graph of loss and gradients, inductor does so only for forward: convolution_backward keeps the layouts of the trace and copies three
tensors each time. This module therefore converts the weights and inputs of convolutions to channels_last, so that all intermediate values
have that order too, as in a module after .to(memory_format=torch.channels_last)."""

import torch

import random_numbers

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)


def is_rows(node):
    """Returns whether the node is a 4-dim tensor (images or weights of a convolution) in contiguous order."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_contiguous() and not value.is_contiguous(
        memory_format=torch.channels_last)


def copied(graph, node, memory_format):
    made = graph.call_function(aten.clone.default, (node,), {"memory_format": memory_format})
    made.meta.update(node.meta)
    return made


def is_given(node):
    """Returns whether the node is an input or a constant, possibly detached or converted to another type, as by autocast."""
    while node.target in (aten.detach.default, aten._to_copy.default):
        node = node.args[0]
    return node.op in ("placeholder", "get_attr")


def depends_on_order(node):
    """Returns whether the values of the node depend on the memory order of a tensor."""
    if random_numbers.draws_numbers(node):
        # Random numbers are drawn in memory order. A tensor whose shape is not taken from another tensor keeps its order.
        return any(each.all_input_nodes for each in node.all_input_nodes if each.target is not aten.new_empty.default)
    return node.target in (aten.as_strided.default, aten.as_strided_scatter.default)


def lay_out_in_channels_last(graph):
    """Converts the graph's convolutions to channels_last, unless that would change values. Outputs of the graph keep their order."""
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
        node.target = aten.reshape.default  # A view may not exist in channels_last.
    output = graph.output_node()
    for node in output.all_input_nodes:
        if is_rows(node) and node.op == "call_function":
            with graph.inserting_before(output):
                output.replace_input_with(node, copied(graph, node, torch.contiguous_format))
    graph.lint()
