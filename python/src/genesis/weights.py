"""The weights of a running job, version by version."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from genesis.connection import Connection, is_local
from genesis.crc32c import crc32c
from genesis.errors import DataLossError, InvalidArgumentError
from genesis.requests import number_of
from genesis.training.v1 import weights_pb2

if TYPE_CHECKING:
    import numpy
    import torch

# A tensor of a file: (type, shape, its bytes).
_Tensor = Tuple[str, List[int], memoryview]
# Element types of a .safetensors file: their names in torch and in numpy.
ELEMENT_TYPES = {"F64": ("float64", "f8"), "F32": ("float32", "f4"), "F16": ("float16", "f2"), "BF16": ("bfloat16", ""), "I64": ("int64", "i8"),
                 "I32": ("int32", "i4"), "I16": ("int16", "i2"), "I8": ("int8", "i1"), "U8": ("uint8", "u1"), "BOOL": ("bool", "b1")}
# Maximum number of seconds that the daemon may take to hand over memory.
_HANDOVER = 10.0


def _tensors_of(file: memoryview) -> Dict[str, _Tensor]:
    """Returns the tensors of a .safetensors file by name."""
    (length,) = struct.unpack("<Q", file[:8])
    data = file[8 + length:]
    header = json.loads(bytes(file[8:8 + length]))
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


class WeightsVersion:
    """One version of the weights of a job."""

    def __init__(self, record: Any, tensors: Dict[str, _Tensor]) -> None:
        self.record = record
        self._tensors = tensors

    @property
    def number(self) -> int:
        """Number of the version, which grows even if the job goes back to an earlier step."""
        return self.record.number

    @property
    def step(self) -> int:
        """Optimizer steps that led to these weights."""
        return self.record.step

    def tensors(self) -> "Dict[str, torch.Tensor]":
        """Returns the weights and buffers by their names in ``state_dict()``, without a copy."""
        import torch

        found = {}
        for name, (kind, shape, data) in self._tensors.items():
            dtype = getattr(torch, ELEMENT_TYPES[kind][0])
            found[name] = (torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)).reshape(shape)
        return found

    def arrays(self) -> "Dict[str, numpy.ndarray]":
        """Returns the weights and buffers as numpy arrays.

        Raises:
            InvalidArgumentError: the format is BF16, which numpy lacks.
        """
        import numpy

        if self.record.format == weights_pb2.WEIGHTS_FORMAT_BF16:
            raise InvalidArgumentError("numpy has no BF16; use tensors(), or job.weights(format='FP32')")
        return {name: numpy.frombuffer(data, dtype=ELEMENT_TYPES[kind][1]).reshape(shape) for name, (kind, shape, data) in self._tensors.items()}

    def load_into(self, module: "torch.nn.Module") -> None:
        """Copies the weights and buffers into a module, in place and in its formats.

        Raises:
            InvalidArgumentError: the module has other names or shapes. Nothing has changed then.
        """
        import torch

        here = {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
        there = self.tensors()
        faults = [f"{name} is in the module only" for name in here.keys() - there.keys()]
        faults += [f"{name} is in the job only" for name in there.keys() - here.keys()]
        faults += [f"{name} is {list(here[name].shape)} in the module and {list(there[name].shape)} in the job"
                   for name in here.keys() & there.keys() if here[name].shape != there[name].shape]
        if faults:
            more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
            raise InvalidArgumentError(f"version {self.number} of the weights does not fit the module: {'; '.join(sorted(faults)[:5])}{more}; "
                                       "accepted: a module with the same names and shapes")
        with torch.no_grad():
            for name, value in here.items():
                value.copy_(there[name])

    def __repr__(self) -> str:
        return f"WeightsVersion(number={self.number}, step={self.step})"


def _map(memory: Any) -> Optional[memoryview]:
    """Maps a version in memory of this host. Returns None if a later one has taken its place."""
    key = memory.key.encode()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.settimeout(_HANDOVER)
        daemon.connect(memory.socket)
        daemon.sendall(struct.pack("<I", len(key)) + key)
        _, descriptors, _, _ = socket.recv_fds(daemon, 4, 1)
    if not descriptors:
        return None
    try:
        # Writable for the caller, and each written page becomes the caller's own.
        return memoryview(mmap.mmap(descriptors[0], 0, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptors[0])


class _Reader:
    """Reads the stream of versions on a thread and keeps the newest, so that a slow caller gets no outdated ones."""

    def __init__(self, connection: Connection, timeout: float, since: int, fields: Dict[str, Any]) -> None:
        self._connection, self._timeout, self._since, self._fields = connection, timeout, since, fields
        # Whether to request shared memory, and whether it was mapped. A tunnel or a container may make the daemon of another host seem local.
        self._shares, self._mapped = is_local(connection.server), False
        self._changed = threading.Condition()
        self._newest: Optional[WeightsVersion] = None
        self._error: Optional[BaseException] = None
        self._ended = False
        self.closed = False
        self._stream: Any = None
        threading.Thread(target=self._read, name="genesis-weights", daemon=True).start()

    def next(self) -> WeightsVersion:
        with self._changed:
            self._changed.wait_for(lambda: self._newest or self._ended)
            version, self._newest = self._newest, None
            if version is not None:
                return version
            if self._error is not None:
                raise self._error
            raise StopIteration

    def close(self) -> None:
        self.closed = True
        if self._stream is not None:
            self._stream.cancel()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read(self) -> None:
        error = None
        try:
            self._read_all()
        except BaseException as found:  # Raised where the caller waits.
            error = found
        with self._changed:
            self._error, self._ended = None if self.closed else error, True
            self._changed.notify_all()

    def _request(self) -> Dict[str, Any]:
        self._tensors: Dict[str, _Tensor] = {}
        return {**self._fields, "since": self._since, "shared_memory": self._shares}

    def _begin(self, stream: Any) -> None:
        self._stream = stream
        if self.closed:
            stream.cancel()

    def _read_all(self) -> None:
        while not self._read_to_end():
            self._shares = False

    def _read_to_end(self) -> bool:
        """Reads to the end of the stream. Returns False if the memory of the daemon cannot be read here, and True otherwise."""
        with contextlib.closing(self._connection.persist("WatchWeights", self._request, self._timeout, self._begin)) as responses:
            for response in responses:
                if response is None or self.closed:
                    return True
                if response.HasField("version"):
                    self._record, self._file = response.version, bytearray()
                if self._record.HasField("memory"):
                    if not self._take_memory():
                        return False
                else:
                    self._file += response.content
                    if len(self._file) == self._record.size_bytes:
                        self._take_file()
        return True

    def _take_memory(self) -> bool:
        try:
            file = _map(self._record.memory)
        except OSError:
            file = None
        if file is not None:
            self._mapped = True
            self._pass(_tensors_of(file))
        return self._mapped

    def _take_file(self) -> None:
        if crc32c(self._file) != self._record.crc32c:
            raise DataLossError(f"version {self._record.number} of the weights was damaged on its way; repeat the call")
        before = self._tensors
        self._tensors = _tensors_of(memoryview(self._file))
        self._tensors.update({name: before[name] for name in self._record.unchanged})
        self._pass(self._tensors)

    def _pass(self, tensors: Dict[str, _Tensor]) -> None:
        self._since = self._record.number
        with self._changed:
            self._newest = WeightsVersion(self._record, tensors)
            self._changed.notify_all()


class Weights(Iterator[WeightsVersion]):
    """The versions of a job's weights. Each call returns the newest version at that time; ``close`` ends the iteration."""

    def __init__(self, connection: Connection, job_id: str, *, interval: float, format: str, average: bool, since: int, timeout: float) -> None:
        self._reader = _Reader(connection, timeout, since, {
            "job_id": job_id, "interval_seconds": interval, "average": average,
            "format": number_of(weights_pb2.WeightsFormat, "format", format)})

    def __next__(self) -> WeightsVersion:
        return self._reader.next()

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> "Weights":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self.close()
