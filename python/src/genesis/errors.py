"""Exceptions of the client, by the gRPC status code of a call."""

from __future__ import annotations

from typing import Dict, Type

import grpc


class GenesisError(Exception):
    """A call that the daemon rejected or did not answer, or whose arguments the client rejected.

    ``code`` is the gRPC status code. Codes without a class of their own raise this class.
    """

    code = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, code: "grpc.StatusCode | None" = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidArgumentError(GenesisError, ValueError):
    """The request or the job is invalid. The message has one line per error."""
    code = grpc.StatusCode.INVALID_ARGUMENT


class ExportError(InvalidArgumentError):
    """The module cannot be exported. The message says how to fix it. Raised before the module is uploaded."""


class NotFoundError(GenesisError, LookupError):
    """The job, checkpoint, artifact, dataset or worker does not exist."""
    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(GenesisError):
    """The ID or the name is already in use."""
    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPreconditionError(GenesisError):
    """The call is not possible in the current state, for example because a job has ended or a checkpoint is in use."""
    code = grpc.StatusCode.FAILED_PRECONDITION


class PermissionDeniedError(GenesisError, PermissionError):
    """The role of the caller does not allow this call."""
    code = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(GenesisError, PermissionError):
    """The token is missing or unknown."""
    code = grpc.StatusCode.UNAUTHENTICATED


class ResourceExhaustedError(GenesisError):
    """A limit is reached, such as of a queue, a quota, open streams or the size of a request, or a disk is full."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(GenesisError, ConnectionError):
    """The daemon does not respond, is starting, or is draining."""
    code = grpc.StatusCode.UNAVAILABLE


class AbortedError(GenesisError):
    """The job ended or lost its worker before the call completed, or another call writes to the same upload."""
    code = grpc.StatusCode.ABORTED


class DataLossError(GenesisError):
    """A file is missing or damaged."""
    code = grpc.StatusCode.DATA_LOSS


class CancelledError(GenesisError):
    """The call was cancelled."""
    code = grpc.StatusCode.CANCELLED


class OutOfRangeError(GenesisError):
    """Events after the cursor are no longer kept, or an offset is past the end."""
    code = grpc.StatusCode.OUT_OF_RANGE


class DeadlineExceededError(GenesisError, TimeoutError):
    """The daemon did not respond within the timeout of the call."""
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class JobFailedError(GenesisError):
    """A job ended as FAILED or CANCELLED. The message contains the reason, and ``job`` is the ``Job``."""
    code = grpc.StatusCode.ABORTED

    def __init__(self, message: str, job: object) -> None:
        super().__init__(message)
        self.job = job


_BY_CODE: Dict[grpc.StatusCode, Type[GenesisError]] = {
    each.code: each for each in (InvalidArgumentError, NotFoundError, AlreadyExistsError, FailedPreconditionError,
                                 PermissionDeniedError, UnauthenticatedError, ResourceExhaustedError, UnavailableError,
                                 AbortedError, DataLossError, CancelledError, OutOfRangeError, DeadlineExceededError)}


def from_rpc(error: grpc.RpcError, server: str) -> GenesisError:
    """Returns the exception for a failed call to ``server``."""
    code, text = error.code(), error.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE:
        text = f"the daemon at {server} is not available: {text}"
    elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"the daemon at {server} did not respond in time: {text}"
    return _BY_CODE.get(code, GenesisError)(text, code)
