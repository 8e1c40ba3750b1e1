"""The parts of a job from the module and the data of ``Client.train``."""

from __future__ import annotations

import numbers
import pathlib
from typing import Any, Dict, Mapping, Optional

from genesis import data as data_of
from genesis.errors import InvalidArgumentError
from genesis.exported_manifest import batch_size_of
from genesis.optimizers import optimizer_spec, schedule_spec

DEFAULT_BATCH_SIZE = 32
# Path in a specification in place of a file that is not uploaded yet.
NOT_SENT = "genesis-not-sent-yet"
# The precisions for which a module is exported, by the precision of the job. MIXED_BF16 is the default fallback, and replaces MIXED_FP16
# and FP16 on a CPU with native BF16.
_ALL = ("FP32", "MIXED_BF16", "MIXED_FP16")
EXPORTED_FOR = {"FP32": ("FP32",), "MIXED_BF16": ("FP32", "MIXED_BF16"), "MIXED_FP16": _ALL, "BF16": ("FP32", "MIXED_BF16", "BF16"),
                "FP16": ("FP32", "MIXED_BF16", "FP16"), "AUTO": _ALL}


def check_numbers(counts: Mapping[str, Any], learning_rate: Any, holdout_fraction: Any, seed: Any) -> None:
    """Raises InvalidArgumentError if a number of the caller is out of range. ``counts`` are whole numbers from 1 by name; None if omitted."""
    for name, number in counts.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 1):
            raise InvalidArgumentError(f"{name} is {number!r}; accepted: whole numbers from 1")
    if learning_rate is not None and not (isinstance(learning_rate, numbers.Real) and learning_rate > 0):
        raise InvalidArgumentError(f"learning_rate is {learning_rate!r}; accepted: a number above 0")
    if holdout_fraction is not None and not (isinstance(holdout_fraction, numbers.Real) and 0 < holdout_fraction <= 0.5):
        raise InvalidArgumentError(f"holdout_fraction is {holdout_fraction!r}; accepted: above 0, at most 0.5")
    if not isinstance(seed, numbers.Integral) or not 0 <= seed < 1 << 63:
        raise InvalidArgumentError(f"seed is {seed!r}; accepted: whole numbers from 0")


def refuse_given_twice(spec: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError if a value is in both the specification and the arguments.

    Args:
        spec: the additional specification.
        arguments: the caller's arguments by their path in a job file; None if omitted.
    """
    for path, argument in arguments.items():
        part: Any = spec
        for name in path.split("."):
            part = part.get(name) if isinstance(part, Mapping) else None
        if part is not None and argument is not None:
            name = path.rsplit(".", 1)[-1]
            raise InvalidArgumentError(f"spec has {path}, which is the argument {name}; give {name} as an argument only")


def size_in(spec: Optional[Mapping[str, Any]]) -> Optional[int]:
    """Returns the batch size of a specification; None if it has none."""
    training = (spec or {}).get("training")
    size = training.get("batch_size") if isinstance(training, Mapping) else None
    return size if isinstance(size, int) else None


def optimizer_of(module: Any, optimizer: Any, schedule: Optional[Mapping[int, float]], learning_rate: Optional[float]) -> Dict[str, Any]:
    """Returns the section ``optimizer`` of a job."""
    spec: Dict[str, Any] = {}
    if learning_rate is not None:
        spec["learning_rate"] = learning_rate
    if optimizer is not None:
        if learning_rate is not None:
            raise InvalidArgumentError(f"learning_rate is {learning_rate} and optimizer has its own; give one of the two")
        if isinstance(module, (str, pathlib.Path)):
            raise InvalidArgumentError("optimizer needs the module itself, whose parameters it has; with an exported file give "
                                       "spec={'optimizer': ...}")
        spec.update(optimizer_spec(module, optimizer))
    if schedule is not None:
        spec["schedule"] = schedule_spec(schedule)
    return spec


def only_size(module: Any, dynamic_batch: bool, predict: Any) -> Optional[int]:
    """Returns the fixed batch size of an exported file; None for a module, or if the file supports any size."""
    if not isinstance(module, (str, pathlib.Path)):
        return None
    if not dynamic_batch:
        raise InvalidArgumentError(f"dynamic_batch is False and module is {str(module)!r}, which has been exported; give dynamic_batch to "
                                   "genesis.export")
    if predict is not None:
        raise InvalidArgumentError(f"predict is given and module is {str(module)!r}, which has been exported; give predict to genesis.export")
    return batch_size_of(pathlib.Path(module))


def files_of(folder: pathlib.Path, module: Any, data: Any, loss: Any, batch_size: int, precision: str, dynamic_batch: bool, predict: Any) -> Any:
    """Exports the module unless it is a file, and saves the data unless it is a file that needs no conversion. Returns both paths."""
    if isinstance(module, (str, pathlib.Path)) and not pathlib.Path(module).is_file():
        raise InvalidArgumentError(f"module is {str(module)!r}, and the file does not exist")
    is_file = isinstance(data, (str, pathlib.Path))
    if isinstance(module, (str, pathlib.Path)):
        if not is_file:
            data_of.save(data_of.chunks_of(data), folder / "data.npz")
        return module, data if is_file else folder / "data.npz"
    import torch
    from genesis.exporting import export

    if is_file and pathlib.Path(data).suffix != ".npz":
        raise InvalidArgumentError(f"data is {str(data)!r}; accepted with a module: an .npz file, arrays, or genesis.from_parquet, "
                                   "from_images, from_text or from_tokens of files; for other files export the module first and give "
                                   "the path of the exported file")
    first = data_of.read(pathlib.Path(data)) if is_file else {}
    if not is_file or not data_of.is_as_sent(first):
        is_file, first = False, data_of.save(data_of.chunks_of(first or data), folder / "data.npz", batch_size)
    size = max(2, batch_size) if dynamic_batch else batch_size
    batch = {name: torch.from_numpy(array[:size].copy()) for name, array in first.items()}
    if not dynamic_batch and any(len(tensor) < batch_size for tensor in batch.values()):
        raise InvalidArgumentError(f"batch_size is {batch_size} and the data has {min(map(len, batch.values()))} examples; dynamic_batch=False "
                                   "needs as many as a batch")
    exported = export(module, batch, folder / "module.pt2", loss=loss, precisions=EXPORTED_FOR[precision], dynamic_batch=dynamic_batch,
                      predict=predict)
    return exported, data if is_file else folder / "data.npz"
