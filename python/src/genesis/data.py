"""Training data of Python as the arrays of a dataset: one array for each field, whose first dimension counts examples."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from genesis.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy

    Arrays = Dict[str, numpy.ndarray]

ACCEPTED = ("accepted: a dict of arrays or tensors with one first dimension, a tuple (inputs..., target), a torch Dataset or "
            "DataLoader of such examples, or the path of a file that the daemon reads (docs/data.md)")


def _array(value: Any) -> "numpy.ndarray":
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return numpy.asarray(value)


def _named(values: Sequence[Any]) -> Dict[str, Any]:
    """Fields of a tuple: the last one of several is the target."""
    if len(values) == 1:
        return {"x": values[0]}
    inputs = values[:-1]
    names = ["x"] if len(inputs) == 1 else [f"x{i}" for i in range(len(inputs))]
    return {**dict(zip(names, inputs)), "target": values[-1]}


def _fields(value: Any) -> Dict[str, Any]:
    """Of one example, of a batch, or of all."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, list)):
        return _named(value)
    return {"x": value}


def _together(parts: List[Dict[str, Any]], join: Any) -> "Arrays":
    names = list(parts[0])
    for number, part in enumerate(parts):
        if list(part) != names:
            raise InvalidArgumentError(f"example {number} has the fields {list(part)}, the first one {names}; {ACCEPTED}")
    return {name: join([_array(part[name]) for part in parts]) for name in names}


def _is_column(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def arrays_of(data: Any) -> "Arrays":
    """The arrays of ``data``, all of it in memory.

    Raises:
        InvalidArgumentError: no examples, arrays of several lengths, or no such data.
    """
    import numpy

    source = data.dataset if hasattr(data, "dataset") and hasattr(data, "batch_sampler") else data
    if isinstance(source, Mapping) or (isinstance(source, (tuple, list)) and source and all(map(_is_column, source))):
        arrays = {name: _array(value) for name, value in _fields(source).items()}
    elif _is_column(source):
        arrays = _fields(_array(source))
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, (str, bytes)):
        examples = [_fields(source[i]) for i in range(len(source))]
        arrays = _together(examples, numpy.stack) if examples else {}
    elif hasattr(data, "__iter__") and not isinstance(data, (str, bytes)):
        # A DataLoader of an IterableDataset gives batches; the dataset itself examples.
        batched = data is not source
        parts = [_fields(part) for part in data]
        arrays = _together(parts, numpy.concatenate if batched else numpy.stack) if parts else {}
    else:
        raise InvalidArgumentError(f"data is a {type(data).__name__}; {ACCEPTED}")
    _check(arrays)
    return arrays


def _check(arrays: "Arrays") -> None:
    if not arrays:
        raise InvalidArgumentError(f"data has no example; {ACCEPTED}")
    for name, array in arrays.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArgumentError(f"a field is called {name!r}; accepted: names as Python's variables have them")
        if array.ndim == 0 or array.dtype == object:
            raise InvalidArgumentError(f"field {name} is no array whose first dimension counts examples (shape {array.shape}, "
                                       f"{array.dtype}); {ACCEPTED}")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"fields have different numbers of examples: {lengths}")
    if not next(iter(lengths.values())):
        raise InvalidArgumentError(f"data has no example; {ACCEPTED}")


def as_float32(arrays: "Arrays") -> "Arrays":
    """With float64, numpy's default, as float32, torch's default."""
    return {name: array.astype("float32") if array.dtype == "float64" else array for name, array in arrays.items()}


def save(arrays: "Arrays", path: pathlib.Path) -> pathlib.Path:
    """Writes a dataset file; the same arrays give the same bytes, so that they are sent once."""
    import numpy

    numpy.savez(path, **arrays)
    return path
