"""Selects the values of forward that backward keeps, and those that it recomputes.

A graph of loss and gradients keeps each value of forward until backward has read it. Inductor sees a single graph and fuses no loop of
forward into one of backward. torch.compile splits such a graph in two and lets backward recompute cheap values from the few that it
keeps (min_cut_rematerialization_partition). This module splits the graph in the same way, and joins the parts again with the values that
cross the cut pinned in memory."""

import torch
import torch._inductor.lowering  # noqa: F401 - registers operators that the partitioner needs.
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

import decompositions

aten = torch.ops.aten
DRAWING = (aten.exponential, aten.exponential_, aten.geometric, aten.geometric_, aten.cauchy, aten.cauchy_, aten.log_normal, aten.log_normal_)


def decomposed(step, inputs):
    """Returns the graph of `step` with operators that inductor compiles to loops. It writes only to inputs, at the end."""
    # Leave out decompositions of random operators into uniform numbers, because they draw other numbers than eager mode.
    others = {operator: how for operator, how in select_decomp_table().items() if getattr(operator, "overloadpacket", None) not in DRAWING}
    table = {**others, **decompositions.TABLE}
    with torch._inductor.config.patch(fallback_random=True):
        traced = decompositions.trace(step, inputs, table)
        # Decompositions of batch norm and drop_path write in place.
        functional = torch.func.functionalize(traced, remove="mutations")
        return decompositions.trace(functional, inputs, {})


def following(node):
    """Returns the node and all nodes that depend on it."""
    found = {node}
    for each in node.graph.nodes:
        if not found.isdisjoint(each.all_input_nodes):
            found.add(each)
    return found


def take_changes(graph):
    """Removes the copies to inputs from the graph. Returns (input, value) of each."""
    copies = graph.find_nodes(op="call_function", target=aten.copy_.default)
    changes = [node.args for node in copies]
    for node in copies:
        graph.erase_node(node)
    return changes


def cut(module, kept, gradients):
    """Splits the graph of a step in two.

    Returns:
        The graph of forward, which returns the nodes `kept` and then the values that cross the cut; and the graph of backward, which takes
        the crossing values and the scale, and returns `gradients`.
    """
    joint = torch.fx.Graph()
    copies = {}
    scale, *others = module.graph.find_nodes(op="placeholder")
    # The partitioner recognizes the inputs of backward by this name.
    for number, node in enumerate(others):
        copies[node] = joint.placeholder(f"primals_{number + 1}")
    copies[scale] = joint.placeholder("tangents_1")
    for node, copy in copies.items():
        copy.meta.update(node.meta)
    joint.graph_copy(module.graph, copies)
    joint.output([copies[node] for node in (*kept, *gradients)])
    # Makes the crossing values tensors in memory instead of views, which pinned() might copy.
    with torch._functorch.config.patch(recompute_views=True):
        forward, backward = min_cut_rematerialization_partition(torch.fx.GraphModule(module, joint), None, num_fwd_outputs=len(kept))
    return forward.graph, backward.graph


def pinned(graph, node):
    """Materializes the value in memory. Otherwise inductor would recompute it for each reader."""
    value = node.meta["val"]
    # The strides of a slice have gaps. Use those of a tensor without gaps.
    strides = torch.empty_like(value).stride()
    made = graph.call_function(torch.ops.prims.inductor_force_stride_order.default, (node, strides))
    made.meta.update(node.meta)
    return made


# Operators that do not round. Their results for one input are equal, however it was computed.
EXACT = {
    aten.abs.default, aten.alias.default, aten.amax.default, aten.amin.default, aten.clone.default, aten.detach.default,
    aten.expand.default, aten.max.default, aten.min.default, aten.neg.default, aten.permute.default, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unsqueeze.default,
    aten.view.default}


def pin_what_is_compared(graph):
    """Pins values that are compared with each other.

    The gradient of amax finds the maxima by x == amax(x) and divides by their number. Inductor may compute one x with vector instructions
    and the other without. log1p and tanh then differ in the last bit, and no value equals the maximum."""
    compared = {}
    for each in graph.find_nodes(op="call_function", target=aten.eq.Tensor):
        for node in each.all_input_nodes:
            while node.target in EXACT:
                node = node.args[0]
            if node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].is_floating_point():
                compared[node] = None
    for node in compared:
        with graph.inserting_after(node):
            made = pinned(graph, node)
        node.replace_all_uses_with(made, lambda user, made=made: user is not made)


def append(graph, source, inputs):
    """Appends a copy of `source` to the graph, with `inputs` for its placeholders. Returns its outputs."""
    return graph.graph_copy(source, dict(zip(source.find_nodes(op="placeholder"), inputs, strict=True)))


def join(module, forward, backward, kept, gradients):
    """Joins forward and backward into one graph. Returns it, and a dict from the nodes of `kept` and `gradients` to their values in it."""
    graph = torch.fx.Graph()
    inputs = [graph.node_copy(node) for node in module.graph.find_nodes(op="placeholder")]
    scale, *others = inputs
    outputs = append(graph, forward, others)
    made = dict(zip(kept, outputs))
    crossing = [pinned(graph, node) if node.op == "call_function" else node for node in outputs[len(kept):]]
    made.update(zip(gradients, append(graph, backward, [*crossing, scale]), strict=True))
    made.update(zip(module.graph.find_nodes(op="placeholder"), inputs))
    return graph, made


def compute_anew(step, inputs):
    """Returns the graph of `step`, a function of the scale and other tensors, whose backward keeps as few values as torch.compile's."""
    module = decomposed(step, inputs)
    pin_what_is_compared(module.graph)
    outputs = module.graph.output_node().args[0]
    backward = following(next(iter(module.graph.nodes)))
    gradients = list(dict.fromkeys(node for node in outputs if node in backward))
    if not gradients:
        return module
    changes = take_changes(module.graph)
    kept = list(dict.fromkeys([*(value for _, value in changes), *(node for node in outputs if node not in backward)]))
    graph, made = join(module, *cut(module, kept, gradients), kept, gradients)
    for given, value in changes:
        graph.call_function(aten.copy_.default, (made[given], made[value]))
    graph.output([made[node] for node in outputs])
    return torch.fx.GraphModule(module, graph)
