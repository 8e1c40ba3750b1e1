"""Converts Parquet files, folders of images, text files and token files to training data for ``Client.train``.

Each function returns ``Chunks``. Data is read as it is sent, one chunk at a time."""

from __future__ import annotations

import codecs
import pathlib
import random
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from genesis.data import CHUNK_EXAMPLES, Chunks
from genesis.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy

    from genesis.data import Arrays

__all__ = ["from_images", "from_parquet", "from_text", "from_tokens"]

FilePath = Union[str, pathlib.Path]
Columns = Union[str, Sequence[str]]

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# The tag of TIFF with the bits of each channel.
BITS_PER_SAMPLE = 258
# Bytes that hold the header of a PNM file, with comments.
PNM_HEADER = 4096
# Bytes of text read at a time.
TEXT_BYTES = 1 << 20
# Integer types of Parquet that a dataset cannot have, each with the next larger type that it can have.
WIDENED = {"uint16": "int32", "uint32": "int64"}


def _files(paths: Union[FilePath, Sequence[FilePath]], ending: str = "") -> List[pathlib.Path]:
    """Returns the files of a path or of several paths. A folder stands for the files in it with this ending, sorted by path."""
    found: List[pathlib.Path] = []
    for each in [paths] if isinstance(paths, (str, pathlib.Path)) else paths:
        path = pathlib.Path(each)
        found += sorted(file for file in path.rglob("*" + ending) if file.is_file()) if path.is_dir() else [path]
    if not found:
        raise InvalidArgumentError(f"{paths} has no file *{ending}; accepted: a file, a list of files, or a folder of them")
    return found


def from_parquet(paths: Union[FilePath, Sequence[FilePath]], fields: Optional[Mapping[str, Columns]] = None) -> Chunks:
    """Reads the rows of Parquet files as examples. Requires pyarrow.

    Columns contain numbers or booleans, or lists of them that all have the same length.

    Args:
        paths: a file, a list of files, or a folder of ``*.parquet``.
        fields: the columns of each field. ``{"x": ["height", "weight"], "target": "class"}`` gives x [N, 2] and target [N]. Default: one
            field per column.

    Returns:
        The examples. Reading them raises InvalidArgumentError for a missing column, for a column of another type, and for a null or a
        list of another length, with its row.
    """
    def chunks() -> Iterator[Arrays]:
        import pyarrow
        from pyarrow import parquet

        for path in _files(paths, ".parquet"):
            try:
                file = parquet.ParquetFile(path)
            except pyarrow.ArrowInvalid as error:
                raise InvalidArgumentError(f"{path} is not a Parquet file: {error}") from None
            wanted = fields or {name: name for name in file.schema_arrow.names}
            columns = list(dict.fromkeys(column for each in wanted.values() for column in ([each] if isinstance(each, str) else each)))
            missing = [column for column in columns if column not in file.schema_arrow.names]
            if missing:
                raise InvalidArgumentError(f"{path} has no column {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}")
            row = 0
            for batch in file.iter_batches(CHUNK_EXAMPLES, columns=columns):
                if not batch.num_rows:
                    continue
                table = {name: _numbers(batch.column(name), path, name, row) for name in columns}
                yield {field: table[each] if isinstance(each, str) else _side_by_side(table, each) for field, each in wanted.items()}
                row += batch.num_rows

    return Chunks(chunks)


def _side_by_side(table: "Dict[str, numpy.ndarray]", columns: Sequence[str]) -> "numpy.ndarray":
    import numpy

    return numpy.stack([table[column] for column in columns], axis=1)


def _numbers(column: Any, path: pathlib.Path, name: str, row: int) -> "numpy.ndarray":
    """Converts a column of a batch whose first row is row ``row`` of the file."""
    import numpy
    from pyarrow import compute, types

    if column.null_count:
        first = int(numpy.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidArgumentError(f"{path}: column {name!r} is null in row {row + first}; leave such rows out, or fill them")
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
        other = numpy.flatnonzero(lengths != lengths[0])
        if len(other):
            raise InvalidArgumentError(f"{path}: column {name!r} is ragged: {lengths[0]} numbers in row {row}, {lengths[other[0]]} in row "
                                       f"{row + int(other[0])}; accepted: lists of one length")
        inner = column.flatten()
        if inner.null_count:
            first = int(numpy.flatnonzero(inner.is_null().to_numpy(zero_copy_only=False))[0]) // int(lengths[0])
            raise InvalidArgumentError(f"{path}: column {name!r} has a null in row {row + first}; leave such rows out, or fill them")
        # The row of an error would be unknown in nested lists.
        return (_numbers(inner, path, name, row) if not types.is_nested(inner.type) else _refuse(path, name, column.type)).reshape(
            len(column), int(lengths[0]))
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
        _refuse(path, name, column.type)
    numbers = column.to_numpy(zero_copy_only=False)
    return numbers.astype(WIDENED.get(str(numbers.dtype), numbers.dtype))


def _refuse(path: pathlib.Path, name: str, kind: Any) -> NoReturn:
    raise InvalidArgumentError(f"{path}: column {name!r} is of {kind}; accepted: numbers, bool, and lists of them; leave it out by "
                               "fields={...}, or encode it as numbers")


def from_images(folder: FilePath, size: Optional[Tuple[int, int]] = None, mode: str = "RGB", seed: int = 0) -> Chunks:
    """Reads images from one folder per class, like torchvision's ImageFolder. Requires Pillow.

    Args:
        folder: contains a folder of images for each class.
        size: (height, width) to which images are resized. Default: no resizing, and all images must have the same size.
        mode: ``RGB``, or ``L`` for greyscale.
        seed: seed of the order of the images, which are shuffled so that the held-out part contains all classes.

    Returns:
        Examples with ``x`` [N, channels, height, width], float32 from 0 to 1, and ``target`` [N], int64: the index of the class in
        ``.classes``, the sorted names of the folders.

    Raises:
        InvalidArgumentError: another mode, or there are no images. Reading the examples raises it for a damaged image, one of another size,
            or one with more than 8 bits per channel.
    """
    if mode not in ("RGB", "L"):
        raise InvalidArgumentError(f"mode is {mode!r}; accepted: 'RGB', or 'L' for greyscale")
    folder = pathlib.Path(folder)
    classes = sorted(each.name for each in folder.iterdir() if each.is_dir())
    images = [(file, number) for number, name in enumerate(classes) for file in sorted((folder / name).rglob("*"))
              if file.suffix.lower() in IMAGE_ENDINGS]
    if not images:
        raise InvalidArgumentError(f"{folder} has no images in folders of their classes; accepted: <class>/<name> with one of the endings "
                                   f"{', '.join(IMAGE_ENDINGS)}")
    random.Random(seed).shuffle(images)
    # 37 MiB per chunk for RGB images of 224 x 224 pixels.
    count = 64

    def chunks() -> Iterator[Arrays]:
        import numpy

        first: Optional[Tuple[pathlib.Path, Tuple[int, int]]] = None
        for begin in range(0, len(images), count):
            part = images[begin:begin + count]
            pixels = []
            for file, _ in part:
                pixels.append(_pixels(file, size, mode))
                shape = pixels[-1].shape[1:]
                first = first or (file, shape)
                if shape != first[1]:
                    raise InvalidArgumentError(f"{file} has {shape[0]} x {shape[1]} pixels, {first[0]} has {first[1][0]} x {first[1][1]}; give "
                                               "size=(height, width), which all are resized to")
            yield {"x": numpy.stack(pixels), "target": numpy.array([number for _, number in part], "int64")}

    return Chunks(chunks, classes=classes)


def _pixels(file: pathlib.Path, size: Optional[Tuple[int, int]], mode: str) -> "numpy.ndarray":
    import numpy
    from PIL import Image

    try:
        with Image.open(file) as image:
            bits = _bits_per_channel(file, image)
            if bits > 8 or image.mode[:1] in ("I", "F"):
                what = f"its pixels are of the mode {image.mode}" + (f" with {bits} bits per channel" if bits else "")
                raise ValueError(f"{what}, and accepted are those of 8 bits per channel; convert it, or give arrays to Client.train")
            image = image.convert(mode)
            if size is not None and image.size != (size[1], size[0]):
                image = image.resize((size[1], size[0]), Image.BILINEAR)
            pixels = numpy.asarray(image, "float32") / 255
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidArgumentError(f"{file} cannot be read as an image: {error}; repair or remove it") from None
    return pixels[None] if pixels.ndim == 2 else numpy.ascontiguousarray(pixels.transpose(2, 0, 1))


def _bits_per_channel(file: pathlib.Path, image: Any) -> int:
    """Returns the bits of the largest channel of a PNG, PNM or TIFF file; 0 for other formats. Pillow reduces more than 8 bits of several
    channels to 8 without an error."""
    if image.format == "TIFF":
        return max(image.tag_v2.get(BITS_PER_SAMPLE) or (1,))
    with open(file, "rb") as opened:
        head = opened.read(PNM_HEADER)
    if image.format == "PNG":  # Signature, length and type of the chunk IHDR, width, height, bit depth.
        return head[24]
    if image.format != "PPM":
        return 0
    words = re.sub(rb"#[^\n]*\n?", b" ", head).split(None, 4)
    if words[0] in (b"P2", b"P3", b"P5", b"P6") and len(words) > 3:
        return int(words[3]).bit_length()
    largest = re.search(rb"\sMAXVAL\s+(\d+)", head) if words[0] == b"P7" else None
    return int(largest.group(1)).bit_length() if largest else 0


def _rows(pieces: "Iterator[numpy.ndarray]", length: int, field: str) -> Iterator[Arrays]:
    """Yields tokens as rows of ``length``. Drops an incomplete row at the end."""
    import numpy

    left = numpy.empty(0, "int64")
    for piece in pieces:
        left = numpy.concatenate([left, piece])
        whole = len(left) // length * length
        if whole:
            yield {field: left[:whole].reshape(-1, length)}
            left = left[whole:]


def _check_length(length: int) -> None:
    if length < 1:
        raise InvalidArgumentError(f"length is {length}; accepted: 1 or more tokens in an example")


def from_text(paths: Union[FilePath, Sequence[FilePath]], length: int, tokenizer: Optional[Callable[[str], Sequence[int]]] = None,
              field: str = "ids") -> Chunks:
    """Reads UTF-8 text files, one after the other, as rows of tokens [N, length], int64.

    Args:
        paths: a file, a list of files, or a folder of ``*.txt``.
        length: tokens per example.
        tokenizer: converts text to token IDs, such as ``encode`` of a tokenizer of transformers. It is called with pieces of about 1 MiB
            that end at a line break if possible. Default: bytes, 0 to 255.
        field: name of the field.

    Raises:
        InvalidArgumentError: ``length`` is below 1. Reading the examples raises it for a file that is not UTF-8.
    """
    _check_length(length)

    def tokens() -> "Iterator[numpy.ndarray]":
        import numpy

        for path in _files(paths, ".txt"):
            decoder, place = codecs.getincrementaldecoder("utf-8")(), 0
            with open(path, "rb") as file:
                while place < path.stat().st_size:
                    raw = file.read(TEXT_BYTES)
                    if tokenizer is not None:
                        raw += file.readline(TEXT_BYTES)  # Avoids splitting words.
                    held = len(decoder.getstate()[0])
                    try:
                        text = decoder.decode(raw, final=place + len(raw) >= path.stat().st_size)
                    except UnicodeDecodeError as error:
                        raise InvalidArgumentError(f"{path} is not UTF-8 at byte {place - held + error.start}; convert it, or give from_tokens "
                                                   "what a tokenizer made of it") from None
                    place += len(raw)
                    yield numpy.frombuffer(raw, "uint8").astype("int64") if tokenizer is None else numpy.asarray(tokenizer(text), "int64")

    return Chunks(lambda: _rows(tokens(), length, field))


def from_tokens(paths: Union[FilePath, Sequence[FilePath]], length: int, dtype: str = "uint16", field: str = "ids") -> Chunks:
    """Reads files of little-endian token IDs without a header, such as written by ``numpy.ndarray.tofile``, as rows [N, length], int64.

    Args:
        paths: a file, a list of files, or a folder of ``*.bin``.
        length: tokens per example.
        dtype: type of the tokens: ``uint16``, ``uint32``, ``int32``, ``int64`` or ``uint8``.
        field: name of the field.

    Raises:
        InvalidArgumentError: ``length`` or ``dtype`` is invalid. Reading the examples raises it for a file with an incomplete token.
    """
    _check_length(length)
    accepted = ("uint8", "uint16", "uint32", "int32", "int64")
    if dtype not in accepted:
        raise InvalidArgumentError(f"dtype is {dtype!r}; accepted: {', '.join(accepted)}")

    def tokens() -> "Iterator[numpy.ndarray]":
        import numpy

        kind = numpy.dtype(dtype).newbyteorder("<")
        for path in _files(paths, ".bin"):
            size = path.stat().st_size
            if size % kind.itemsize:
                raise InvalidArgumentError(f"{path} has {size} bytes; accepted: whole tokens of {kind.itemsize} bytes ({dtype})")
            with open(path, "rb") as file:
                for piece in iter(lambda: file.read(TEXT_BYTES), b""):
                    yield numpy.frombuffer(piece, kind).astype("int64")

    return Chunks(lambda: _rows(tokens(), length, field))
