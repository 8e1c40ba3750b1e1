"""Events of jobs, as reported by ``Job.events`` and ``Client.events``."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Optional

from genesis.training.v1 import event_pb2, job_pb2

# Kinds of events: the names of the oneof JobEvent.what, and "update" for a message without an event, such as after a step.
KINDS = ("update", *[field.name for field in event_pb2.JobEvent.DESCRIPTOR.oneofs_by_name["what"].fields])


@dataclasses.dataclass(frozen=True, repr=False)
class Event:
    """One event of one job."""

    #: ``state_changed``, ``precision_changed``, ``incident``, ``checkpoint_written``, ``evaluated``, ``updated``,
    #: ``rank_changed``, ``metrics_reported``, ``deleted``, ``log_line`` (``Job.events`` alone); or ``update`` if only the metrics of the job changed.
    kind: str
    #: The message of that kind; the text of a log line; the job's progress for an ``update``.
    value: Any
    #: The job at the time when the daemon sent the event, which for a past event is later than the event itself. From
    #: ``Client.events``, only its ID, owner, state after the event and, in an ``update``, progress.
    job: job_pb2.Job
    #: When the daemon recorded it; None for an ``update``.
    time: Optional[datetime.datetime] = None
    #: Increases over all events of the daemon; 0 for an ``update`` and a ``log_line``.
    sequence: int = 0

    def __repr__(self) -> str:
        return f"Event(kind={self.kind!r}, job={self.job.id!r}, state={self.state!r}, step={self.step}, loss={self.loss:.6g})"

    @property
    def step(self) -> int:
        """Step of a checkpoint, an evaluation or another event that has one; otherwise the newest step of ``job``."""
        return getattr(self.value, "step", self.job.progress.step)

    @property
    def loss(self) -> float:
        """Training loss of the newest step of ``job``; 0 before the first step."""
        return self.job.progress.loss

    @property
    def state(self) -> str:
        """New state in a ``state_changed``, otherwise the state of ``job``, such as ``RUNNING``."""
        return _name(self.value.to) if self.kind == "state_changed" else state_name(self.job)


def state_name(job: job_pb2.Job) -> str:
    """Returns the name of a job's state, such as ``RUNNING``."""
    return _name(job.state)


def _name(state: int) -> str:
    return job_pb2.JobState.Name(state)[len("JOB_STATE_"):]


def is_final(job: job_pb2.Job) -> bool:
    return state_name(job) in ("SUCCEEDED", "FAILED", "CANCELLED")


def events_of(response: Any) -> "list[Event]":
    """Returns the events in one response of WatchJob. A response without events is returned as one ``update``."""
    found = _events(response.events, response.job)
    return found or [Event("update", response.job.progress, response.job)]


def fleet_events_of(response: Any) -> "list[Event]":
    """Returns the events in one response of WatchJobs or ListEvents. A bookmark has none."""
    found = _events(response.events)
    for each in getattr(response, "progress", ()):
        job = job_pb2.Job(id=each.job_id, state=each.state, progress=each.progress)
        found.append(Event("update", each.progress, job))
    return found


def _events(messages: Any, job: Optional[job_pb2.Job] = None) -> "list[Event]":
    found = []
    for event in messages:
        kind = event.WhichOneof("what")
        if kind is None:  # Sent by a newer daemon.
            continue
        of_job = job or job_pb2.Job(id=event.job_id, owner=event.owner, state=event.state)
        found.append(Event(kind, getattr(event, kind), of_job, event.time.ToDatetime(tzinfo=datetime.timezone.utc), event.sequence))
    return found
