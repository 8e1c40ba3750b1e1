"""Runs graphs as a worker does, with nativert, which some versions of torch also provide in Python."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Iterator, List

import torch

from genesis.exporting.packed import Records

NODE = "Exception while executing node"
# c10's log level for errors.
ERRORS = 2
# nativert's runner of packed programs; None if this torch was built without it, as those after 2.11 are.
RUNNER = getattr(getattr(torch._C, "_nativert", None), "PyModelRunner", None)
if not hasattr(RUNNER, "run_with_flat_inputs_and_outputs"):
    RUNNER = None


class Graph:
    """A packed program that nativert runs, or torch's interpreter of graphs if this torch has no nativert. It may change its inputs.

    ``program.module()`` would compute some operators differently. nativert has its own kernels for many, which support fewer arguments and
    choose other memory layouts for their results. The interpreter has torch's kernels, so only a worker sees such a difference.

    Raises:
        RuntimeError: the program cannot be loaded.
    """

    def __init__(self, name: str, records: Records) -> None:
        self._run = _interpreted(name, records) if RUNNER is None else _by_nativert(name, records)

    def __call__(self, *tensors: torch.Tensor) -> List[torch.Tensor]:
        try:
            given = self._run(*tensors)
            return [given] if isinstance(given, torch.Tensor) else list(given)  # A single result is not in a list.
        except RuntimeError as error:
            # nativert's message starts with the operator and its arguments.
            text = str(error)
            raise RuntimeError(text.split("\n\n", 1)[1] if text.startswith(NODE) else text) from error


def _by_nativert(name: str, records: Records) -> Callable[..., Any]:
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        path = Path(folder) / "graph.pt2"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for record, content in records.items():
                archive.writestr(f"graph/{record}", content)
        with _without_warnings():
            return RUNNER(str(path), name).run_with_flat_inputs_and_outputs


def _interpreted(name: str, records: Records) -> Callable[..., Any]:
    from torch._export.serde.serialize import SerializedArtifact, deserialize

    program = deserialize(SerializedArtifact(exported_program=records[f"models/{name}.json"], state_dict=b"", constants=b"", example_inputs=b""))
    return torch.fx.Interpreter(program.graph_module).run


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
