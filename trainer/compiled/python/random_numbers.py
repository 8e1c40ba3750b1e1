"""Makes random operators of a graph draw the same numbers as in eager mode."""

import torch
import torch._inductor.fx_passes.misc_patterns as misc_patterns
import torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten


def draw_into_memory_as_it_is():
    """Makes inductor draw a mask into uninitialized memory. By default it first copies the undefined content."""

    def bernoulli(like, *arguments):
        value = V.graph.current_node.meta["val"]
        made = lowering.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return lowering.bernoulli_(made, *arguments)

    lowering.register_lowering(aten.bernoulli.p, type_promotion_kind=None)(bernoulli)


def leave_permutations_alone():
    """Disables inductor's patterns for rows in random order, which expect a slice: torch 2.11 fails if all rows are taken
    (`h[torch.randperm(n)]`)."""
    misc_patterns._misc_patterns_init = lambda device=None: None


def draws_numbers(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def take_shapes_alone(graph):
    """Makes the allocation of a mask depend on shapes only, instead of on the tensor whose shape it has.

    Otherwise inductor fuses the computation of that tensor with the reader of the mask, and runs it before the mask is drawn."""
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
    """Moves the random operators to the front of the graph, in their order, if all of them depend only on shapes.

    Inductor preserves the order only of operators that depend on each other, so two branches of a module, such as encoder
    and decoder, could draw each other's numbers. With reordering disabled it leaves leading operators in place.

    Returns:
        Whether there are random operators.
    """
    drawing = [node for node in graph.nodes if draws_numbers(node)]
    made_first = [node for each in drawing for node in (*each.all_input_nodes, each)]
    if any(node.all_input_nodes for node in made_first if node not in drawing):
        return bool(drawing)
    *_, place = (node for node in graph.nodes if node.op == "placeholder")
    for node in reversed(made_first):
        place.append(node)
    graph.lint()
    return bool(drawing)
