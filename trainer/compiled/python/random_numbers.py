"""The operators of a graph that draw random numbers, which have to draw those that eager mode draws."""

import torch
import torch._inductor.fx_passes.misc_patterns as misc_patterns
import torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten


def draw_into_memory_as_it_is():
    """Lets inductor draw a mask into memory as it was allocated: by itself it first copies what is there, which is nothing."""

    def bernoulli(like, *arguments):
        value = V.graph.current_node.meta["val"]
        made = lowering.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return lowering.bernoulli_(made, *arguments)

    lowering.register_lowering(aten.bernoulli.p, type_promotion_kind=None)(bernoulli)


def leave_permutations_alone():
    """Switches off inductor's patterns for rows in a random order: torch 2.11 fails on those of all rows (`h[torch.randperm(n)]`),
    as of what it was to match with it has no length of a slice."""
    misc_patterns._misc_patterns_init = lambda device=None: None


def draws_numbers(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def take_shapes_alone(graph):
    """Makes the memory that a mask is drawn into depend on nothing, where a graph says that it is like a tensor: inductor fuses what
    computes that tensor with what reads the mask, and computes it before the mask is drawn."""
    for node in list(graph.nodes):
        if node.target is not aten.empty_like.default:
            continue
        value = node.meta["val"]
        with graph.inserting_before(node):
            alone = graph.call_function(aten.empty_strided.default, (list(value.shape), list(value.stride())),
                                        {"dtype": value.dtype, "device": value.device})
        alone.meta.update(node.meta)
        node.replace_all_uses_with(alone)
        graph.erase_node(node)


def draw_first(graph):
    """Moves what draws random numbers to the front of the graph, in its order, where it takes nothing but shapes.

    Inductor keeps the order of operators that depend on each other, and no other: two branches of a module, such as encoder
    and decoder, would draw each the numbers of the other. What stands first it keeps there, with its reordering switched off.
    Returns whether there is anything to keep."""
    drawing = [node for node in graph.nodes if draws_numbers(node)]
    made_first = [node for each in drawing for node in (*each.all_input_nodes, each)]
    if any(node.all_input_nodes for node in made_first if node not in drawing):
        return bool(drawing)
    *_, place = (node for node in graph.nodes if node.op == "placeholder")
    for node in reversed(made_first):
        place.append(node)
    graph.lint()
    return bool(drawing)
