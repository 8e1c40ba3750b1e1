"""Writes the file of an exported module, a zip archive of graphs, manifest and tensors. See docs/exported_modules.md."""

from __future__ import annotations

import ctypes
import json
import zipfile
from pathlib import Path
from typing import Any, Dict

import torch

from genesis import __version__
from genesis.exported_manifest import MANIFEST, ROOT
from genesis.exporting.programs import Programs
from genesis.exporting.step import PRECISIONS, TYPES

# The only format that workers read. Exporters of format 1 wrote graphs with wrong products (see tracing.numbers_become_tensors).
FORMAT = 3


def _bytes_of(tensor: torch.Tensor) -> Any:
    """Returns the memory of a tensor without copying it. ``bytes`` of a torch storage would take a minute for 10 MB."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if not flat.numel():
        return b""
    memory = (ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())
    memory.tensor = flat  # Keeps the tensor alive.
    return memory


def _versions(module: torch.nn.Module) -> Dict[str, int]:
    """Returns the versions of the module and its submodules that their state_dict records, for load_state_dict."""
    found = {name: metadata.get("version") for name, metadata in module.state_dict()._metadata.items()}
    return {name: version for name, version in found.items() if isinstance(version, int) and version >= 0}


def write(path: Path, programs: Programs) -> None:
    step = programs.step
    tensors = {**step.trained, **step.state}
    roles = {name: "trained" if name in step.trained else "passing" if name in step.passing else "kept"
             for name in tensors}
    constants = {}
    for program, made in step.constants.items():
        constants[program] = [f"{program}.{number}" for number in range(len(made))]
        tensors.update(zip(constants[program], made))
        roles.update((name, "constant") for name in constants[program])
    manifest = {
        "format": FORMAT,
        "producer": f"genesis-trainer {__version__}",
        "torch": torch.__version__.split("+")[0],
        "module": type(step.module).__name__,
        "precisions": [name for name in programs.graphs if name in PRECISIONS],
        "fields": [{"name": name, "type": TYPES[tensor.dtype], "shape": list(tensor.shape[1:])}
                   for name, tensor in step.batch.items()],
        "tensors": [{"name": name, "type": TYPES[tensor.dtype], "shape": list(tensor.shape),
                     "role": roles[name]}
                    for name, tensor in tensors.items()],
        "tied": step.tied,
        "versions": _versions(step.module),
        # Fixed batch size of the graphs; absent if they support any size.
        **({} if step.dynamic else {"batch_size": len(next(iter(step.batch.values())))}),
        # Reasons why the file lacks precisions; absent if it lacks none.
        **({"without": programs.without} if programs.without else {}),
        "losses": "EXAMPLES" if step.by_example else "MEAN",
        "constants": constants,
        "gradients": step.gradients,
        "changed": step.changed,
    }
    if step.held_out_quotients:
        manifest["held_out_quotients"] = step.held_out_quotients
    if programs.prediction is not None:
        manifest["prediction"] = {"inputs": programs.prediction.inputs, "outputs": programs.prediction.outputs}
    partial = path.with_name(path.name + ".part")
    # Each graph has records of its own, and some that are the same for all, such as the version of the format.
    records = {name: content for graph in programs.graphs.values() for name, content in graph.items()}
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(zipfile.ZipInfo(f"{ROOT}/{name}"), content)
        archive.writestr(zipfile.ZipInfo(MANIFEST), json.dumps(manifest, indent=1))
        for number, tensor in enumerate(tensors.values()):
            archive.writestr(zipfile.ZipInfo(f"{ROOT}/extra/tensors/{number}"), _bytes_of(tensor))
    partial.replace(path)
