"""Exits with 0 if wheels are completely installed in this Python: check_wheels.py [--with-dependencies]
NAME==VERSION...

A wheel is complete if each file that it lists exists with the right size. libtorch_cpu.so must also load.
"""

import ctypes
import importlib.metadata as metadata
import re
import sys


def requirements(name: str) -> list[str]:
    """Returns the names of the packages that `name` requires on this platform."""
    from pip._vendor.packaging.requirements import Requirement

    found = []
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(requirement.name)
            # A package such as cuda-toolkit[cudart] lists its content under its extras.
            for extra in requirement.extras:
                found += [
                    re.split(r"[ ;=<>!~\[(]", inner)[0]
                    for inner in metadata.requires(requirement.name) or []
                    if f'extra == "{extra}"' in inner or f"extra == '{extra}'" in inner
                ]
    return found


def with_dependencies(names: list[str]) -> list[str]:
    found, todo = [], list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.append(name)
            todo += requirements(name)
    return found


def check(name: str) -> None:
    files = metadata.files(name)
    if not files:
        raise SystemExit(f"{name} lists no files")
    for file in files:
        path = file.locate()
        if not path.is_file():
            raise SystemExit(f"{name}: {path} is missing")
        if file.size is not None and path.stat().st_size != file.size:
            raise SystemExit(f"{name}: {path} is not {file.size} bytes long")


def main() -> None:
    arguments = sys.argv[1:]
    deep = arguments[0] == "--with-dependencies"
    wanted = dict(argument.split("==") for argument in arguments[1 if deep else 0 :])
    try:
        for name, version in wanted.items():
            if metadata.version(name).split("+")[0] != version:
                raise SystemExit(f"{name} is {metadata.version(name)}, not {version}")
        for name in with_dependencies(list(wanted)) if deep else wanted:
            check(name)
    except metadata.PackageNotFoundError as missing:
        raise SystemExit(f"{missing.name} is not installed") from None
    ctypes.CDLL(str(metadata.distribution("torch").locate_file("torch/lib/libtorch_cpu.so")))


if __name__ == "__main__":
    main()
