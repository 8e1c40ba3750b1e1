#!/usr/bin/env python3
"""Verifies checkpoints against their manifests: verify_checkpoint.py [--quick] FILE.pt ...

Needs only Python's standard library. Prints a line per file; the exit status is 1 if one is
damaged. CRC-32C in plain Python takes a minute per 500 MB; --quick skips it and checks size, record
list and the CRC-32 that the file itself holds for each record.
"""

import hashlib
import json
import pathlib
import pickletools
import re
import sys
import zipfile


def crc32c_table():
    table = list(range(256))
    for _ in range(8):
        table = [(crc >> 1) ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


def crc32c(file, table=crc32c_table()):
    crc = 0xFFFFFFFF
    while piece := file.read(1 << 20):
        for byte in piece:
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def listed_shards(archive):
    """Returns (file name, SHA-256) of the shards that the checkpoint's pickle lists. The pickle is parsed, not executed."""
    record = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
    shards, file = [], None
    for _, value, _ in pickletools.genops(archive.read(record)) if record else ():
        if isinstance(value, str) and re.search(r"\.shard-\d+-of-\d+-", value):
            file = value
        elif file and isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
            shards.append((file, value))
            file = None
    return shards


def shard_fault(path, name, sha256):
    """Returns what is wrong with a shard in the folder of `path`; None if nothing is."""
    if "/" in name or not name.startswith(f"{path.name}.shard-"):
        return f"is no name of a shard of {path.name}"
    shard = path.parent / name
    if not shard.exists():
        return "is not there"
    digest = hashlib.sha256()
    with open(shard, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return None if digest.hexdigest() == sha256 else "fails its SHA-256"


def verify(path, quick):
    """Returns (fault, note) of a checkpoint, one of which is None."""
    manifest_path = pathlib.Path(f"{path}.manifest.json")
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            return f"record {damaged} fails its CRC-32", None
        for shard, sha256 in listed_shards(archive):
            if fault := shard_fault(path, shard, sha256):
                return f"{shard} {fault}", None
        if not manifest_path.exists():
            return None, "has no manifest; its own checksums are right"
        manifest = json.loads(manifest_path.read_text())
        name = next(n for n in archive.namelist() if n.endswith("/.data/serialization_id"))
        if archive.read(name).decode() != manifest["id"]:
            return None, "its manifest was written for another file; its own checksums are right"
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    if path.stat().st_size != manifest["size"]:
        return f"is {path.stat().st_size} bytes long; its manifest says {manifest['size']}", None
    if sizes != {record["name"]: record["size"] for record in manifest["records"]}:
        return "its records are not those of its manifest", None
    with open(path, "rb") as file:
        if not quick and (found := crc32c(file)) != manifest["crc32c"]:
            return f"has CRC-32C {found}; its manifest says {manifest['crc32c']}", None
    loss = manifest["held_out_loss"]
    return None, f"step {manifest['step']}, {manifest['mode']}, held-out loss {loss}"


def main(arguments):
    quick = "--quick" in arguments
    paths = [pathlib.Path(a) for a in arguments if a != "--quick"]
    if not paths or any(str(path).startswith("-") for path in paths):
        sys.exit(__doc__)
    failed = False
    for path in paths:
        try:
            fault, note = verify(path, quick)
        except (OSError, ValueError, KeyError, TypeError, StopIteration,
                zipfile.BadZipFile) as error:
            fault, note = f"{type(error).__name__}: {error}", None
        print(f"{path}: {'DAMAGED: ' + fault if fault else 'ok: ' + note}")
        failed = failed or fault is not None
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
