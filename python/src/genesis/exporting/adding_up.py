"""Warns if a held-out loss does not add up over batches, because a job combines batches."""

from __future__ import annotations

import warnings
from typing import Callable, Dict, List, Tuple

import torch

from genesis.exporting import held_out
from genesis.exporting.step import Step

Tensors = Dict[str, torch.Tensor]


def warn_if_not(step: Step, evaluated: Callable[[Tensors], List[torch.Tensor]], tolerance: float) -> None:
    """Warns if the held-out loss of the sample batch, also with other masks, differs from that of its parts combined.

    Args:
        step: the step, whose held-out loss was traced.
        evaluated: returns the outputs of the graph of the held-out loss.
        tolerance: maximum relative difference.
    """
    first = max(1, len(next(iter(step.batch.values()))) // 3)
    warned = any(_warns(step, evaluated, batch, first, tolerance) for batch in (step.batch, _with_masks(step.batch, first)))
    if not warned and step.held_out_unfound:
        _warn(step, step.held_out_unfound)


def _warns(step: Step, evaluated: Callable[[Tensors], List[torch.Tensor]], batch: Tensors, first: int, tolerance: float) -> bool:
    """Warns if the held-out loss of the batch differs from that of its first examples and its others combined. Returns whether it has
    warned."""
    count = len(next(iter(batch.values())))
    whole, *parts = (((end - begin) / count, {name: tensor[begin:end] for name, tensor in batch.items()})
                     for begin, end in ((0, count), (0, first), (first, count)))
    try:
        wanted = evaluated(whole[1])[0].double()
        together = _together([(evaluated(part), share) for share, part in parts])
    except RuntimeError:  # The loss may not support a batch of this size.
        return False
    if not torch.isfinite(wanted + together) or abs(together - wanted) <= tolerance * abs(wanted):
        return False
    why = f"it is {wanted:.4g} for the {count} examples of batch, and {together:.4g} for the first {first} and the others together"
    _warn(step, f"{why}; {step.held_out_unfound}" if step.held_out_unfound else why)
    return True


def _warn(step: Step, why: str) -> None:
    warnings.warn(
        f"the held-out loss of {type(step.module).__name__} does not add up over batches: {why}. A job's held-out loss is then a mean over "
        "batches of training.batch_size, which patience, keep_best and target_loss go by. A sum divided by a sum over the batch adds up, such as "
        "(losses * mask).sum() / mask.sum()", stacklevel=3)


def _with_masks(batch: Tensors, first: int) -> Tensors:
    """Returns the batch with other values in the fields that contain only zeros and ones: twice as many ones in the first examples as in
    the others. A mask of the sample batch often has the same number of ones in all examples, and a mean over batches is then right by
    chance."""
    def other(tensor: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(2))
        drawn[:first] *= 0.5
        ones = drawn < 0.45
        ones[0], ones[first] = True, True  # Each part has at least one value that counts.
        return ones.to(tensor.dtype)
    return {name: other(tensor) if ((tensor == 0) | (tensor == 1)).all() else tensor for name, tensor in batch.items()}


def _together(means: List[Tuple[List[torch.Tensor], float]]) -> torch.Tensor:
    """Combines the held-out losses of batches as a worker does.

    Args:
        means: for each batch, the graph's outputs (held_out.give_parts) and the batch's fraction of the examples.
    """
    if len(means[0][0]) == 1:
        return torch.stack([got[0].double() * share for got, share in means]).sum()
    total = torch.stack([got[1].double() * share for got, share in means]).sum()
    for place in range(2, len(means[0][0]), held_out.OUTPUTS):
        numerator, divisor, added, added_once, least, least_once = (torch.stack([got[place + i].double() for got, _ in means])
                                                                    for i in range(held_out.OUTPUTS))
        if (numerator != 0).any() or (divisor != 0).any():
            total = total + numerator.sum() / torch.maximum(divisor.sum() + added.sum() + added_once[-1], least.sum() + least_once[-1])
    return total
