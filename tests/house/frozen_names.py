"""Prints the names that job files and settings promise: `python3 tests/house/frozen_names.py > tests/house/frozen_names.txt`.

Each name is kept for as long as there are users of it, so a new one is argued for in the commit that adds it to that file."""

import json
import pathlib
import re
import typing

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def settings() -> list[str]:
    page = (DOCS / "reference.md").read_text()
    return re.findall(r"^\| `([\w.]+)` \|", page.split("## Settings of genesisd", 1)[1].split("\n## ", 1)[0], re.MULTILINE)


def job_fields() -> typing.Iterator[str]:
    schemas = json.loads((DOCS / "openapi.json").read_text())["components"]["schemas"]

    def fields(schema: str, prefix: str, above: tuple[str, ...]) -> typing.Iterator[str]:
        for name, value in schemas[schema].get("properties", {}).items():
            reference = re.search(r'"#/components/schemas/(\w+)"', json.dumps(value))
            inner = reference[1] if reference else ""
            if inner in above or "properties" not in schemas.get(inner, {}):
                yield prefix + name
            else:
                yield from fields(inner, f"{prefix}{name}.", (*above, inner))

    return fields("JobSpec", "", ("JobSpec",))


def names() -> list[str]:
    return [f"setting {name}" for name in sorted(settings())] + [f"job {name}" for name in sorted(set(job_fields()))]


if __name__ == "__main__":
    print("\n".join(names()))
