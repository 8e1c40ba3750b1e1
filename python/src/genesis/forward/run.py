"""The interface of a tool: one job as a run of the tool."""

from __future__ import annotations

import abc
import importlib
import re
from typing import Any, Dict, List, NamedTuple, Tuple

from google.protobuf import json_format

from genesis.errors import InvalidArgumentError
from genesis.events import Event, state_name
from genesis.training.v1 import job_pb2, precision_pb2

#: Control characters other than tab and newline, which no tool shows and some refuse.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: Kinds of events that a tool shows as text.
NOTED = ("state_changed", "precision_changed", "incident", "updated", "rank_changed")


class Refused(Exception):
    """The tool refuses what was sent and would refuse it again. The message names what the tool therefore lacks."""


class Row(NamedTuple):
    """Metrics after one step."""

    step: int
    #: Unix seconds.
    time: float
    #: Values by name, such as ``train/loss``. NaN if the value was not finite.
    values: Dict[str, float]


class Run(abc.ABC):
    """A job in a tool.

    One thread uses it. The constructor continues the tool's run of the job, if any. A method returns when the tool has stored what
    was sent, or earlier if the constructor asks the tool for its newest step, so that nothing is lost if this process is killed. After a
    method has raised, another run is created, which continues after the newest step that was saved.

    Args:
        target: the text that follows the name of the tool on the command line.
        job: the job.
        step: newest step that was sent; 0 for none.
    """

    #: Name of the Python module that the tool needs, which pip installs by the same name; empty for none.
    needs = ""
    #: Whether steps that are sent again replace the earlier ones after ``attempt``.
    replaces = False

    @classmethod
    def check(cls, target: str) -> None:
        """Raises InvalidArgumentError if the target is not usable."""
        if not target:
            raise InvalidArgumentError("--to names no target; accepted: tensorboard:FOLDER, mlflow:URL, wandb:PROJECT, trackio:PROJECT")
        if cls.needs:
            try:
                importlib.import_module(cls.needs)
            except ImportError as error:
                raise InvalidArgumentError(f"the Python package {cls.needs} is not usable ({error}); pip install {cls.needs}") from None

    @abc.abstractmethod
    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        #: Newest step that the tool has: ``step``, unless the tool reports another one. 0 if the run was removed from the tool.
        self.step = step

    def attempt(self, step: int, time: float) -> None:
        """Reports that another attempt trains the steps from ``step`` on."""

    @abc.abstractmethod
    def log(self, rows: List[Row]) -> None:
        """Sends metrics of steps, in ascending order. The first row may have only an evaluation, of a step that was sent before."""

    @abc.abstractmethod
    def note(self, job: job_pb2.Job, text: str, story: str, step: int) -> None:
        """Sends the text of an event, such as a fallback, or ``story``, the texts of the newest events, one per line."""

    @abc.abstractmethod
    def state(self, job: job_pb2.Job) -> None:
        """Sends the state of the job. After a final state the run is not used any more."""

    def close(self) -> None:
        """Closes the run of a job that goes on."""


def unique_name(job: job_pb2.Job) -> str:
    """Returns a name that another job with the same ID, of another daemon or after a deletion, does not have."""
    return f"{job.id}-{job.create_time.ToDatetime():%Y%m%d-%H%M%S}"


def cleaned(text: str) -> str:
    """Returns the text with U+FFFD in place of each control character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def quoted(text: str) -> str:
    """Returns the text as a code block of Markdown, in which no character has a special meaning."""
    return "\n".join("    " + line for line in cleaned(text).splitlines())


def spec_of(job: job_pb2.Job) -> Dict[str, Any]:
    """Returns the specification of a job as a dict with the names of a job file."""
    return json_format.MessageToDict(job.spec, preserving_proto_field_name=True)


def flattened(spec: Dict[str, Any], prefix: str = "") -> List[Tuple[str, str]]:
    """Returns the fields of a specification as names and texts: ``optimizer.learning_rate``, ``0.001``."""
    found = []
    for name, value in spec.items():
        if isinstance(value, dict) and value:
            found += flattened(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, cleaned(str(value))))
    return found


def mode_name(mode: int) -> str:
    """Returns the name of a precision mode, such as ``MIXED_BF16``."""
    return precision_pb2.PrecisionMode.Name(mode)[len("PRECISION_MODE_"):]


def summary(job: job_pb2.Job) -> Dict[str, str]:
    """Returns the state and other facts about a job, by the names under which a tool shows them beside the run."""
    found = {"genesis.job_id": job.id, "genesis.owner": cleaned(job.owner), "genesis.state": state_name(job),
             "genesis.state_reason": cleaned(job.state_reason), "genesis.restarts": str(job.restarts)}
    if job.HasField("precision"):
        found.update({"genesis.precision": mode_name(job.precision.mode), "genesis.precision_reason": cleaned(job.precision.reason),
                      "genesis.device": cleaned(job.precision.device)})
    found.update({f"genesis.label.{key}": cleaned(value) for key, value in job.labels.items()})
    return found


def text_of(event: Event) -> str:
    """Returns the text of an event of a kind in ``NOTED``."""
    value = event.value
    if event.kind == "state_changed":
        return f"{event.state}: {value.reason}"
    if event.kind == "precision_changed":
        return (f"step {value.step}: {mode_name(getattr(value, 'from'))} to {mode_name(value.to)}, continued after step {value.resumed_step}: "
                f"{value.reason}")
    if event.kind == "incident":
        return f"step {value.step}: {value.message}"
    return f"rank {value.rank} on {value.host}: {value.reason}" if event.kind == "rank_changed" else value
