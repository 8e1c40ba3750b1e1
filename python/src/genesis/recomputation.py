"""torch.utils.checkpoint in a trace: recomputation repeats the first computation's random numbers and buffer changes."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List
from unittest import mock

import torch
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


@contextlib.contextmanager
def as_by_backward() -> Iterator[None]:
    """Within this context, ``use_reentrant=True`` supports ``torch.autograd.grad``, which torch supports only for ``backward()``: it
    returns the gradients of the parameters."""
    with mock.patch.object(checkpoint, "CheckpointFunction", _Reentrant):
        yield


class _Reentrant:
    """Replaces CheckpointFunction."""

    @staticmethod
    def apply(run_function, preserve_rng_state, *arguments):
        if any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments):
            return checkpoint.checkpoint(run_function, *arguments, use_reentrant=False, preserve_rng_state=preserve_rng_state, early_stop=False)
        with torch.no_grad():  # As in torch, with a warning.
            return run_function(*arguments)


@contextlib.contextmanager
def repeating_what_is_drawn() -> Iterator[None]:
    """Within this context, recomputation uses the random numbers of the first computation. Eager mode draws them again from the same
    state, but a graph cannot restore a generator's state."""
    make = checkpoint._checkpoint_without_reentrant_generator

    def generator(function, preserve_rng_state=True, context_fn=checkpoint.noop_context_fn, *rest, **options):
        def contexts():
            drawn: List[Any] = []
            first, again = context_fn()
            return _Both(first, lambda: _Recording(drawn)), _Both(again, lambda: _Repeating(drawn))
        # Without the state of the generator, recomputation draws other numbers in Python too.
        return make(function, preserve_rng_state, contexts if preserve_rng_state else context_fn, *rest, **options)

    with mock.patch.object(checkpoint, "_checkpoint_without_reentrant_generator", generator):
        yield


def _draws(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags


class _Recording(TorchDispatchMode):
    """Records the results of random operators."""

    def __init__(self, drawn: List[Any]) -> None:
        super().__init__()
        self._drawn = drawn

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if _draws(func):
            # A copy, because the result may be changed later, as dropout changes its mask.
            self._drawn.append(tree_map_only(torch.Tensor, torch.clone, result))
        return result


class _Repeating(TorchDispatchMode):
    """Returns the recorded results."""

    def __init__(self, drawn: List[Any]) -> None:
        super().__init__()
        self._drawn = iter(drawn)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not _draws(func):
            return func(*args, **(kwargs or {}))
        drawn = next(self._drawn)
        return args[0].copy_(drawn) if func._schema.is_mutable else tree_map_only(torch.Tensor, torch.clone, drawn)


class _Both(TorchDispatchMode):
    """Combines a context of the caller with a recording or repeating one, created for each entry. It is a mode only because a checkpoint
    in a trace requires one."""

    def __init__(self, outer: Any, make: Callable[[], Any]) -> None:
        super().__init__()
        self._outer, self._make, self._inner = outer, make, None

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner = self._make()
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        self._outer.__exit__(*error)
