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


def trajectories(rows=120, seed=3):
    random = numpy.random.default_rng(seed)
    observations = random.normal(size=(rows + 1, 3)).cumsum(0).astype(numpy.float32)
    step = numpy.arange(rows)
    return {"observations": observations[:-1], "next_observations": observations[1:],
            "actions": random.normal(size=(rows, 2)).astype(numpy.float32),
            "rewards": random.normal(size=rows).astype(numpy.float32),
            "terminals": step % 40 == 19, "timeouts": step % 40 == 39}
