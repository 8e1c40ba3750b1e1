"""Ordering of a step's writes to its buffers."""

import torch
import torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten
# Operators that read a tensor at computed positions, and those that inductor reads through.
GATHERING = (aten.index.Tensor, aten.gather.default, aten.embedding.default, aten.index_select.default)
THROUGH = (aten.clone.default, aten.alias.default, aten.detach.default, aten.view.default)


def is_gathered(node):
    return any(user.target in GATHERING or (user.target in THROUGH and is_gathered(user)) for user in node.users)


def write_after_reading():
    """Orders changes of a buffer after reads of its rows, as for the codebook of a VQ-VAE: inductor of torch 2.11 fuses both into one
    CPU kernel, which writes first. Such a copy then becomes a separate operator."""
    inline = lowering.lowerings[aten.copy_.default]
    alone = lowering.fallback_handler(aten.copy_.default, add_to_fallback_set=False)

    def copy_(destination, source, non_blocking=False):
        make = alone if is_gathered(V.graph.current_node.args[0]) else inline
        return make(destination, source, non_blocking)

    lowering.register_lowering(aten.copy_.default, type_promotion_kind=None)(copy_)
