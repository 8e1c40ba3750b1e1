"""Sweeps: searches for good values of fields of a job."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Union

from genesis.connection import Connection
from genesis.errors import InvalidArgumentError, NotFoundError
from genesis.events import state_name
from genesis.job import Job
from genesis.requests import message, shown
from genesis.spec import Spec, spec_of
from genesis.training.v1 import sweep_pb2

if TYPE_CHECKING:
    import pandas

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Range:
    """A range of numbers from which each trial of a random search draws: uniformly, or with ``log`` uniformly in the logarithm."""

    low: float
    high: float
    log: bool = False


Values = Union[Range, Iterable[Any]]


def _text(value: Any) -> str:
    """Returns a value as text, as a job file contains it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(each) for each in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parameter(field: str, values: Values) -> Any:
    if isinstance(values, Range):
        return sweep_pb2.SweepParameter(field=field, range=message(sweep_pb2.SweepRange, low=values.low, high=values.high, log=values.log))
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"over has {shown(values)} for {field}; accepted: a list of values, or genesis.Range(low, high)")
    return sweep_pb2.SweepParameter(field=field, values=[_text(each) for each in values])


def sweep_spec(job: Union[Spec, Job], over: Mapping[str, Values], *, trials: int, seed: int, metric: str, maximize: bool, halving: Optional[int],
               max_parallel: int) -> Any:
    """Returns the specification of a sweep from the arguments of ``Client.sweep``."""
    base = job.message.spec if isinstance(job, Job) else spec_of(job)
    spec = message(sweep_pb2.SweepSpec, job=base, parameters=[_parameter(*each) for each in over.items()], random_trials=trials, seed=seed,
                   metric=metric, maximize=maximize, max_parallel=max_parallel)
    if halving is not None:
        spec.halving.CopyFrom(message(sweep_pb2.SuccessiveHalving, reduction_factor=halving))
    return spec


class Sweep:
    """A sweep of the daemon. ``message`` is its last known state, which ``refresh()`` updates."""

    def __init__(self, connection: Connection, record: sweep_pb2.Sweep) -> None:
        self._connection = connection
        self.message = record

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def state(self) -> str:
        """Last known state: ``RUNNING``, ``CANCELLING``, ``SUCCEEDED``, ``FAILED`` or ``CANCELLED``."""
        return sweep_pb2.SweepState.Name(self.message.state)[len("SWEEP_STATE_"):]

    @property
    def ended(self) -> bool:
        """Whether every trial has ended."""
        return self.message.HasField("end_time")

    def refresh(self) -> "Sweep":
        """Reads the sweep's current state from the daemon. Returns this sweep."""
        self.message = self._connection.call("GetSweep", sweep_id=self.id).sweep
        return self

    def wait(self, timeout: float = math.inf) -> "Sweep":
        """Waits until every trial has ended, or for ``timeout`` seconds. Returns this sweep."""
        deadline = time.monotonic() + timeout
        while not self.refresh().ended and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self

    @property
    def trials(self) -> List[Dict[str, Any]]:
        """Last known trials by number: ``job_id``, ``state``, ``value`` (the best of the metric in all evaluations; None before the first),
        ``best_step`` (the step of that evaluation), ``step`` of the newest evaluation, ``stopped_early``, ``reason`` and the ``parameters`` as
        text."""
        if not self.message.trials:  # A sweep from a list has no trials.
            self.refresh()
        return [{"number": each.number, "job_id": each.job_id, "state": state_name(each), "value": each.best_value if each.HasField("best_value") else None,
                 "best_step": each.best_step, "step": each.step, "stopped_early": each.stopped_early, "reason": each.reason, "parameters": dict(each.parameters)}
                for each in self.message.trials]

    def trials_frame(self) -> "pandas.DataFrame":
        """Returns the trials as a pandas DataFrame with a column for each parameter."""
        import pandas

        rows = [{**each, **each.pop("parameters")} for each in self.trials]
        return pandas.DataFrame(rows).set_index("number")

    def best(self) -> Job:
        """Returns the job of the best trial so far: of those that were not stopped early if one of them has a value.

        Its newest checkpoint may be of a later step than the best value. A job file with ``checkpoint.keep_best`` keeps those of the best
        held-out losses, too.

        Raises:
            NotFoundError: no trial has reported the metric yet, or the job was deleted.
        """
        self.refresh()
        if not self.message.HasField("best_trial"):
            raise NotFoundError(f"no trial of sweep {self.id} ({self.state}) has reported {self.message.spec.metric} yet; wait() waits for all")
        job_id = self.message.trials[self.message.best_trial].job_id
        return Job(self._connection, self._connection.call("GetJob", job_id=job_id).job)

    def cancel(self) -> "Sweep":
        """Submits no more trials and cancels the unfinished jobs after a checkpoint. Returns this sweep.

        Raises:
            FailedPreconditionError: the sweep has ended.
        """
        self.message = self._connection.call("CancelSweep", sweep_id=self.id).sweep
        return self

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, {self.state}, {self.message.ended_trials} of {self.message.trial_count} trials ended)"
