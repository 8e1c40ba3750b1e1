"""Converts training data in Python to the arrays of a dataset: one array per field, with the examples along the first dimension."""

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

# Maximum number of examples in a chunk that is read from a Dataset or a Parquet file.
CHUNK_EXAMPLES = 1024
# Maximum number of field names in an error message.
NAMES_SHOWN = 10
ACCEPTED = ("accepted: a dict of arrays or tensors with one first dimension, a tuple (inputs..., target), a torch Dataset or "
            "DataLoader of such examples, or the path of a file that the daemon reads (docs/data.md)")


def _has_masked(value: Any) -> bool:
    import numpy

    if isinstance(value, (list, tuple)):
        return any(map(_has_masked, value))
    return isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.is_masked(value))


def array_of(value: Any) -> "numpy.ndarray":
    """Converts an array, a tensor or a list to a numpy array in native byte order.

    Raises:
        TypeError, ValueError, RuntimeError: it cannot be converted, or some values are masked.
    """
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().resolve_conj().resolve_neg().cpu()
        if str(value.dtype) == "torch.bfloat16":  # numpy has no bfloat16, and float32 represents all its values.
            value = value.float()
        value = value.numpy()
    if _has_masked(value):
        raise ValueError("some of its values are masked: fill them (array.filled(0)), and give the mask as a field of its own where it is needed")
    array = numpy.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _arrays(fields: Mapping[str, Any], place: str) -> "Arrays":
    """Converts the fields of an example or a batch to arrays. float64, numpy's default, becomes float32, torch's default."""
    arrays = {}
    for name, value in fields.items():
        try:
            arrays[name] = array_of(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgumentError(f"field {name} cannot be read as an array in {place}: {error}; {ACCEPTED}") from None
    return _as_float32(arrays)


def example_of(value: Any, number: int) -> "Arrays":
    """Returns the fields of example ``number`` of a Dataset as arrays."""
    return _arrays(_fields(value), f"example {number}")


def _named(values: Sequence[Any]) -> Dict[str, Any]:
    """Names the fields of a tuple. If there are several, the last one is the target."""
    if len(values) == 1:
        return {"x": values[0]}
    inputs = values[:-1]
    names = ["x"] if len(inputs) == 1 else [f"x{i}" for i in range(len(inputs))]
    return {**dict(zip(names, inputs)), "target": values[-1]}


def _fields(value: Any) -> Dict[str, Any]:
    """Returns the fields of one example, of a batch, or of all examples."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "_asdict"):  # A namedtuple.
        return value._asdict()
    if isinstance(value, (tuple, list)):
        return _named(value)
    return {"x": value}


def _listed(names: Iterable[str]) -> str:
    shown = [str(name)[:40] for name in itertools.islice(names, NAMES_SHOWN + 1)]
    return ", ".join(shown[:NAMES_SHOWN]) + (" ..." if len(shown) > NAMES_SHOWN else "")


class _First:
    """The fields, types and shapes of the first example or batch, which all others must have."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._arrays: "Arrays" = {}

    def compare(self, arrays: "Arrays", place: str, of_batch: bool = False) -> None:
        first = self._arrays = self._arrays or arrays
        if list(arrays) != list(first):
            raise InvalidArgumentError(f"{place} has the fields {_listed(arrays)}, the first one {_listed(first)}; {ACCEPTED}")
        for name, array in arrays.items():
            shape, wanted = (each.shape[1:] if of_batch else each.shape for each in (array, first[name]))
            if array.dtype != first[name].dtype:
                raise InvalidArgumentError(f"field {name} is of {array.dtype} in {place}, and of {first[name].dtype} in {self._unit} 0; "
                                           "accepted: one type in all")
            if shape != wanted:
                each_one = " for each example" if self._unit == "batch" else ""
                raise InvalidArgumentError(f"field {name} has the shape {shape}{each_one} in {place}, and {wanted} in {self._unit} 0; accepted: "
                                           "one shape for all examples, such as sequences that were padded")


def is_column(value: Any) -> bool:
    """Returns whether a value is an array or a tensor, without importing numpy or torch."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _are_columns(values: Sequence[Any]) -> bool:
    """Returns whether the values are one array per field, each with all examples. A list counts as an array next to an array of the same
    length, or if all values of a tuple (inputs..., target) are lists."""
    if isinstance(values, tuple) and len(values) > 1 and all(isinstance(each, list) for each in values):
        return True
    return any(map(is_column, values)) and all(is_column(each) or isinstance(each, list) for each in values) and (
        all(map(is_column, values)) or len({len(each) if getattr(each, "ndim", 1) else None for each in values}) == 1)


def _unframed(value: Any) -> Any:
    """Returns a pandas DataFrame or Series as an array, and a tuple or a list that contains one as a dict of its fields. Returns other data
    unchanged."""
    if hasattr(value, "iloc") and hasattr(value, "to_numpy"):
        return value.to_numpy()
    if isinstance(value, (tuple, list)) and any(hasattr(each, "iloc") for each in value):
        return {name: _unframed(each) for name, each in _fields(value).items()}
    return value


class Chunks:
    """Training data that is read, converted and sent in chunks. ``genesis.from_parquet`` and similar functions return it.

    Args:
        chunks: returns a new iterator over chunks. A chunk is a dict from field names to arrays of some examples.
        classes: names of the classes of an integer target.
    """

    def __init__(self, chunks: "Callable[[], Iterator[Arrays]]", classes: Sequence[str] = ()) -> None:
        self._chunks, self.classes = chunks, list(classes)

    def __iter__(self) -> "Iterator[Arrays]":
        return self._chunks()


def _in_chunks(examples: Iterable[Any]) -> "Iterator[Arrays]":
    import numpy

    examples, count, first = iter(examples), 0, _First("example")
    while True:
        part = []
        for number, example in enumerate(itertools.islice(examples, CHUNK_EXAMPLES), count):
            part.append(example_of(example, number))
            first.compare(part[-1], f"example {number}")
        if not part:
            return
        yield {name: numpy.stack([each[name] for each in part]) for name in part[0]}
        count += len(part)


def _batches(batches: Iterable[Any]) -> "Iterator[Arrays]":
    """Yields the batches of a DataLoader as arrays."""
    count, first = 0, _First("batch")
    for number, batch in enumerate(batches):
        place = f"batch {number} (from example {count} on)"
        arrays = _arrays(_fields(batch), place)
        _check(arrays, place)
        first.compare(arrays, place, of_batch=True)
        count += len(next(iter(arrays.values())))
        yield arrays


def is_loader(data: Any) -> bool:
    """Returns whether ``data`` is a DataLoader, without importing torch."""
    return hasattr(data, "dataset") and hasattr(data, "batch_sampler")


def _of_loader(loader: Any) -> "Iterator[Arrays]":
    """Returns an iterator over the examples of a DataLoader's dataset, each once, after its collate_fn.

    Raises:
        InvalidArgumentError: its sampler would select other examples.
    """
    from torch.utils.data import RandomSampler, SequentialSampler, default_collate

    # A DataLoader that was given a batch_sampler has no batch_size.
    chosen = loader.sampler if loader.batch_size is not None else loader.batch_sampler or loader.sampler
    in_turn = type(chosen) is SequentialSampler or (type(chosen) is RandomSampler and not chosen.replacement and
                                                    len(chosen) == len(loader.dataset))
    if not in_turn:
        raise InvalidArgumentError(f"the DataLoader has a {type(chosen).__name__}, and each example of its dataset would be sent once; accepted: "
                                   "shuffle=True or False; give the Dataset with the examples that are meant, as torch.utils.data.Subset")
    rows = (loader.dataset[i] for i in range(len(loader.dataset)))
    if loader.batch_size is None:  # The dataset yields whole batches.
        return _batches(map(loader.collate_fn, rows))
    if loader.collate_fn is default_collate:
        return _in_chunks(rows)
    return _batches(loader.collate_fn(part) for part in iter(lambda: list(itertools.islice(rows, loader.batch_size)), []))


def chunks_of(data: Any) -> "Iterator[Arrays]":
    """Returns an iterator over the examples of ``data`` in order, one chunk at a time.

    Raises:
        InvalidArgumentError: unsupported data. ``save`` checks the fields and the numbers.
    """
    source = data.dataset if is_loader(data) else _unframed(data)
    if isinstance(source, Chunks):
        return iter(source)
    if is_loader(data) and hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return _of_loader(data)
    if is_loader(data) and hasattr(source, "__getitem__") and not hasattr(source, "__iter__"):
        raise _without_length(source)
    if isinstance(source, Mapping) or (isinstance(source, (tuple, list)) and _are_columns(source)):
        return iter([_arrays(_fields(source), "the data")])
    if is_column(source):
        return iter([_arrays(_fields(source), "the data")])
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, (str, bytes)):
        return _in_chunks(source[i] for i in range(len(source)))
    if hasattr(data, "__iter__") and not isinstance(data, (str, bytes)):
        # A DataLoader of an IterableDataset yields batches. The dataset itself yields examples.
        if data is source:
            return _in_chunks(data)
        return _batches(data)
    if hasattr(source, "__getitem__") and not isinstance(source, (str, bytes)):
        raise _without_length(source)
    raise InvalidArgumentError(f"data is a {type(data).__name__}; {ACCEPTED}")


def _without_length(dataset: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"data is a {type(dataset).__name__} with __getitem__ and without __len__, which tells how many examples there "
                                "are; accepted: a Dataset with both, or one with __iter__")


def _check(arrays: "Arrays", place: str = "") -> None:
    """Raises InvalidArgumentError unless the arrays are valid fields of equal length. ``place`` names them in messages unless they are all
    examples."""
    among = f" in {place}" if place else ""
    if not arrays:
        raise InvalidArgumentError(f"data has no example{among}; {ACCEPTED}")
    for name, array in arrays.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise InvalidArgumentError(f"a field is called {name!r}{among}; accepted: names of letters from a to z, digits and '_', the first no "
                                       "digit")
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            raise InvalidArgumentError(f"field {name} is not an array of numbers whose first dimension counts examples (shape {array.shape}, "
                                       f"{array.dtype}){among}; {ACCEPTED}")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"fields have different numbers of examples{among}: {lengths}")


def _as_float32(arrays: "Arrays") -> "Arrays":
    import numpy

    found = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.dtype.itemsize > 4:
            with numpy.errstate(over="ignore"):
                single = array.astype("float32")
            if numpy.isinf(single).any() and (lost := array[numpy.isinf(single) & numpy.isfinite(array)]).size:
                raise InvalidArgumentError(f"field {name} has {lost.flat[0]}, which float32 cannot hold; scale the field to numbers up to 3e38")
            array = single
        found[name] = array
    return found


def save(chunks: "Iterator[Arrays]", path: pathlib.Path, wanted: int = 2) -> "Arrays":
    """Writes a dataset file (.npz) and returns the first examples, at least ``wanted`` if there are as many.

    The same arrays always produce the same bytes, so that they are uploaded only once.

    Raises:
        InvalidArgumentError: fewer than two examples, or invalid or inconsistent arrays.
    """
    import numpy

    with contextlib.ExitStack() as files:
        first: Dict[str, List["numpy.ndarray"]] = {}
        parts: Dict[str, Any] = {}
        count, like = 0, _First("example")
        for arrays in chunks:
            arrays = _as_float32(arrays)
            _check(arrays)
            if not first:
                first = {name: [] for name in arrays}
                parts = {name: files.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in arrays}
            like.compare(arrays, f"example {count}", of_batch=True)
            for name, array in arrays.items():
                if count < wanted:
                    first[name].append(array[:max(wanted, CHUNK_EXAMPLES)].copy())
                parts[name].write(numpy.ascontiguousarray(array).data.cast("B") if array.size else b"")
            count += len(next(iter(arrays.values())))
        if not count:
            raise InvalidArgumentError(f"data has no example; {ACCEPTED}")
        if count == 1:
            raise InvalidArgumentError("data has 1 example; accepted: 2 or more, one to train on and one to hold out")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, part in parts.items():
                part.seek(0)
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    numpy.lib.format.write_array_header_1_0(member, {
                        "descr": numpy.lib.format.dtype_to_descr(first[name][0].dtype), "fortran_order": False,
                        "shape": (count, *first[name][0].shape[1:])})
                    shutil.copyfileobj(part, member, 1 << 20)
    return {name: numpy.concatenate(arrays) for name, arrays in first.items()}


def read(path: pathlib.Path) -> "Arrays":
    """Reads the arrays of a dataset file (.npz).

    Raises:
        InvalidArgumentError: the file does not exist, is not an .npz file of numbers, or has invalid or inconsistent arrays.
    """
    import numpy

    if not path.is_file():
        raise InvalidArgumentError(f"data is {str(path)!r}, and the file does not exist")
    try:
        with numpy.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidArgumentError(f"data is {str(path)!r}, which cannot be read as an .npz file of numbers: {error}; numpy.savez writes one") from None
    _check(arrays, str(path))
    return arrays


def is_as_sent(arrays: "Arrays") -> bool:
    """Returns whether ``save`` would write these arrays unchanged: they have native byte order, and no float of more than 32 bits."""
    return all(array.dtype.isnative and not (array.dtype.kind == "f" and array.dtype.itemsize > 4) for array in arrays.values())
