"""The manifest of an exported file. Reading it needs no torch."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Optional

ROOT = "module"
MANIFEST = f"{ROOT}/extra/genesis.json"


def batch_size_of(path: Path) -> Optional[int]:
    """Returns the fixed batch size of an exported file.

    Returns None if the file supports any batch size. Also returns None if it is not such a file, because the worker reports that."""
    with contextlib.suppress(OSError, KeyError, ValueError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(MANIFEST)).get("batch_size")
    return None
