"""Transfers files: uploads for jobs, downloads of checkpoints and artifacts. Interrupted transfers can be resumed."""

from __future__ import annotations

import hashlib
import os
import pathlib
import time
from typing import Any, Callable, Optional

import grpc

from genesis.connection import Connection, FilePath
from genesis.crc32c import crc32c
from genesis.errors import AbortedError, DataLossError, InvalidArgumentError, UnavailableError

PIECE_BYTES = 2 << 20
# Maximum size of a piece for ImportCheckpoint.
IMPORT_PIECE_BYTES = 1 << 20
#: Function that is called with the number of transferred bytes and the total.
OnProgress = Optional[Callable[[int, int], None]]


def sha256_of(path: FilePath) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE_BYTES), b""):
            digest.update(piece)
    return digest.hexdigest()


def crc32c_of(path: FilePath) -> int:
    crc = 0
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE_BYTES), b""):
            crc = crc32c(piece, crc)
    return crc


def upload(connection: Connection, path: FilePath, *, timeout: float = 600.0, on_progress: OnProgress = None) -> str:
    """Uploads a file for jobs. Sends nothing if the daemon already has a file with the same content.

    Args:
        timeout: maximum number of seconds without progress during the transfer. The first call has the connection's timeout.
        on_progress: called with the number of bytes sent so far and the total.

    Returns:
        The path of the file on the daemon's machine.

    Raises:
        InvalidArgumentError: the file name has no extension.
        DataLossError: the file changed during the upload.
        ResourceExhaustedError: ``datasets.max_uploads_bytes`` or ``quotas.stored_bytes`` is reached, or the daemon's disk is full.
    """
    path = pathlib.Path(path)
    file = {"sha256": sha256_of(path), "kind": path.suffix[1:].lower(), "size_bytes": path.stat().st_size}
    if not file["kind"]:
        raise InvalidArgumentError(f"{path}: the name has no ending; the daemon needs one to identify the file, such as .npz or .pt2")
    sent_again = False
    state = connection.call("StartUpload", **file).upload
    with open(path, "rb") as content:
        while not state.path:
            content.seek(state.received_bytes)
            piece = content.read(PIECE_BYTES)
            if not piece and state.received_bytes < file["size_bytes"]:
                raise DataLossError(f"{path} became shorter while it was sent")
            try:
                state = connection.call("WriteUpload", timeout=timeout, offset=state.received_bytes, piece=piece, **file).upload
            except AbortedError:  # Another client sends the same file.
                time.sleep(0.1)
                state = connection.call("StartUpload", timeout=timeout, **file).upload
            except DataLossError:
                # After a crash of the daemon's machine, the start of the file on its disk may differ from what was sent.
                if sent_again or sha256_of(path) != file["sha256"]:
                    raise
                sent_again = True
                state = connection.call("StartUpload", timeout=timeout, **file).upload
            if on_progress:
                on_progress(state.received_bytes, file["size_bytes"])
    return state.path


def download(connection: Connection, checkpoint_id: str, path: FilePath, *, timeout: float = 600.0,
             on_progress: OnProgress = None) -> Any:
    """Downloads a checkpoint and returns its record. Resumes an earlier attempt, which left ``<path>.part``.

    The file gets its name only when it is complete and its CRC-32C matches.

    Args:
        timeout: maximum number of seconds without progress.

    Raises:
        FileExistsError: the file exists.
        DataLossError: the file is missing or damaged on the daemon's disk, or was damaged during the transfer.
        UnavailableError: the daemon did not respond within the timeout.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it, or name another")
    part = path.with_name(path.name + ".part")
    record, deadline = None, time.monotonic() + timeout
    crc = crc32c_of(part) if part.exists() else 0
    with open(part, "ab") as file:
        while record is None or file.tell() < record.size_bytes:
            request = connection.request("DownloadCheckpoint", checkpoint_id=checkpoint_id, offset=file.tell())
            try:
                for message in connection.stream("DownloadCheckpoint", request):
                    if message.HasField("checkpoint"):
                        record = message.checkpoint
                    if crc32c(message.content) != message.content_crc32c:
                        raise DataLossError(f"a piece of checkpoint {checkpoint_id} was damaged on its way; repeat the call")
                    file.write(message.content)
                    crc = crc32c(message.content, crc)
                    deadline = time.monotonic() + timeout
                    if on_progress and record is not None:
                        on_progress(file.tell(), record.size_bytes)
            except grpc.RpcError as error:
                passing = isinstance(connection.error(error), UnavailableError)
                if not passing or time.monotonic() > deadline:
                    if file.tell() == 0:
                        part.unlink()
                    raise connection.error(error) from None
                time.sleep(0.2)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if size != record.size_bytes or (record.crc32c and crc != record.crc32c):
        part.unlink()
        raise DataLossError(f"checkpoint {checkpoint_id} came as {size} bytes with CRC-32C {crc:08x}; its record says "
                            f"{record.size_bytes} with {record.crc32c:08x}; repeat the call")
    os.replace(part, path)
    return record


def download_artifact(connection: Connection, job_id: str, name: str, path: FilePath, *, timeout: float = 600.0) -> None:
    """Downloads an artifact of a job to a file, which gets its name only when it is complete. Resumes an earlier attempt.

    Raises:
        FileExistsError: the file exists.
        DataLossError: a piece was damaged during the transfer.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it, or name another")
    part = path.with_name(path.name + ".part")
    offset = part.stat().st_size if part.exists() else 0
    while True:
        response = connection.call("ReadArtifact", timeout=timeout, job_id=job_id, name=name, offset=offset)
        if crc32c(response.piece) != response.piece_crc32c:
            raise DataLossError(f"a piece of {name} was damaged on its way; repeat the call")
        with open(part, "ab") as file:
            file.write(response.piece)
        offset += len(response.piece)
        if not response.piece or offset >= response.size_bytes:
            break
    os.replace(part, path)


def import_checkpoint(connection: Connection, path: FilePath, checkpoint_id: str) -> Any:
    """Uploads a local checkpoint file to the daemon and returns its record."""
    path = pathlib.Path(path)
    with open(path, "rb") as file:
        first = connection.request("ImportCheckpoint", checkpoint_id=checkpoint_id, size_bytes=path.stat().st_size, crc32c=crc32c_of(path),
                                   content=file.read(IMPORT_PIECE_BYTES))

        def pieces() -> Any:
            yield first
            for piece in iter(lambda: file.read(IMPORT_PIECE_BYTES), b""):
                yield connection.request("ImportCheckpoint", content=piece)

        return connection.send("ImportCheckpoint", pieces()).checkpoint
