"""A small file that records what has been sent to each tool."""

from __future__ import annotations

import copy
import dataclasses
import fcntl
import json
import os
import pathlib
import threading
from typing import Any, Dict, List

from genesis.connection import FilePath
from genesis.errors import InvalidArgumentError
from genesis.forward.run import Row


@dataclasses.dataclass
class Position:
    """The part of one job that has been sent."""

    #: Newest step.
    step: int = 0
    #: Time of that step. Unix seconds. A step that was trained again has a later one.
    time: float = 0.0
    #: Newest step whose evaluation was sent.
    evaluated: int = 0
    #: Evaluations that wait for a later step.
    evaluations: List[Row] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Progress:
    """The part of all jobs that has been sent to one tool."""

    #: Cursor of WatchJobs.
    cursor: int = 0
    #: Positions by job ID. A job whose end was sent has none.
    jobs: Dict[str, Position] = dataclasses.field(default_factory=dict)


def _position(evaluations: List[Any], **fields: Any) -> Position:
    return Position(evaluations=[Row(*row) for row in evaluations], **fields)


class Positions:
    """A file of positions, which belongs to one process at a time. Any thread may use it.

    Raises:
        InvalidArgumentError: another process has the file, or it has another format.
        OSError: the file cannot be read or written.
    """

    def __init__(self, path: FilePath) -> None:
        self._path, self._lock = pathlib.Path(path), threading.Lock()
        self._locked = open(f"{path}.lock", "w")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgumentError(f"another process has {path}; give each its own --state") from None
        try:
            self._saved: Dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
            self._progress = {tool: Progress(each["cursor"], {job_id: _position(**position) for job_id, position in each["jobs"].items()})
                              for tool, each in self._saved.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidArgumentError(f"{path} is not a file of genesis.forward ({error}); give another --state, or remove it to send everything "
                                       "again") from None

    def of(self, tool: str) -> Progress:
        """Returns a copy of the saved positions of a tool."""
        with self._lock:
            return copy.deepcopy(self._progress.get(tool, Progress()))

    def save(self, tool: str, progress: Progress) -> None:
        with self._lock:
            self._progress[tool] = copy.deepcopy(progress)
            self._saved[tool] = dataclasses.asdict(progress)
            written = self._path.with_name(self._path.name + ".new")
            written.write_text(json.dumps(self._saved))
            os.replace(written, self._path)
