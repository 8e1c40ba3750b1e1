"""Converts job specifications from dicts with the names of a job file."""

from __future__ import annotations

import difflib
import math
from typing import Any, Mapping, Union

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from genesis.errors import InvalidArgumentError
from genesis.training.v1 import field_rule_pb2, job_pb2

Spec = Union[job_pb2.JobSpec, Mapping[str, Any]]


def _by_synonym(message: Descriptor, name: str, place: str = "") -> str:
    """Returns the path of the first field for which ``name`` is a synonym, such as its name in another framework; empty if there is
    none."""
    for field in message.fields:
        if name in field.GetOptions().Extensions[field_rule_pb2.synonyms]:
            return place + field.name
        found = _by_synonym(field.message_type, name, f"{place}{field.name}.") if field.message_type is not None else ""
        if found:
            return found
    return ""


def _value(field: FieldDescriptor, value: Any, path: str) -> Any:
    if field.message_type is not None and isinstance(value, Mapping) and not field.message_type.GetOptions().map_entry:
        return _names(field.message_type, value, path + ".")
    if field.message_type is not None and isinstance(value, (bool, int, float)) and not field.message_type.full_name.startswith("google."):
        raise InvalidArgumentError(f"spec has {path} = {value!r}; accepted: a dict of {', '.join(each.name for each in field.message_type.fields[:4])} "
                                   "..., as docs/job_file.md has it")
    if field.enum_type is not None and isinstance(value, str):
        prefix = field.enum_type.values_by_number[0].name[:-len("UNSPECIFIED")]
        return value if value.startswith(prefix) else prefix + value.upper()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")  # protobuf's JSON names. The daemon rejects the value.
    return value


def _names(message: Descriptor, values: Mapping[str, Any], place: str = "") -> Mapping[str, Any]:
    """Returns the values with full names of fields and enum values, so that ``MIXED_BF16`` is accepted.

    ``place`` is the path of the message, for error messages.

    Raises:
        InvalidArgumentError: a field is unknown, or has a number in place of a dict.
    """
    found = {}
    for name, value in values.items():
        field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
        path = f"{place}{name}"
        if field is None:
            near = _by_synonym(job_pb2.JobSpec.DESCRIPTOR, str(name)) or "".join(difflib.get_close_matches(str(name), message.fields_by_name, 1))
            raise InvalidArgumentError(f"spec has {path!r}, which no job has" + (f"; did you mean {near}?" if near else "") +
                                       "; docs/job_file.md lists the fields")
        found[field.name] = ([_value(field, each, path) for each in value] if isinstance(value, (list, tuple)) else
                             _value(field, value, path))
    return found


def spec_of(spec: Spec) -> job_pb2.JobSpec:
    """Returns a specification as a message. The daemon checks its values.

    Raises:
        InvalidArgumentError: it has an unknown field or a value of the wrong type.
    """
    if isinstance(spec, job_pb2.JobSpec):
        return spec
    if not isinstance(spec, Mapping):
        raise InvalidArgumentError(f"the specification is a {type(spec).__name__}; accepted: a dict with the names of docs/job_file.md, or the message "
                                   "JobSpec")
    try:
        return json_format.ParseDict(_names(job_pb2.JobSpec.DESCRIPTOR, spec), job_pb2.JobSpec())
    except json_format.ParseError as error:
        raise InvalidArgumentError(f"the specification is not a job: {error}; docs/job_file.md lists the fields") from None


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns ``base`` overridden by ``more``. Nested dicts are merged recursively."""
    found = dict(base)
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(found.get(name), Mapping):
            found[name] = merged(found[name], value)
        else:
            found[name] = value
    return found
