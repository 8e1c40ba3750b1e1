#!/usr/bin/env python3
"""Replaces the library path in a 64-bit ELF file: set_runpath.py FILE PATH

A program is linked with the path of LibTorch on the build machine. On another machine any user may own that folder, so the path must be
replaced. A file without a library path is left unchanged.
"""

import struct
import sys

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 5, 15, 29


def program_headers(data):
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + i * size)
        yield kind, at, address, length


def dynamic_entries(data, headers):
    for kind, at, _, length in headers:
        if kind == PT_DYNAMIC:
            for position in range(at, at + length, 16):
                tag, value = struct.unpack_from("<QQ", data, position)
                if tag == DT_NULL:
                    return
                yield tag, value


def set_runpath(data, path):
    headers = list(program_headers(data))
    entries = list(dynamic_entries(data, headers))
    table_address = next((value for tag, value in entries if tag == DT_STRTAB), None)
    for tag, value in entries:
        if tag not in (DT_RPATH, DT_RUNPATH):
            continue
        table = next(at + table_address - address for kind, at, address, length in headers
                     if kind == PT_LOAD and address <= table_address < address + length)
        begin = table + value
        end = data.index(0, begin)
        if len(path) > end - begin:
            raise ValueError(f"the library path {data[begin:end].decode()} is shorter than {path}")
        data[begin:end] = path.encode().ljust(end - begin, b"\0")


if __name__ == "__main__":
    name, new_path = sys.argv[1:]
    with open(name, "r+b") as file:
        contents = bytearray(file.read())
        if contents[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"{name} is no 64-bit little-endian ELF file")
        set_runpath(contents, new_path)
        file.seek(0)
        file.write(contents)
