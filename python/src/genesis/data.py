"""Training data of Python as the arrays of a dataset: one array for each field, whose first dimension counts examples."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import shutil
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Sequence

from genesis.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy

    Arrays = Dict[str, numpy.ndarray]

# Examples that are in memory at a time where they need not all be.
CHUNK_EXAMPLES = 1024
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


def _together(parts: List[Dict[str, Any]], count: int) -> "Arrays":
    """One array for each field of examples that begin with number ``count``."""
    import numpy

    names = list(parts[0])
    for number, part in enumerate(parts):
        if list(part) != names:
            raise InvalidArgumentError(f"example {count + number} has the fields {list(part)}, the first one {names}; {ACCEPTED}")
    arrays = {name: [_array(part[name]) for part in parts] for name in names}
    for name, values in arrays.items():
        other = next((number for number, value in enumerate(values) if value.shape != values[0].shape), None)
        if other is not None:
            raise InvalidArgumentError(f"field {name} has the shape {values[other].shape} in example {count + other}, and {values[0].shape} in "
                                       f"example {count}; accepted: one shape for all examples, such as sequences that were padded")
    return {name: numpy.stack(values) for name, values in arrays.items()}


def _is_column(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


class Chunks:
    """Examples that are read, converted and sent some at a time, as ``genesis.from_parquet`` and the like give them.

    Args:
        chunks: makes an iterator over the arrays of some examples by field, one after the other.
        classes: names of the classes that a target counts.
    """

    def __init__(self, chunks: "Callable[[], Iterator[Arrays]]", classes: Sequence[str] = ()) -> None:
        self._chunks, self.classes = chunks, list(classes)

    def __iter__(self) -> "Iterator[Arrays]":
        return self._chunks()


def _in_chunks(examples: Iterable[Any]) -> "Iterator[Arrays]":
    examples, count = iter(examples), 0
    while True:
        part = [_fields(each) for each in itertools.islice(examples, CHUNK_EXAMPLES)]
        if not part:
            return
        yield _together(part, count)
        count += len(part)


def chunks_of(data: Any) -> "Iterator[Arrays]":
    """The examples of ``data`` by field, in order, no more of them in memory than a chunk where ``data`` itself has them elsewhere.

    Raises:
        InvalidArgumentError: no such data. Fields and numbers are checked by save().
    """
    source = data.dataset if hasattr(data, "dataset") and hasattr(data, "batch_sampler") else data
    if isinstance(source, Chunks):
        return iter(source)
    if isinstance(source, Mapping) or (isinstance(source, (tuple, list)) and source and all(map(_is_column, source))):
        return iter([{name: _array(value) for name, value in _fields(source).items()}])
    if _is_column(source):
        return iter([_fields(_array(source))])
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, (str, bytes)):
        return _in_chunks(source[i] for i in range(len(source)))
    if hasattr(data, "__iter__") and not isinstance(data, (str, bytes)):
        # A DataLoader of an IterableDataset gives batches; the dataset itself examples.
        if data is source:
            return _in_chunks(data)
        return ({name: _array(value) for name, value in _fields(part).items()} for part in data)
    raise InvalidArgumentError(f"data is a {type(data).__name__}; {ACCEPTED}")


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


def _as_float32(arrays: "Arrays") -> "Arrays":
    """With float64, numpy's default, as float32, torch's default."""
    return {name: array.astype("float32") if array.dtype == "float64" else array for name, array in arrays.items()}


def _check_like(arrays: "Arrays", first: "Arrays", count: int) -> None:
    """Examples from number ``count`` on have the fields, types and sizes of the first one."""
    def described(some: "Arrays") -> Dict[str, str]:
        return {name: f"{array.dtype} {list(array.shape[1:])}" for name, array in some.items()}

    if described(arrays) != described(first):
        raise InvalidArgumentError(f"examples {count} to {count + len(next(iter(arrays.values()))) - 1} have {described(arrays)}, the first one "
                                   f"{described(first)}; accepted: the same fields, types and sizes in all")


def save(chunks: "Iterator[Arrays]", path: pathlib.Path) -> "Arrays":
    """Writes a dataset file (.npz) and returns its first examples, at most a chunk. The same arrays give the same bytes, so that they are
    sent once.

    Raises:
        InvalidArgumentError: no examples, or arrays that do not belong together.
    """
    import numpy

    with contextlib.ExitStack() as files:
        first: "Arrays" = {}
        parts: Dict[str, Any] = {}
        count = 0
        for arrays in chunks:
            _check(arrays)
            arrays = _as_float32(arrays)
            if not first:
                first = {name: array[:CHUNK_EXAMPLES].copy() for name, array in arrays.items()}
                parts = {name: files.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in arrays}
            _check_like(arrays, first, count)
            for name, array in arrays.items():
                parts[name].write(numpy.ascontiguousarray(array).data.cast("B") if array.size else b"")
            count += len(next(iter(arrays.values())))
        if not count:
            raise InvalidArgumentError(f"data has no example; {ACCEPTED}")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, part in parts.items():
                part.seek(0)
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    numpy.lib.format.write_array_header_1_0(member, {
                        "descr": numpy.lib.format.dtype_to_descr(first[name].dtype), "fortran_order": False,
                        "shape": (count, *first[name].shape[1:])})
                    shutil.copyfileobj(part, member, 1 << 20)
    return first


def read_first(path: pathlib.Path, count: int) -> "Arrays":
    """The first examples of a dataset file (.npz), at most ``count``."""
    import numpy

    with numpy.load(path, allow_pickle=False) as file:
        return {name: file[name][:max(2, count)].copy() for name in file.files}
