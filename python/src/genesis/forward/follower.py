"""Follows the jobs of a daemon for one tool."""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
import time as clock
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type

from genesis.client import Client
from genesis.errors import NotFoundError, OutOfRangeError
from genesis.events import Event, fleet_events_of, is_final
from genesis.forward.positions import Position, Positions, Progress
from genesis.forward.run import NOTED, Refused, Row, Run, text_of
from genesis.training.v1 import job_pb2

# A number larger than that of any step.
_NEWEST = 1 << 62
# Maximum number of steps in one call of GetCurves.
_PAGE = 10000
# Minimum number of seconds between two reads of a running job.
_READ_SECONDS = 5.0
# Shortest and longest pause between attempts to reach a tool or the daemon. Seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# Maximum number of events of a job that a tool shows. The newest are kept.
_STORY_LINES = 200
# Metrics in which NaN is a value that is not finite. In other metrics, NaN means that the step has no value.
_ALWAYS = ("loss", "grad_norm")


@dataclasses.dataclass
class Counts:
    """Counts of one follower since its start. A step that was trained again counts again."""

    steps: int = 0
    events: int = 0
    failures: int = 0
    dropped: int = 0


class Follower(threading.Thread):
    """A thread that reads events and metrics from the daemon and sends them to one tool, at the speed of the tool.

    If anything fails, the thread drops its runs, waits, and continues from the saved positions, as after a restart of the process.

    Args:
        tool: name of the tool, for messages and for the file of positions.
        run: class of the tool's runs.
        target: target of the runs.
        client: connection to the daemon, which ``stop`` closes.
        wanted: filter of the jobs, the message ``EventFilter``.
    """

    def __init__(self, tool: str, run: Type[Run], target: str, client: Client, wanted: Any, positions: Positions) -> None:
        super().__init__(name=tool, daemon=True)
        self.counts = Counts()
        self._tool, self._run, self._target, self._positions = tool, run, target, positions
        self._client, self._wanted = client, wanted
        self._stopping = threading.Event()
        self._runs: Dict[str, Optional[Run]] = {}  # None for a job that the tool refuses.
        self._read: Dict[str, float] = {}  # When the metrics of a job were last read.
        self._stories: Dict[str, List[str]] = {}
        self._progress = Progress()
        self._failing = False
        self._skips = False

    def stop(self) -> None:
        """Requests the thread to end after what it is sending, and closes the client."""
        self._stopping.set()
        self._client.close()

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            self._progress = self._positions.of(self._tool)
            sent = self.counts.events + self.counts.steps
            try:
                self._follow()
            except OutOfRangeError as error:
                self._drop(f"events that the daemon does not keep any more ({error})")
                self._skips = True
            except Exception as error:  # Each tool's package raises exceptions of its own.
                if not self._stopping.is_set():
                    self._failed(error)
            self._leave()
            pause = _FIRST_PAUSE if self.counts.events + self.counts.steps > sent else min(2 * pause, _LONGEST_PAUSE)
            self._stopping.wait(pause)

    def _say(self, text: str) -> None:
        print(f"{self._tool}: {text}", file=sys.stderr, flush=True)

    def _failed(self, error: Exception) -> None:
        self.counts.failures += 1
        if not self._failing:
            self._say(f"waiting, because of {type(error).__name__}: {error}")
        self._failing = True

    def _drop(self, why: str) -> None:
        self.counts.dropped += 1
        self._say(f"not sent: {why}")

    def _leave(self) -> None:
        for run in self._runs.values():
            try:
                if run is not None:
                    run.close()
            except Exception:
                pass  # The run failed before, or its tool cannot be reached.
        for each in (self._runs, self._read, self._stories):
            each.clear()

    def _follow(self) -> None:
        if self._skips:
            self._forget_missing()
        for response in self._client.connection.watch("WatchJobs", self._progress.cursor, math.inf, filter=self._wanted, skip_dropped=self._skips):
            for event in fleet_events_of(response) if response is not None else ():
                if self._stopping.is_set():
                    return
                self._take(event)
            if response is not None and response.cursor > self._progress.cursor:
                self._save(response.cursor)
                self._skips = False

    def _save(self, cursor: int) -> None:
        self._progress.cursor = cursor
        self._positions.save(self._tool, self._progress)
        if self._failing:
            self._say("sending again")
            self._failing = False

    def _job(self, job_id: str) -> job_pb2.Job:
        return self._client.connection.call("GetJob", job_id=job_id).job

    def _run_of(self, job: job_pb2.Job) -> Optional[Run]:
        """Returns the run of a job; None if the tool refuses it."""
        if job.id not in self._runs:
            position = self._progress.jobs.setdefault(job.id, Position())
            try:
                run = self._runs[job.id] = self._run(self._target, job, position.step)
                if run.step != position.step:
                    self._progress.jobs[job.id] = self._position_after(job.id, run.step, position)
            except Refused as error:
                self._runs[job.id] = None
                self._drop(f"job {job.id}: {error}")
        return self._runs[job.id]

    def _take(self, event: Event) -> None:
        job_id = event.job.id
        known = job_id in self._progress.jobs
        try:
            if event.kind == "update":
                if known and event.step > 0 and clock.monotonic() > self._read.get(job_id, -math.inf) + _READ_SECONDS:
                    # The events of these steps were sent before.
                    self._send_steps(self._run_of(self._job(job_id)), job_id, last=event.step)
                return
            if event.kind == "deleted":
                self._forget_deleted(event.job)
            elif event.kind != "checkpoint_written" and (known or event.kind == "state_changed" or not is_final(event.job)):
                job = self._job(job_id)
                job.state = event.job.state  # The record may be newer than the event.
                self._send(job, event)
                self.counts.events += 1
        except NotFoundError:
            self._forget_deleted(event.job)
        except Refused as error:
            self._drop(f"{event.kind} of job {job_id}: {error}")
        if event.kind == "state_changed" and is_final(event.job):
            self._forget(job_id)
        self._save(event.sequence)

    def _send(self, job: job_pb2.Job, event: Event) -> None:
        """Sends an event, after the steps before it."""
        run = self._run_of(job)
        position, time = self._progress.jobs[job.id], _seconds(event)
        if event.kind == "evaluated":
            position.evaluations.append(_evaluation(event))
        self._send_steps(run, job.id, until=math.inf if is_final(job) else time, ended=is_final(job))
        if run is None or event.kind == "evaluated":
            return
        if event.kind == "metrics_reported":
            run.log([Row(event.value.step, time, {f"reported/{name}": value for name, value in sorted(event.value.values.items())})])
            return
        if event.kind == "state_changed" and event.state == "STARTING":
            run.attempt(position.step + 1, time)
        run.note(job, text_of(event), self._story(job.id, event), position.step)
        if event.kind == "state_changed":
            run.state(job)

    def _events(self, job_id: str, kinds: Sequence[str], last: int) -> Iterator[Event]:
        """Yields the events of a job up to the one with a sequence number."""
        cursor = 0
        while cursor < last:
            events, cursor = self._client.events_page(cursor, job_id=job_id, kinds=kinds)
            yield from (event for event in events if event.sequence <= last)
            if not events:
                return

    def _story(self, job_id: str, event: Event) -> str:
        """Returns the texts of the newest events of a job up to and including ``event``, a line for each."""
        if job_id not in self._stories:
            self._stories[job_id] = [_line(each) for each in self._events(job_id, NOTED, event.sequence - 1)]
        lines = self._stories[job_id] = [*self._stories[job_id], _line(event)][-_STORY_LINES:]
        return "\n".join(lines)

    def _position_after(self, job_id: str, step: int, saved: Position) -> Position:
        """Returns the position of a tool that has all steps up to ``step``, with the evaluations that it may lack.

        A step before the saved one was sent before its time. If the job has trained it again since, the tool may lack steps before it."""
        times = list(self._curves(job_id, step, step, "loss").times) if step else []
        if times and step < saved.step:
            times = [min(times[-1], saved.time)]
        sent = step if self._run.replaces else step - 1  # A batch often ends before an evaluation.
        rows = [row for row in self._evaluations(job_id) if row.step > sent]
        return Position(step, times[-1] if times else 0.0, max(sent, 0), rows)

    def _evaluations(self, job_id: str) -> List[Row]:
        """Returns the evaluations of a job up to the cursor."""
        return [_evaluation(event) for event in self._events(job_id, ["evaluated"], self._progress.cursor)]

    def _forget(self, job_id: str) -> None:
        for each in (self._progress.jobs, self._runs, self._read, self._stories):
            each.pop(job_id, None)

    def _forget_deleted(self, job: job_pb2.Job) -> None:
        """Ends the run of a deleted job, whose specification and metrics the daemon does not have any more."""
        if job.id in self._progress.jobs:
            self._drop(f"the end of job {job.id}, which was deleted")
            run = self._runs.get(job.id)
            if run is not None:
                run.state(job)
        self._forget(job.id)

    def _forget_missing(self) -> None:
        """Ends the runs of jobs that do not exist any more. Their deletion may be among the events that the daemon did not keep."""
        for job_id in list(self._progress.jobs):
            try:
                self._job(job_id)
            except NotFoundError:
                self._forget_deleted(job_pb2.Job(id=job_id, state=job_pb2.JOB_STATE_CANCELLED))

    def _curves(self, job_id: str, first: int, last: int, *metrics: str) -> Any:
        return self._client.connection.call("GetCurves", job_id=job_id, from_step=first, to_step=last, points=_PAGE, metrics=metrics)

    def _send_steps(self, run: Optional[Run], job_id: str, last: int = _NEWEST, until: float = math.inf, ended: bool = False) -> None:
        """Sends the steps after the newest one that was sent, up to step ``last`` and time ``until``; if ``ended``, also the last evaluations."""
        position = self._progress.jobs[job_id]
        self._read[job_id] = clock.monotonic()
        first = max(position.step, 1)
        while run is not None:
            found = self._curves(job_id, first, min(first + _PAGE - 1, last))
            if run.replaces and _trained_again(found, position):
                position.step, position.time, since = self._newest_kept(job_id, position, found.last_step)
                position.evaluated = min(position.evaluated, position.step)
                again = {row.step: row for row in (*self._evaluations(job_id), *position.evaluations)
                         if row.step > position.step and row.time > since}
                position.evaluations = [*(row for row in position.evaluations if row.step <= position.step), *again.values()]
                run.attempt(position.step + 1, position.time)
                first = max(position.step, 1)
                continue
            first += _PAGE
            over = first > min(found.last_step, last) or (bool(found.times) and found.times[-1] > until)
            self._log(run, job_id, [row for row in _rows(found, position.step) if row.time <= until], over and ended)
            if over:
                return

    def _log(self, run: Run, job_id: str, rows: List[Row], ended: bool) -> None:
        """Sends steps with their evaluations. An evaluation waits for a later step, so that a tool that has a step has all evaluations before
        it."""
        position = self._progress.jobs[job_id]
        steps = {row.step: row for row in rows}
        for row in [each for each in position.evaluations if ended or (rows and each.step < rows[-1].step)]:
            position.evaluations.remove(row)
            if row.step > position.evaluated:
                position.evaluated = row.step
                if row.step in steps:
                    steps[row.step].values.update(row.values)
                else:
                    rows.insert(0, row)
        if not rows:
            return
        try:
            run.log(rows)
        except Refused as error:
            self._drop(f"steps {rows[0].step} to {rows[-1].step} of job {job_id}: {error}")
        if steps:
            self.counts.steps += len(steps)
            position.step, position.time = rows[-1].step, rows[-1].time
        self._save(self._progress.cursor)

    def _newest_kept(self, job_id: str, position: Position, last: int) -> Tuple[int, float, float]:
        """Returns the newest step that was sent and not trained again since, its time, and when training again began."""
        last, since = min(position.step, last), math.inf
        while last > 0:
            found = self._curves(job_id, max(last - _PAGE + 1, 1), last, "loss")
            for step, time in zip(reversed(found.last_steps), reversed(found.times)):
                if step <= position.step and time <= position.time:
                    return step, time, since
                since = min(since, time)
            last -= _PAGE
        return 0, 0.0, since


def _seconds(event: Event) -> float:
    """Returns the time of a numbered event as Unix seconds."""
    return event.time.timestamp() if event.time else 0.0


def _line(event: Event) -> str:
    return f"{event.time:%Y-%m-%d %H:%M:%S} {text_of(event)}"


def _evaluation(event: Event) -> Row:
    metrics = {f"eval/{name}": value for name, value in event.value.metrics.items()}
    return Row(event.value.step, _seconds(event), {"eval/loss": event.value.loss, **metrics})


def _trained_again(found: Any, position: Position) -> bool:
    """Returns whether the newest step that was sent was trained again, and so has a later time, or will be, and so is missing."""
    return 0 < found.last_step < position.step or any(
        step == position.step and time > position.time for step, time in zip(found.last_steps, found.times))


def _rows(found: Any, after: int) -> List[Row]:
    """Returns the points after a step. A point that stands for several steps is their mean, at the last of them."""
    rows = []
    for i, step in enumerate(found.last_steps):
        if step <= after:
            continue
        values = {f"train/{curve.metric}": curve.mean[i] for curve in found.curves
                  if curve.metric in _ALWAYS or not math.isnan(curve.mean[i])}
        if not found.reduced_precision[i]:
            values.pop("train/loss_scale", None)
        if found.counts[i] > 1:
            values["train/steps_per_point"] = found.counts[i]
        rows.append(Row(step, found.times[i], values))
    return rows
