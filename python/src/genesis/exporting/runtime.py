"""Runs graphs as a worker does, with nativert, which torch also provides in Python."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
import zipfile
from pathlib import Path
from typing import Iterator, List

import torch

from genesis.exporting.packed import Records

NODE = "Exception while executing node"
# c10's log level for errors.
ERRORS = 2


class Graph:
    """A packed program that nativert runs. It may change its inputs.

    ``program.module()`` would compute some operators differently. nativert has its own kernels for many, which support fewer arguments and
    choose other memory layouts for their results.

    Raises:
        RuntimeError: nativert cannot load the program.
    """

    def __init__(self, name: str, records: Records) -> None:
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            path = Path(folder) / "graph.pt2"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
                for record, content in records.items():
                    archive.writestr(f"graph/{record}", content)
            with _without_warnings():
                self._runner = torch._C._nativert.PyModelRunner(str(path), name)

    def __call__(self, *tensors: torch.Tensor) -> List[torch.Tensor]:
        try:
            given = self._runner.run_with_flat_inputs_and_outputs(*tensors)
            return [given] if isinstance(given, torch.Tensor) else list(given)  # A single result is not in a list.
        except RuntimeError as error:
            # nativert's message starts with the operator and its arguments.
            text = str(error)
            raise RuntimeError(text.split("\n\n", 1)[1] if text.startswith(NODE) else text) from error


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses nativert's warning about operators for which it has no kernel, because it runs torch's kernels for them."""
    library = next((Path(torch.__file__).parent / "lib").glob("libc10.*"))
    level = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")
    before = level.value
    level.value = ERRORS
    try:
        yield
    finally:
        level.value = before
