"""Rewrites complex constants of a graph."""

import torch

aten = torch.ops.aten


def make_of_parts(graph):
    """Builds complex constants, such as the zero in the gradient of ``abs``, from their real and imaginary parts.

    Inductor of torch 2.11 cannot generate code for a complex number."""
    for node in list(graph.graph.nodes):
        if node.target not in (aten.scalar_tensor.default, aten.full.default):
            continue
        kind = node.kwargs.get("dtype")
        if kind is None or not kind.is_complex:
            continue
        size, value = ([], node.args[0]) if node.target is aten.scalar_tensor.default else node.args
        with graph.graph.inserting_before(node):
            parts = [graph.graph.call_function(aten.full.default, ([*size, 1], part), {"dtype": kind.to_real(), "device": torch.device("cpu")})
                     for part in (complex(value).real, complex(value).imag)]
            both = graph.graph.call_function(aten.cat.default, (parts, -1))
            number = graph.graph.call_function(aten.view_as_complex.default, (both,))
        node.replace_all_uses_with(number)
        graph.graph.erase_node(node)
    graph.recompile()
