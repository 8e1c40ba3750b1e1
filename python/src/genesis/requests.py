"""Builds requests from the caller's arguments, and checks their types before a call."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from genesis.errors import InvalidArgumentError
from genesis.training.v1 import job_pb2, training_service_pb2

_LONGEST = 100
_ACCEPTED = {FieldDescriptor.CPPTYPE_STRING: "text", FieldDescriptor.CPPTYPE_BOOL: "True or False",
             FieldDescriptor.CPPTYPE_INT32: "a whole number of 32 bits", FieldDescriptor.CPPTYPE_INT64: "a whole number of 64 bits",
             FieldDescriptor.CPPTYPE_UINT32: "a whole number of 32 bits, from 0", FieldDescriptor.CPPTYPE_UINT64: "a whole number of 64 bits, from 0",
             FieldDescriptor.CPPTYPE_FLOAT: "a number", FieldDescriptor.CPPTYPE_DOUBLE: "a number"}


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _accepted(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        entry = field.message_type
        return f"a dict of text to {_accepted(entry.fields_by_name['value'])}" if entry.GetOptions().map_entry else entry.name
    one = _ACCEPTED.get(field.cpp_type, "bytes")
    # protobuf 4 has no is_repeated.
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED
    return f"a list, each {one}" if repeated else one


def message(kind: Any, /, **fields: Any) -> Any:
    """Returns a message of class ``kind``.

    Raises:
        InvalidArgumentError: a value is None or has the wrong type for its field.
    """
    try:
        if None not in fields.values():
            return kind(**fields)
    except (TypeError, ValueError, AttributeError):
        pass  # Some of protobuf's errors do not name the field.
    for name, value in fields.items():
        try:
            if value is not None:
                kind(**{name: value})
                continue
        except (TypeError, ValueError, AttributeError):
            pass
        raise InvalidArgumentError(f"{name} is {shown(value)}; accepted: {_accepted(kind.DESCRIPTOR.fields_by_name[name])}")
    return kind(**fields)


def number_of(enum: EnumTypeWrapper, argument: str, name: Any) -> int:
    """Returns the number of an enum value, given its name without the prefix: ``RUNNING`` for ``JOB_STATE_RUNNING``.

    Raises:
        InvalidArgumentError: the enum has no such value.
    """
    unspecified, *names = enum.keys()
    prefix = unspecified[:-len("UNSPECIFIED")]
    if f"{prefix}{name}" not in names:
        raise InvalidArgumentError(f"{argument} is {shown(name)}; accepted: {', '.join(each[len(prefix):] for each in names)}")
    return enum.Value(f"{prefix}{name}")


def event_filter(job_id: str, owner: str, labels: Optional[Mapping[str, str]], kinds: Sequence[str], states: Sequence[str]) -> Any:
    """Returns the filter of WatchJobs and ListEvents.

    Raises:
        InvalidArgumentError: unknown state.
    """
    numbers = [number_of(job_pb2.JobState, "states", state) for state in ([states] if isinstance(states, str) else states)]
    names = [kinds] if isinstance(kinds, str) else kinds
    return message(training_service_pb2.EventFilter, job_id=job_id, owner=owner, labels=labels or {}, kinds=names, states=numbers)
