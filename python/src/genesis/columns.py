"""The columns of a replay buffer, and the bytes in which their values are sent."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple, Union

from genesis.data import array_of, is_column
from genesis.errors import InvalidArgumentError
from genesis.requests import shown
from genesis.training.v1 import training_service_pb2

if TYPE_CHECKING:
    import numpy

# Formats with their numpy types. numpy has no bfloat16, so uint16 holds its bits.
_FORMATS = {"bool": "?", "uint8": "u1", "int32": "<i4", "int64": "<i8", "float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8",
            "bytes": "u1"}
_SIZES = {"?": 1, "1": 1, "2": 2, "4": 4, "8": 8}
# Columns that become float32 vectors if no columns were declared and their values are not uint8 arrays.
VECTORS = ("observations", "actions", "next_observations")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a replay buffer.

    Args:
        dtype: ``"bool"``, ``"uint8"``, ``"int32"``, ``"int64"``, ``"float16"``, ``"bfloat16"``, ``"float32"``, ``"float64"``, or ``"bytes"``
            for text.
        shape: shape of the value of one transition; ``()`` for a number, ``8`` for a vector.
        max_length: if above 0, a transition has 0 to ``max_length`` values of ``shape``, such as tokens. Required for ``"bytes"``.
    """

    dtype: str = "float32"
    shape: Union[int, Sequence[int]] = ()
    max_length: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _FORMATS:
            raise InvalidArgumentError(f"the dtype of a column is {shown(self.dtype)}; accepted: {', '.join(_FORMATS)}")
        shape = (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)
        for size in (*shape, self.max_length):
            if isinstance(size, bool) or not isinstance(size, int):
                raise InvalidArgumentError(f"the shape and max_length of a column are {shown(self.shape)} and {shown(self.max_length)}; "
                                           "accepted: whole numbers")
        object.__setattr__(self, "shape", shape)

    @property
    def value_bytes(self) -> int:
        size = _SIZES[_FORMATS[self.dtype][-1]]
        for each in self.shape:
            size *= each
        return size

    def __str__(self) -> str:
        sizes = [f"<={self.max_length}"] * bool(self.max_length) + list(map(str, self.shape))
        return f"{self.dtype} [{', '.join(sizes)}]"

    def spec(self, name: str) -> training_service_pb2.ColumnSpec:
        kind = training_service_pb2.ColumnType.Value(f"COLUMN_TYPE_{self.dtype.upper()}")
        return training_service_pb2.ColumnSpec(name=name, type=kind, shape=self.shape, max_length=self.max_length)


class Values:
    """The values of a column in successive transitions, as bytes.

    Args:
        width: bytes of a transition; of one value if the column is variable.
        offsets: for a variable column, the number of values before each transition, then of all.
    """

    def __init__(self, data: Union[bytes, memoryview], width: int, offsets: Optional["numpy.ndarray"] = None) -> None:
        self.data, self.width, self.offsets = memoryview(data), width, offsets

    def part(self, begin: int, end: int) -> memoryview:
        """Returns the bytes of transitions ``begin`` to ``end``."""
        if self.offsets is not None:
            begin, end = int(self.offsets[begin]), int(self.offsets[end])
        return self.data[begin * self.width:end * self.width]

    def lengths(self, begin: int, end: int) -> Sequence[int]:
        """Returns the number of values of each transition; empty for a fixed size."""
        if self.offsets is None:
            return ()
        lengths: Sequence[int] = (self.offsets[begin + 1:end + 1] - self.offsets[begin:end]).tolist()
        return lengths


def float32(name: str, value: Any) -> bytes:
    """Returns the numbers of an array, a tensor, a list or one number as float32 in little-endian order."""
    try:
        if is_column(value):
            import numpy

            with numpy.errstate(over="ignore"):  # The daemon refuses infinity.
                return array_of(value).astype("<f4").tobytes()
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return b"".join(float32(name, part) for part in value)
        return struct.pack("<f", float(value))
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is {shown(value)}: {error}; accepted: numbers, as an array, a tensor, a list or one number") from None


def is_vector(name: str, values: Any) -> bool:
    """Returns whether values of transitions become float32 vectors because nothing was declared."""
    return name in VECTORS and not (is_column(values) and str(values.dtype).endswith("uint8"))


def infer(name: str, values: Any) -> Column:
    """Returns the column of an array [N, ...] or a list of N values: its type and shape, float32 for float64."""
    try:
        array = array_of(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"{name} is {shown(values)}: {error}; accepted without columns=: numbers") from None
    kind = "float32" if array.dtype == "float64" else array.dtype.name
    if kind in _FORMATS:
        return Column(kind, array.shape[1:])
    raise InvalidArgumentError(f"{name} is {shown(values)}, of type {array.dtype}; accepted without columns=: bool, uint8, int32, int64 and "
                               f"floating-point numbers; give columns={{{name!r}: genesis.Column(...)}}")


def _bfloat16(array: "numpy.ndarray") -> "numpy.ndarray":
    """Rounds float32 to bfloat16, half to even, as its bits. NaN stays NaN."""
    import numpy

    array = array.astype("<f4")
    bits = array.view("<u4").astype("u8")
    return numpy.where(numpy.isnan(array), 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def _converted(name: str, column: Column, values: Any) -> "numpy.ndarray":
    """Returns numbers in the format of the column. Floating-point numbers are rounded to it; other numbers must fit."""
    import numpy

    floats = "float" in column.dtype
    try:
        array = array_of(values)
        if array.size and array.dtype.kind not in ("buif" if floats else "bui"):
            raise TypeError(f"its type is {array.dtype}; accepted: {'numbers' if floats else 'whole numbers'}")
        with numpy.errstate(over="ignore"):  # The daemon refuses infinity.
            converted = _bfloat16(array) if column.dtype == "bfloat16" else array.astype(_FORMATS[column.dtype], copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is {shown(values)}: {error}; accepted in this buffer: {column}") from None
    if not floats and converted.dtype != array.dtype and (converted != array).any():
        place = tuple(int(each[0]) for each in numpy.nonzero(converted != array))
        raise InvalidArgumentError(f"{name}{list(place)} is {array[place]}; accepted: {column}")
    return converted


def encode(name: str, column: Column, values: Any, count: int) -> Values:
    """Returns the values of ``count`` transitions: an array [count, ...], or a list.

    Raises:
        InvalidArgumentError: a value has another type, shape or range than the column's.
    """
    import numpy

    if column.max_length:
        parts, lengths = _variable(name, column, values)
        return Values(b"".join(parts), column.value_bytes, numpy.concatenate([[0], numpy.cumsum(lengths)]).astype("i8"))
    array = _converted(name, column, values)
    if array.shape != (count, *column.shape):
        raise InvalidArgumentError(f"{name} has shape {list(array.shape)} in {count} transitions; accepted: {[count, *column.shape]}")
    return Values(memoryview(numpy.ascontiguousarray(array).reshape(-1).view("u1")), column.value_bytes)


def _variable(name: str, column: Column, values: Any) -> Tuple[Sequence[bytes], Sequence[int]]:
    """Returns the bytes and the number of values of each transition."""
    if column.dtype == "bytes":
        texts = [each.encode() if isinstance(each, str) else each for each in values]
        for text in texts:
            if not isinstance(text, (bytes, bytearray)):
                raise InvalidArgumentError(f"{name} is {shown(text)}; accepted: text or bytes")
        return texts, list(map(len, texts))
    arrays = [_converted(name, column, each) for each in values]
    for array in arrays:
        if array.shape[1:] != column.shape and array.size:
            raise InvalidArgumentError(f"{name} has a value of shape {list(array.shape)}; accepted: {column}")
    return [array.tobytes() for array in arrays], list(map(len, arrays))
