"""What a step writes into its buffers at its end."""

import torch
import torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

aten = torch.ops.aten
# Operators that read a tensor at places which are values, and those that inductor reads through.
GATHERING = (aten.index.Tensor, aten.gather.default, aten.embedding.default, aten.index_select.default)
THROUGH = (aten.clone.default, aten.alias.default, aten.detach.default, aten.view.default)


def is_gathered(node):
    return any(user.target in GATHERING or (user.target in THROUGH and is_gathered(user)) for user in node.users)


def write_after_reading():
    """Keeps what changes a buffer behind what reads rows of it, such as the codebook of a VQ-VAE: inductor of torch 2.11 fuses both into one
    kernel for a CPU, which writes first. Such a copy is an operator of its own then."""
    inline = lowering.lowerings[aten.copy_.default]
    alone = lowering.fallback_handler(aten.copy_.default, add_to_fallback_set=False)

    def copy_(destination, source, non_blocking=False):
        make = alone if is_gathered(V.graph.current_node.args[0]) else inline
        return make(destination, source, non_blocking)

    lowering.register_lowering(aten.copy_.default, type_promotion_kind=None)(copy_)
