"""Writes the files of replay buffers as documented."""

import struct

import numpy


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def replay_segment(arrays, priorities, batch):
    """Returns the bytes of a segment as documented in replay/segment.h."""
    rows, columns = arrays["observations"].shape
    actions = arrays["actions"].shape[1]
    header = struct.pack("<8sIIIIQ28x", b"GNSRPLY1", 1, columns, actions, 0, 0)
    segment = header + struct.pack("<I", crc32c(header))
    for first in range(0, rows, batch):
        count = min(batch, rows - first)
        name = f"batch {first}".encode()
        body = name + bytes(-len(name) % 8)
        for i in range(first, first + count):
            flags = int(arrays["terminals"][i]) + 2 * int(arrays["timeouts"][i])
            for part in ("observations", "actions", "next_observations"):
                body += arrays[part][i].astype("<f4").tobytes()
            body += struct.pack("<ffI", arrays["rewards"][i], priorities[i], flags)
        checked = struct.pack("<QIIQII", first, count, len(name), len(body), crc32c(body), 0)
        segment += struct.pack("<4sI", b"RECD", crc32c(checked)) + checked + body
    return segment


def padded(data, multiple):
    return data + bytes(-len(data) % multiple)


def typed_segment(columns, rewards, flags, parts):
    """Returns the bytes of a segment of version 2 as documented in replay/segment.h.

    Columns are (declaration such as "uint8 [2, 3]", rows) by name, in the order of the file. A row is an array; a variable column has bounds
    such as "int32 [<=5]". Each batch is a list of numbers of rows, one for each of its parts."""
    declaration = "".join(f"{name} {text}\n" for name, (text, _) in columns.items()).encode()
    header = struct.pack("<8sIIIIQ28x", b"GNSRPLY1", 2, len(declaration), crc32c(declaration), 0, 0)
    segment = padded(header + struct.pack("<I", crc32c(header)) + declaration, 8)
    first = 0
    for batch, counts in enumerate(parts):
        for part, count in enumerate(counts):
            name = f"batch {batch}".encode()
            body, values = padded(name, 8), b""
            for i in range(first, first + count):
                for text, rows in columns.values():
                    data = numpy.asarray(rows[i]).tobytes()
                    if "<=" in text:
                        body, values = body + struct.pack("<II", len(values), len(data)), values + data
                    else:
                        body += data
                body += struct.pack("<ffI", rewards[i], 0, flags[i])
            body = padded(body + values, 4)
            checked = struct.pack("<QIIQII", first, count, len(name), len(body), crc32c(body), 2 * part + (part + 1 < len(counts)))
            segment += struct.pack("<4sI", b"RECD", crc32c(checked)) + checked + body
            first += count
    return segment


def trajectories(rows=120, seed=3):
    random = numpy.random.default_rng(seed)
    observations = random.normal(size=(rows + 1, 3)).cumsum(0).astype(numpy.float32)
    step = numpy.arange(rows)
    return {"observations": observations[:-1], "next_observations": observations[1:],
            "actions": random.normal(size=(rows, 2)).astype(numpy.float32),
            "rewards": random.normal(size=rows).astype(numpy.float32),
            "terminals": step % 40 == 19, "timeouts": step % 40 == 39}
