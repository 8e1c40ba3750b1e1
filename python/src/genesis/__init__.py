"""Client of the Genesis training daemon.

>>> client = genesis.Client()
>>> job = client.train(module, {"x": x, "target": y}, loss="cross_entropy", epochs=20)
>>> job.watch()
>>> module.load_state_dict(job.checkpoint().model_state_dict)
"""

from typing import TYPE_CHECKING

from genesis.aio import AsyncClient, AsyncJob
from genesis.checkpoints import Checkpoint, load_checkpoint
from genesis.client import Client
from genesis.columns import Column
from genesis.converters import from_images, from_parquet, from_text, from_tokens
from genesis.dashboard import open as open
from genesis.data import Chunks
from genesis.errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError, DeadlineExceededError, ExportError,
                            FailedPreconditionError, GenesisError, InvalidArgumentError, JobFailedError, NotFoundError, OutOfRangeError,
                            PermissionDeniedError, ResourceExhaustedError, UnauthenticatedError, UnavailableError)
from genesis.events import Event
from genesis.job import Job
from genesis.predictions import Prediction
from genesis.sweep import Range, Sweep
from genesis.trajectories import Appender
from genesis.weights import WeightsVersion
from genesis.world_model import WorldModel

if TYPE_CHECKING:
    from genesis.exporting import export

__version__ = "0.1.0"
# Without `open`, because `from genesis import *` would replace Python's own.
__all__ = ["AbortedError", "AlreadyExistsError", "Appender", "AsyncClient", "AsyncJob", "CancelledError", "Checkpoint", "Chunks", "Client", "Column",
           "DataLossError", "DeadlineExceededError", "Event", "ExportError", "FailedPreconditionError", "GenesisError", "InvalidArgumentError", "Job",
           "JobFailedError", "NotFoundError", "OutOfRangeError", "PermissionDeniedError", "Prediction", "Range", "ResourceExhaustedError", "Sweep",
           "UnauthenticatedError", "UnavailableError", "WeightsVersion", "WorldModel", "export", "from_images", "from_parquet", "from_text", "from_tokens", "load_checkpoint"]


# Names of earlier training code that ran in the caller's process, each with its replacement here (docs/founding_names.md).
_REPLACED = {
    "ExtendedFP16Trainer": "genesis.Client().train(module, data, ...), which a daemon runs",
    "FP16Trainer": "genesis.Client().train(module, data, ...), which a daemon runs",
    "ExtendedFP16Config": "arguments of Client.train (precision=, spec={'training': ...}), with the names of docs/job_file.md",
    "FP16Config": "arguments of Client.train (precision=, spec={'training': ...}), with the names of docs/job_file.md",
    "PrecisionMode": "the name of a mode as text: precision='MIXED_BF16'",
    "init_distributed": "ranks=N of Client.train; the daemon, torchrun or Slurm starts the ranks (docs/distributed.md)",
    "cleanup_distributed": "nothing: the ranks of a job end by themselves (docs/distributed.md)",
}


def __getattr__(name: str) -> object:
    """Imports ``export`` on first access, so that importing genesis does not import torch."""
    if name == "export":
        from genesis.exporting import export
        return export
    if name in _REPLACED:  # Not an AttributeError: `from genesis import` would hide its message.
        raise ImportError(f"genesis has no {name}; use {_REPLACED[name]}")
    raise AttributeError(f"module 'genesis' has no attribute {name!r}")
