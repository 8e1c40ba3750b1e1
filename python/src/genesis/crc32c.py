"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of checkpoint files and of the pieces of a transfer."""

from __future__ import annotations

from typing import List

try:
    import numpy
except ImportError:  # Works without numpy, but slower.
    numpy = None

_POLYNOMIAL = 0x82F63B78
# Bytes per lane. All lanes advance together, one byte at a time.
_LANE = 256


def _table() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
_ARRAY = numpy.array(_TABLE, dtype=numpy.uint32) if numpy is not None else None


def _plain(crc: int, data: bytes) -> int:
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


def _zeros(crcs: "numpy.ndarray", count: int) -> "numpy.ndarray":
    """Returns the checksums after ``count`` more zero bytes."""
    for _ in range(count):
        crcs = _ARRAY[crcs & 0xFF] ^ (crcs >> 8)
    return crcs


def _shift_tables(count: int) -> "numpy.ndarray":
    """Returns [4, 256]: what each value of each byte of a checksum becomes after ``count`` zero bytes. The map is linear over GF(2)."""
    bits = _zeros(numpy.left_shift(numpy.uint32(1), numpy.arange(32, dtype=numpy.uint32)), count)
    values = numpy.arange(256)
    tables = numpy.zeros((4, 256), dtype=numpy.uint32)
    for bit in range(32):
        tables[bit // 8] ^= numpy.where(values >> (bit % 8) & 1, bits[bit], numpy.uint32(0)).astype(numpy.uint32)
    return tables


_SHIFT = _shift_tables(_LANE) if numpy is not None else None


def _lanes(crc: int, data: "numpy.ndarray") -> int:
    """Continues the checksum, before its final inversion, over data whose size is a multiple of ``_LANE``."""
    lanes = data.reshape(-1, _LANE).T
    sums = numpy.zeros(lanes.shape[1], dtype=numpy.uint32)
    for column in numpy.ascontiguousarray(lanes):
        sums = _ARRAY[(sums ^ column) & 0xFF] ^ (sums >> 8)
    tables = [[int(value) for value in row] for row in _SHIFT]
    for lane in sums.tolist():
        crc = (tables[0][crc & 0xFF] ^ tables[1][crc >> 8 & 0xFF] ^ tables[2][crc >> 16 & 0xFF] ^ tables[3][crc >> 24]) ^ lane
    return crc


def crc32c(data: bytes, crc: int = 0) -> int:
    """Returns the checksum of ``data``, continuing from ``crc``, the checksum of the preceding bytes."""
    crc ^= 0xFFFFFFFF
    whole = len(data) // _LANE * _LANE if numpy is not None else 0
    if whole:
        crc = _lanes(crc, numpy.frombuffer(data, dtype=numpy.uint8, count=whole))
    return _plain(crc, data[whole:]) ^ 0xFFFFFFFF
