"""Exceptions of the client: the daemon's statuses, with its own text."""

from __future__ import annotations

from typing import Dict, Type

import grpc


class GenesisError(Exception):
    """A call that the daemon refused or did not answer.

    ``code`` is the gRPC status; the text is the daemon's.
    """

    code = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, code: "grpc.StatusCode | None" = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidArgumentError(GenesisError, ValueError):
    """A request or a job that is wrong; one line for each fault."""
    code = grpc.StatusCode.INVALID_ARGUMENT


class ExportError(InvalidArgumentError):
    """A module that cannot be exported, with what to change. No daemon was asked."""


class NotFoundError(GenesisError, LookupError):
    """No such job, checkpoint, dataset or worker."""
    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(GenesisError):
    """The id is taken by something else."""
    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPreconditionError(GenesisError):
    """Not in this state: a job that has ended, a checkpoint that is needed."""
    code = grpc.StatusCode.FAILED_PRECONDITION


class PermissionDeniedError(GenesisError, PermissionError):
    """The caller's role is too low."""
    code = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(GenesisError, PermissionError):
    """No token, or one that the daemon does not know."""
    code = grpc.StatusCode.UNAUTHENTICATED


class ResourceExhaustedError(GenesisError):
    """A queue, a quota or a disk is full."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnavailableError(GenesisError, ConnectionError):
    """The daemon does not answer, starts or drains."""
    code = grpc.StatusCode.UNAVAILABLE


class AbortedError(GenesisError):
    """The job ended, or lost its worker, before the call was done."""
    code = grpc.StatusCode.ABORTED


class DataLossError(GenesisError):
    """A file is gone or damaged."""
    code = grpc.StatusCode.DATA_LOSS


class CancelledError(GenesisError):
    """The call was cancelled."""
    code = grpc.StatusCode.CANCELLED


class JobFailedError(GenesisError):
    """A job that ended as FAILED or CANCELLED. ``job`` is its handle; the text says why it ended."""
    code = grpc.StatusCode.ABORTED

    def __init__(self, message: str, job: object) -> None:
        super().__init__(message)
        self.job = job


_BY_CODE: Dict[grpc.StatusCode, Type[GenesisError]] = {
    each.code: each for each in (InvalidArgumentError, NotFoundError, AlreadyExistsError, FailedPreconditionError,
                                 PermissionDeniedError, UnauthenticatedError, ResourceExhaustedError, UnavailableError,
                                 AbortedError, DataLossError, CancelledError)}


def from_rpc(error: grpc.RpcError, server: str) -> GenesisError:
    """The exception of a status."""
    code, text = error.code(), error.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE:
        text = f"the daemon at {server} is not available: {text}"
    return _BY_CODE.get(code, GenesisError)(text, code)
