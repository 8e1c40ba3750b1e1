"""Checkpoints of jobs, and what is in them."""

from __future__ import annotations

import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Optional

from genesis.connection import Connection, FilePath
from genesis.transfer import OnProgress, download

if TYPE_CHECKING:
    import torch


class Checkpoint:
    """A durable file of the daemon that training can continue from, and that torch opens.

    ``record`` is the message ``Checkpoint`` of the API: ``id``, ``job_id``, ``step``, ``loss``, ``size_bytes`` and more.
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

    def download(self, path: FilePath, *, on_progress: OnProgress = None) -> pathlib.Path:
        """Fetches the file; its checksum is compared. A download that broke goes on when it is repeated."""
        download(self._connection, self.id, path, on_progress=on_progress)
        return pathlib.Path(path)

    def load(self) -> Dict[str, Any]:
        """What ``torch.load`` gives of the file: ``model_state_dict``, ``optimizer_state_dict``, ``step`` and more. Fetched once;
        nothing but tensors and plain values is read (``weights_only``)."""
        if self._content is None:
            import torch

            with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
                path = self.download(pathlib.Path(folder) / "checkpoint.pt")
                self._content = torch.load(path, map_location="cpu", weights_only=True)
        return self._content

    @property
    def model_state_dict(self) -> "Dict[str, torch.Tensor]":
        """The weights, as ``load_state_dict`` of the module takes them."""
        return self.load()["model_state_dict"]

    @property
    def optimizer_state_dict(self) -> Dict[str, Any]:
        return self.load()["optimizer_state_dict"]

    def __repr__(self) -> str:
        return f"Checkpoint(id={self.id!r}, step={self.step}, loss={self.loss:.6g})"
