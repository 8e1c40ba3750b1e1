"""What happens to a job, as a watch tells it."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Optional

from genesis.training.v1 import event_pb2, job_pb2

# Kinds of events, as JobEvent.what names them; "update" is a change of the job alone, such as another step.
KINDS = ("update", *[field.name for field in event_pb2.JobEvent.DESCRIPTOR.oneofs_by_name["what"].fields])


@dataclasses.dataclass(frozen=True, repr=False)
class Event:
    """One thing that happened to one job."""

    #: ``state_changed``, ``precision_changed``, ``incident``, ``checkpoint_written``, ``evaluated``, ``log_line``,
    #: ``updated``; or ``update`` where only the figures of the job changed.
    kind: str
    #: The message of that kind; the text of a log line; the job's progress of an ``update``.
    value: Any
    #: The job as it was then.
    job: job_pb2.Job
    #: When the daemon heard of it; None for an ``update``.
    time: Optional[datetime.datetime] = None
    #: Grows over all events of the daemon; 0 for an ``update``.
    sequence: int = 0

    def __repr__(self) -> str:
        return f"Event(kind={self.kind!r}, job={self.job.id!r}, state={self.state!r}, step={self.step}, loss={self.loss:.6g})"

    @property
    def step(self) -> int:
        """Optimizer steps that the job had made."""
        return self.job.progress.step

    @property
    def loss(self) -> float:
        """Training loss of the newest step; 0 before the first."""
        return self.job.progress.loss

    @property
    def state(self) -> str:
        """``RUNNING`` and the like."""
        return state_name(self.job)


def state_name(job: job_pb2.Job) -> str:
    """``RUNNING`` and the like."""
    return job_pb2.JobState.Name(job.state)[len("JOB_STATE_"):]


def is_final(job: job_pb2.Job) -> bool:
    return state_name(job) in ("SUCCEEDED", "FAILED", "CANCELLED")


def events_of(response: Any) -> "list[Event]":
    """The events of one message of WatchJob, at least one."""
    found = []
    for event in response.events:
        kind = event.WhichOneof("what")
        if kind is None:  # Of a daemon that is newer.
            continue
        found.append(Event(kind, getattr(event, kind), response.job, event.time.ToDatetime(tzinfo=datetime.timezone.utc),
                           event.sequence))
    return found or [Event("update", response.job.progress, response.job)]
