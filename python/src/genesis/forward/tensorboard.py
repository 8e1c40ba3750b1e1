"""TensorBoard: a folder of event files for each job."""

from __future__ import annotations

import json
import pathlib
import socket
import time as clock
from typing import List

from genesis.events import is_final
from genesis.forward.run import Row, Run, quoted, spec_of, summary
from genesis.training.v1 import job_pb2

_PATTERN = "events.out.tfevents.*"


class TensorBoardRun(Run):
    """A job in TensorBoard: a new event file in ``TARGET/<job id>``, which begins with SessionLog START.

    START makes readers forget the points of earlier files from its step on: points that were written but not yet saved as sent when this
    process was killed, and steps that another attempt trains again."""

    needs = "tensorboard"
    replaces = True

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = pathlib.Path(target) / job.id
        folder.mkdir(parents=True, exist_ok=True)
        earlier = [int(path.name.split(".")[3]) for path in folder.glob(_PATTERN)]
        # The newest step is sent again, because what was sent after it, such as its evaluation, may not be saved as sent.
        super().__init__(target, job, step - 1 if earlier and step else 0)
        # Readers take the files in the order of their names.
        second = max([int(clock.time()), *(each + 1 for each in earlier)])
        self._file = open(folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.genesis", "xb")
        self._writer = RecordWriter(self._file)
        self._write(step=0, wall_time=clock.time(), file_version="brain.Event:2")
        self.attempt(self.step + 1, clock.time())
        if not earlier:
            self._text("job", json.dumps({**summary(job), "spec": spec_of(job)}, indent=2), 0, clock.time())
        self._file.flush()

    def _write(self, **fields: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.write(Event(**fields).SerializeToString())

    def _text(self, tag: str, text: str, step: int, time: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.metadata import create_summary_metadata

        tensor = TensorProto(dtype="DT_STRING", string_val=[quoted(text).encode()])
        value = Summary.Value(tag=tag, metadata=create_summary_metadata(tag, ""), tensor=tensor)
        self._write(step=step, wall_time=time, summary=Summary(value=[value]))

    def attempt(self, step: int, time: float) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._write(step=step, wall_time=time, session_log=SessionLog(status=SessionLog.START))
        self._file.flush()

    def log(self, rows: List[Row]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        for row in rows:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.values.items()]
            self._write(step=row.step, wall_time=row.time, summary=Summary(value=values))
        self._file.flush()

    def note(self, job: job_pb2.Job, text: str, story: str, step: int) -> None:
        """Writes the newest events again, because START may have hidden the earlier text."""
        self._text("events", story, step, clock.time())
        self._file.flush()

    def state(self, job: job_pb2.Job) -> None:
        """Closes the file after the end of the job. TensorBoard does not show states, and the event was already sent as text."""
        if is_final(job):
            self.close()

    def close(self) -> None:
        self._file.close()
