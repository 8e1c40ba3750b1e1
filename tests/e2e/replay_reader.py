"""Reads replay buffers as replay/segment.h describes their files."""

import struct

import numpy

VECTORS = ("observations", "actions", "next_observations")


def _columns(text):
    """Returns (name, format, shape, whether variable) of each column, and where the records begin."""
    version, first, second = struct.unpack_from("<III", text, 8)
    if version == 1:
        return [(name, "float32", (first if name != "actions" else second,), False) for name in VECTORS], 64
    found = []
    for line in text[64:64 + first].decode().splitlines():
        name, kind, shape = line.split(" ", 2)
        sizes = [each for each in shape.strip("[]").split(", ") if each]
        found.append((name, "u1" if kind == "bytes" else kind, tuple(int(each) for each in sizes if "<=" not in each), "<=" in shape))
    return found, 64 + (first + 7) // 8 * 8


def _part(text, begin, count, columns):
    """Returns the rows of one record, whose rows begin there, by column."""
    places, width = [], 0
    for name, kind, shape, variable in columns:
        size = 8 if variable else numpy.dtype(kind).itemsize * int(numpy.prod(shape))
        places.append((name, kind, shape, variable, width, size))
        width += size
    table = numpy.frombuffer(text, "u1", count * (width + 12), begin).reshape(count, width + 12)
    values, rows = begin + table.size, {}
    for name, kind, shape, variable, at, size in places:
        cells = numpy.ascontiguousarray(table[:, at:at + size])
        if variable:
            rows[name] = [numpy.frombuffer(text, kind, int(each) // numpy.dtype(kind).itemsize, values + int(offset)).reshape(-1, *shape)
                          for offset, each in cells.view("<u4")]
        else:
            rows[name] = cells.view(kind).reshape(count, *shape)
    end = numpy.ascontiguousarray(table[:, width:])
    return {**rows, "rewards": end[:, :4].copy().view("<f4")[:, 0], "flags": end[:, 8:].copy().view("<u4")[:, 0]}


def stored(folder):
    """Returns the columns of a buffer in the order of appending: an array, or a list of arrays of a variable column."""
    batch, complete = [], []
    for path in sorted(folder.glob("*.segment")):
        text = path.read_bytes()
        columns, place = _columns(text)
        while place + 40 <= len(text) and text[place:place + 4] == b"RECD":
            count, id_size, body_size, _, part = struct.unpack_from("<IIQII", text, place + 16)
            batch.append(_part(text, place + 40 + (id_size + 7) // 8 * 8, count, columns))
            if not part & 1:
                complete += batch
                batch = []
            place += 40 + body_size
    return {name: [row for part in complete for row in part[name]] if isinstance(complete[0][name], list)
            else numpy.concatenate([part[name] for part in complete]) for name in complete[0]}
