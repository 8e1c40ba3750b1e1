"""Checkpoints of jobs and their content."""

from __future__ import annotations

import hashlib
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Optional

from genesis.connection import Connection, FilePath
from genesis.errors import DataLossError
from genesis.transfer import OnProgress, download

if TYPE_CHECKING:
    import torch


def load_checkpoint(path: FilePath) -> Dict[str, Any]:
    """Loads a local checkpoint file like ``torch.load``, with tensors on the CPU and ``weights_only=True``.

    A sharded checkpoint (``checkpoint.sharded``) returns the same content as a single file. Its shards must be in the same folder.

    Args:
        path: the checkpoint file; for a sharded checkpoint, the file that lists the shards.

    Returns:
        The content: ``model_state_dict``, ``optimizer_state_dict``, ``step`` and more.

    Raises:
        OSError: the file cannot be read.
        DataLossError: a shard is missing, damaged, or from another checkpoint.
    """
    import torch

    path = pathlib.Path(path)
    content = torch.load(path, map_location="cpu", weights_only=True)
    own = content.get("genesis", {}) if isinstance(content, dict) else {}
    shards = own.pop("shards", [])
    token = own.pop("shard_token", None)
    state = content["optimizer_state_dict"]["state"] if shards else {}
    for rank, listed in enumerate(shards):
        part = torch.load(_shard(path, listed), map_location="cpu", weights_only=True)
        place = {"step": own["step"], "rank": rank, "ranks": len(shards), "token": token}
        if part["shard"] != place:
            raise DataLossError(f"{listed['file']} is {part['shard']}; {path} lists {place}")
        for key in ("model_state_dict", "ema_state_dict"):
            content.get(key, {}).update(part.get(key, {}))
        state.update(part["optimizer_state_dict"]["state"])
    for number in sorted(state) if shards else ():
        state[number] = state.pop(number)
    return content


def _shard(path: pathlib.Path, listed: Dict[str, Any]) -> pathlib.Path:
    """Returns the path of a shard after comparing its SHA-256 with the listed one."""
    name = listed["file"]
    if not name.startswith(f"{path.name}.shard-") or "/" in name:
        raise DataLossError(f"{path} lists the shard {name!r}; accepted: {path.name}.shard-..., in the same folder")
    shard = path.parent / name
    digest = hashlib.sha256()
    try:
        with open(shard, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise DataLossError(f"{shard}: {error.strerror}; {path} lists it") from None
    if digest.hexdigest() != listed["sha256"]:
        raise DataLossError(f"{shard} has SHA-256 {digest.hexdigest()}; {path} says {listed['sha256']}; the file is damaged")
    return shard


class Checkpoint:
    """A durable checkpoint of the daemon, from which training can continue and which torch can load.

    ``record`` is the message ``Checkpoint`` of the API, with ``id``, ``job_id``, ``step``, ``loss``, ``size_bytes`` and more.
    """

    def __init__(self, connection: Connection, record: Any) -> None:
        self._connection = connection
        self.record = record
        self._content: Optional[Dict[str, Any]] = None

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def step(self) -> int:
        return self.record.step

    @property
    def loss(self) -> float:
        return self.record.loss

    @property
    def reported_metrics(self) -> Dict[str, float]:
        """Metrics that callers reported for its step (``Job.report``), by name."""
        return dict(self.record.reported_metrics)

    def download(self, path: FilePath, *, on_progress: OnProgress = None) -> pathlib.Path:
        """Downloads the file and verifies its checksum. Call it again to resume an interrupted download.

        Args:
            path: the file to write. It must not exist.
            on_progress: called with the number of bytes received so far and the total.

        Returns:
            The path.

        Raises:
            FileExistsError: the file exists.
            DataLossError: the checkpoint is missing or damaged.
            UnavailableError: the daemon did not respond for 10 minutes.
        """
        download(self._connection, self.id, path, on_progress=on_progress)
        return pathlib.Path(path)

    def load(self) -> Dict[str, Any]:
        """Downloads the checkpoint once and returns its content, as ``load_checkpoint`` does.

        The shards of a sharded checkpoint are read from the daemon's folder, which this machine must be able to read, because the daemon
        sends only single files.

        Returns:
            The content: ``model_state_dict``, ``optimizer_state_dict``, ``step`` and more.

        Raises:
            DataLossError: a file is missing or damaged.
            OSError: the files of a sharded checkpoint cannot be read on this machine.
        """
        if self._content is None and self.record.shard_count:
            self._content = load_checkpoint(self.record.path)
        if self._content is None:
            with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
                path = self.download(pathlib.Path(folder) / "checkpoint.pt")
                self._content = load_checkpoint(path)
        return self._content

    @property
    def model_state_dict(self) -> "Dict[str, torch.Tensor]":
        """Weights, for the module's ``load_state_dict``."""
        return self.load()["model_state_dict"]

    @property
    def optimizer_state_dict(self) -> Dict[str, Any]:
        """State of the optimizer, for its ``load_state_dict``."""
        return self.load()["optimizer_state_dict"]

    def __repr__(self) -> str:
        return f"Checkpoint(id={self.id!r}, step={self.step}, loss={self.loss:.6g})"
