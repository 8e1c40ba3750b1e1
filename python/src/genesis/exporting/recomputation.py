"""Makes torch.utils.checkpoint traceable: recomputation uses the random numbers of the first computation."""

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
    """Makes ``use_reentrant=True`` work with ``torch.autograd.grad``, including gradients of parameters. torch supports it only with
    ``backward()``."""
    with mock.patch.object(checkpoint, "CheckpointFunction", _Reentrant):
        yield


class _Reentrant:
    """A replacement of CheckpointFunction: a checkpoint without reentrant backward."""

    @staticmethod
    def apply(run_function, preserve_rng_state, *arguments):
        if any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments):
            return checkpoint.checkpoint(run_function, *arguments, use_reentrant=False, preserve_rng_state=preserve_rng_state, early_stop=False)
        with torch.no_grad():  # Like torch, which also warns.
            return run_function(*arguments)


@contextlib.contextmanager
def repeating_what_is_drawn() -> Iterator[None]:
    """Makes recomputation in a trace use the recorded random numbers of the first computation.

    Eager mode draws them again from the saved state of the generator, which a graph cannot restore."""
    make = checkpoint._checkpoint_without_reentrant_generator

    def generator(function, preserve_rng_state=True, context_fn=checkpoint.noop_context_fn, *rest, **options):
        def contexts():
            drawn: List[Any] = []
            first, again = context_fn()
            return _Both(first, lambda: _Recording(drawn)), _Both(again, lambda: _Repeating(drawn))
        # If the state of the generator is not preserved, eager recomputation draws new numbers too.
        return make(function, preserve_rng_state, contexts if preserve_rng_state else context_fn, *rest, **options)

    with mock.patch.object(checkpoint, "_checkpoint_without_reentrant_generator", generator):
        yield


def _draws(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags


class _Recording(TorchDispatchMode):
    """A mode that records the results of random operators."""

    def __init__(self, drawn: List[Any]) -> None:
        super().__init__()
        self._drawn = drawn

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if _draws(func):
            # Copied because the result may be changed in place later, like the mask of dropout.
            self._drawn.append(tree_map_only(torch.Tensor, torch.clone, result))
        return result


class _Repeating(TorchDispatchMode):
    """A mode that returns the recorded results instead of drawing."""

    def __init__(self, drawn: List[Any]) -> None:
        super().__init__()
        self._drawn = iter(drawn)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not _draws(func):
            return func(*args, **(kwargs or {}))
        drawn = next(self._drawn)
        return args[0].copy_(drawn) if func._schema.is_mutable else tree_map_only(torch.Tensor, torch.clone, drawn)


class _Both(TorchDispatchMode):
    """The caller's context with a recording or repeating mode inside, which is created on each entry.

    It is a mode itself only because torch requires that of the contexts of a checkpoint in a trace."""

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
