"""Finds state outside of parameters and buffers that forward may use: attributes of modules, and generators other than torch's."""

from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import random
import sys
import types
from typing import Any, Dict, Iterable, Iterator, List, Tuple
from unittest import mock

import torch

# Attributes that every module has. They are not state of forward.
OWN = frozenset(torch.nn.Module().__dict__)
# Maximum depth of nested containers that are searched, and maximum number of elements searched in a list, tuple or deque.
NESTED, LONGEST = 5, 10_000
# Objects whose attributes are not looked at.
NO_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def _entries(module: torch.nn.Module) -> Iterator[Tuple[str, Any]]:
    for name, part in module.named_modules():
        if not isinstance(part, torch.jit.ScriptModule):
            for key, value in part.__dict__.items():
                if key not in OWN:
                    yield f"{name}.{key}" if name else key, value


def attributes(module: torch.nn.Module) -> Dict[str, Any]:
    """Returns a mark for each attribute. The mark changes if forward replaces the value, or changes a tensor or a container in place."""
    return {name: _mark(value) for name, value in _entries(module)}


def numbers(module: torch.nn.Module) -> Dict[str, str]:
    """Returns the values of numeric attributes as text, in which NaN equals NaN."""
    return {name: repr(value) for name, value in _entries(module) if isinstance(value, (int, float))}


def values(module: torch.nn.Module) -> Dict[str, Any]:
    """Returns numbers, text and tensors by name that forward may read in its next call: attributes, and what their containers and plain
    objects contain. The length of a container has the name ``len(attribute)``."""
    found: Dict[str, Any] = {}
    for name, value in _entries(module):
        _add_values(name, value, NESTED, found)
    return found


def _add_values(name: str, value: Any, depth: int, found: Dict[str, Any]) -> None:
    if isinstance(value, (bool, int, float, complex, str)):
        found[name] = repr(value)
    elif isinstance(value, torch.Tensor):
        if _may_be_written(value):
            found[name] = value.detach().clone()
    elif type(value).__module__ == "numpy":
        found[name] = value.tobytes() if hasattr(value, "tobytes") else repr(value)
    elif depth and isinstance(value, (set, frozenset)):
        found[f"len({name})"] = len(value)
    elif depth and isinstance(value, dict):
        found[f"len({name})"] = len(value)
        for key, each in value.items():
            _add_values(f"{name}[{key!r}]", each, depth - 1, found)
    elif depth and isinstance(value, (list, tuple, collections.deque)):
        found[f"len({name})"] = len(value)
        for position, each in enumerate(itertools.islice(value, LONGEST)):
            _add_values(f"{name}[{position}]", each, depth - 1, found)
    elif depth and isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, NO_STATE):
        for key, each in vars(value).items():
            if key not in OWN:
                _add_values(f"{name}.{key}", each, depth - 1, found)


def changed(before: Dict[str, Any], after: Dict[str, Any]) -> List[str]:
    """Returns the names of values that existed before and changed."""
    found = []
    for name, value in after.items():
        other = before.get(name)
        if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
            if not same(value, other):
                found.append(name)
        elif other is not None and (type(value) is not type(other) or value != other):
            found.append(name)
    return found


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors are equal, where NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _mark(value: Any) -> Any:
    if isinstance(value, (int, float, str)):
        return repr(value)
    # The version of a parameter is ignored, because a comparison writes to parameters.
    return type(value), [(id(each), each._version if _may_be_written(each) else 0) for each in _elements(value)]


class Kept:
    """A copy of a module's attributes that can change in place: lists, dicts and sets, and tensors other than parameters."""

    def __init__(self, module: torch.nn.Module) -> None:
        values = [value for _, value in _entries(module)]
        self._containers = [(value, copy.copy(value)) for value in values if isinstance(value, (list, collections.deque, dict, set))]
        inside = [each for value in values for each in _elements(value)]
        self._tensors = [(tensor, tensor.detach().clone()) for tensor in inside if _may_be_written(tensor)]

    def restore(self) -> None:
        for container, before in self._containers:
            container.clear()
            container.extend(before) if isinstance(container, (list, collections.deque)) else container.update(before)
        with torch.no_grad():
            for tensor, before in self._tensors:
                if tensor.shape == before.shape and not torch.equal(tensor, before):
                    tensor.copy_(before)


def _may_be_written(value: Any) -> bool:
    """Returns whether the value is a tensor that can be written in place: strided, not expanded, and not a parameter."""
    return (isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and value.layout == torch.strided
            and not (value.is_meta or value.is_nested or value.is_inference() or 0 in value.stride()))


def _elements(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple, set, collections.deque)) else (value,)


def drawn() -> Tuple[Any, Any]:
    """Returns the states of the generators of ``random`` and ``numpy.random``."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else repr(numpy.random.get_state())


@contextlib.contextmanager
def drawing(number: float) -> Iterator[None]:
    """Makes ``random``, ``uniform`` and ``rand`` of random and numpy.random return the value at the fraction ``number`` between their lower
    and upper bound."""
    def between(low=0.0, high=1.0, *_):
        return low + (high - low) * number

    functions = [(random, "random"), (random, "uniform")]
    if "numpy" in sys.modules:
        functions += [(sys.modules["numpy"].random, name) for name in ("random", "uniform", "rand")]
    with contextlib.ExitStack() as patches:
        for owner, name in functions:
            patches.enter_context(mock.patch.object(owner, name, between))
        yield
