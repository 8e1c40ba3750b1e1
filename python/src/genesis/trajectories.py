"""Appends transitions of an environment to a replay buffer of the daemon."""

from __future__ import annotations

import operator
import re
import uuid
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from genesis.columns import VECTORS, Column, Values, encode, float32, infer, is_vector
from genesis.connection import Connection
from genesis.data import array_of, is_column
from genesis.errors import InvalidArgumentError
from genesis.requests import shown
from genesis.training.v1 import training_service_pb2

_FLAGS = ("terminals", "timeouts")
_FLOAT_BYTES = 4
# Names of values in error messages of ``add``.
_SINGULAR = {"observations": "observation", "actions": "action", "next_observations": "next observation"}
# Episodes share a request up to this size, half of the daemon's default limit on messages. A longer episode has several requests.
_REQUEST_BYTES = 2 << 20
# Requests share a call up to this size.
_CALL_BYTES = 32 << 20


def _tag(number: int, size: int) -> bytes:
    """Returns the head of a field of bytes in protobuf's wire format."""
    encoded = bytearray()
    for varint in (number << 3 | 2, size):
        while varint > 0x7F:
            encoded.append(varint & 0x7F | 0x80)
            varint >>= 7
        encoded.append(varint)
    return bytes(encoded)


def _number(message: Any, field: str) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return number


def _flags(values: Any) -> bytes:
    return array_of(values).astype(bool).tobytes() if is_column(values) else bytes(map(bool, values))


def _numbers(name: str, values: Any, count: int) -> bytes:
    """Returns the numbers of N rows of the same size as float32."""
    numbers = float32(name, values)
    if len(numbers) % (_FLOAT_BYTES * count):
        raise InvalidArgumentError(f"{name} has {len(numbers) // _FLOAT_BYTES} numbers in {count} rows; accepted: rows of the same size")
    return numbers


def _listed(words: Sequence[Any]) -> str:
    return " and ".join(filter(None, (", ".join(map(str, words[:-1])), str(words[-1]))))


class _Request:
    """A request in protobuf's wire format. It is several times as fast as a message with lists of numbers."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded

    def SerializeToString(self) -> bytes:  # The name of protobuf.
        return self.encoded


class _Batch(NamedTuple):
    """Requests that the daemon stores together or not at all."""

    requests: List[_Request]
    transitions: int


class Appender:
    """A writer of transitions, as returned by gymnasium's ``step``, to a replay buffer. It sends whole episodes.

    >>> with client.append("businesses") as buffer:
    ...     observation, _ = env.reset()
    ...     for action in actions:
    ...         following, reward, terminated, truncated, _ = env.step(action)
    ...         buffer.add(observation, action, reward, following, terminated, truncated)
    ...         observation = following

    Without ``columns``, the first transitions decide: observations and actions become vectors of float32, except arrays of uint8, which keep type and
    shape. Extra columns keep theirs too, except that float64 becomes float32. With ``columns``, the buffer has exactly these columns: numbers are
    rounded to floating-point formats, and must fit other formats.

    An episode is durable once the ``add`` or ``extend`` that ends it has returned. It is stored only once even if it is sent again after the
    connection broke. One that the daemon refuses, such as one with NaN, raises InvalidArgumentError and is dropped. Leaving the ``with`` block without an exception sends an unfinished episode as truncated. Not thread-safe.
    """

    def __init__(self, connection: Connection, dataset: str, capacity: int = 0, batch_prefix: Optional[str] = None,
                 columns: Optional[Mapping[str, Column]] = None) -> None:
        self._connection = connection
        self._dataset, self._capacity = dataset, capacity
        self._prefix = batch_prefix or uuid.uuid4().hex
        self._batches = 0
        self._columns: Dict[str, Column] = dict(columns or {})
        for name, column in self._columns.items():
            if name in ("rewards", "priorities", *_FLAGS):
                raise InvalidArgumentError(f"columns has {shown(name)}, which every buffer has; accepted: other names")
            if not isinstance(column, Column):
                raise InvalidArgumentError(f"columns has {shown(column)} for {shown(name)}; accepted: a genesis.Column")
        self._vectors: Sequence[str] = ()  # Columns that became float32 vectors because nothing was declared.
        # Transitions that are in no request yet: their bytes, and the lengths of variable columns.
        self._data: Dict[str, bytearray] = {}
        self._lengths: Dict[str, List[int]] = {}
        # Batches that are not acknowledged yet. A batch never changes, because the daemon refuses other transitions under the same ID.
        self._unsent: List[_Batch] = []
        #: Number of transitions that this appender has stored.
        self.transitions = 0
        #: Number of transitions in the buffer after the last episode was sent.
        self.buffer_transitions = 0

    def add(self, observation: Any, action: Any, reward: float, next_observation: Any, terminated: bool = False,
            truncated: bool = False, *, priority: Optional[float] = None, **extra: Any) -> None:
        """Adds one transition. If it ends an episode, sends the episode.

        Args:
            observation, action, next_observation: numbers, as an array, a tensor or a list of the same size in all transitions; None if the
                buffer has no such column.
            reward: one number.
            terminated, truncated: as returned by gymnasium's ``step``.
            priority: number > 0 for sampling of the kind PRIORITIZED, in each transition of an episode or in none. Default: the highest.
            extra: values of other columns, by name.

        Raises:
            InvalidArgumentError: a value is not numeric or has another size.
            GenesisError: the episode could not be sent, as in ``flush``.
        """
        given = {"observations": observation, "actions": action, "next_observations": next_observation, **extra}
        rows = self._encode({name: value for name, value in given.items() if value is not None}, 1, _SINGULAR)
        rows["rewards"] = Values(float32("reward", reward), _FLOAT_BYTES)
        if len(rows["rewards"].data) != _FLOAT_BYTES:
            raise InvalidArgumentError(f"reward is {shown(reward)}; accepted: one number")
        rows["terminals"] = Values(bytes([bool(terminated)]), 1)
        rows["timeouts"] = Values(bytes([bool(truncated and not terminated)]), 1)
        self._add_priorities(rows, None if priority is None else [priority], 1)
        self._keep(rows, 0, 1)
        if terminated or truncated:
            self._seal_kept()
            self._send()

    def extend(self, observations: Any, actions: Any, rewards: Any, next_observations: Any, terminals: Any, timeouts: Any = None, *,
               priorities: Any = None, **extra: Any) -> None:
        """Adds N transitions in their order, and sends all episodes that they end. The last episode stays open if no flag ends it.

        Args:
            observations, actions, next_observations: numbers, as an array, a tensor or a list [N, ...]. A row is of one transition. None if
                the buffer has no such column.
            rewards: N numbers.
            terminals, timeouts: N flags: whether the episode terminated, or was cut off, at the transition. ``timeouts`` may be omitted.
            priorities: N numbers > 0, as in ``add``.
            extra: N values of each other column, by name.

        Raises:
            InvalidArgumentError: a value is not numeric or has another size.
            GenesisError: an episode could not be sent, as in ``flush``.
        """
        count = len(rewards)
        values = {"observations": observations, "actions": actions, "next_observations": next_observations, **extra}
        values = {name: value for name, value in values.items() if value is not None}
        for name, rows in {**values, "terminals": terminals, "timeouts": [0] * count if timeouts is None else timeouts}.items():
            if len(rows) != count:
                raise InvalidArgumentError(f"{name} has {len(rows)} rows and rewards {count}; accepted: one row for each transition")
        if not count:
            return
        encoded = self._encode(values, count)
        encoded["rewards"] = Values(_numbers("rewards", rewards, count), _FLOAT_BYTES)
        if len(encoded["rewards"].data) != _FLOAT_BYTES * count:
            raise InvalidArgumentError(f"rewards has {len(encoded['rewards'].data) // _FLOAT_BYTES} numbers in {count} rows; accepted: one number as "
                                       "a reward")
        ended = _flags(terminals)
        cut = bytes(count) if timeouts is None else bytes(map(operator.gt, _flags(timeouts), ended))
        encoded["terminals"], encoded["timeouts"] = Values(ended, 1), Values(cut, 1)
        self._add_priorities(encoded, priorities, count)
        self._take_episodes(encoded, [found.end() for found in re.finditer(b"\1", bytes(map(operator.or_, ended, cut)))], count)
        self._send()

    def _encode(self, values: Mapping[str, Any], count: int, labels: Optional[Mapping[str, str]] = None) -> Dict[str, Values]:
        """Returns the values of N transitions as bytes, after determining the columns if they are the first.

        With ``labels``, names for error messages, the values are those of one transition."""
        columns, vectors, label = self._columns, self._vectors, labels or {}
        if not columns:
            vectors = [name for name, value in values.items() if is_vector(name, value)]
        numbers = {name: _numbers(label.get(name, name), values[name], count) for name in vectors if name in values}
        sizes = {name: len(each) // (_FLOAT_BYTES * count) for name, each in numbers.items()}
        rows = {name: [value] if labels is not None and not is_column(value) else value[None] if labels is not None else value
                for name, value in values.items() if name not in numbers}
        if not columns:
            columns = {name: Column("float32", (sizes[name],)) if name in vectors else infer(name, rows[name]) for name in values}
            if "observations" in vectors and "next_observations" in vectors:
                columns["next_observations"] = columns["observations"]
        if values.keys() != columns.keys():
            raise InvalidArgumentError(f"the columns are {', '.join(values)}; accepted in this buffer: {', '.join(columns)}")
        wanted = {name: columns[name].shape[0] for name in vectors}
        if sizes != wanted:
            raise InvalidArgumentError(f"{_listed([_SINGULAR[name] for name in wanted])} have {_listed(list(sizes.values()))} numbers; accepted: "
                                       f"{_listed(list(wanted.values()))}, as before")
        encoded = {name: Values(numbers[name], column.value_bytes) if name in numbers else encode(label.get(name, name), column, rows[name], count)
                   for name, column in columns.items()}
        self._columns, self._vectors = columns, vectors
        return encoded

    def _add_priorities(self, rows: Dict[str, Values], priorities: Any, count: int) -> None:
        if self._data.get("rewards") and ("priorities" in self._data) != (priorities is not None):
            raise InvalidArgumentError("some transitions of the episode have a priority and some have none; accepted: all or none")
        if priorities is None:
            return
        rows["priorities"] = Values(float32("priorities", priorities), _FLOAT_BYTES)
        if len(rows["priorities"].data) != _FLOAT_BYTES * count:
            raise InvalidArgumentError(f"priorities has {len(rows['priorities'].data) // _FLOAT_BYTES} numbers for {count} transitions; accepted: "
                                       "one for each")

    def _take_episodes(self, rows: Dict[str, Values], ends: Sequence[int], count: int) -> None:
        """Adds transitions, and creates batches of the episodes that they end."""
        begin = 0
        for place, end in enumerate(ends):
            if place + 1 < len(ends) and self._size(rows, begin, ends[place + 1]) <= _REQUEST_BYTES:
                continue
            if self._data.get("rewards"):  # The beginning of the first episode was added before.
                self._keep(rows, begin, end)
                self._seal_kept()
            else:
                self._seal(rows, begin, end)
            begin = end
            if sum(len(request.encoded) for batch in self._unsent for request in batch.requests) >= _CALL_BYTES:
                self._send()
        self._keep(rows, begin, count)

    @staticmethod
    def _size(rows: Mapping[str, Values], begin: int, end: int) -> int:
        return sum(len(each.part(begin, end)) for each in rows.values())

    def _keep(self, rows: Mapping[str, Values], begin: int, end: int) -> None:
        for name, values in rows.items():
            self._data.setdefault(name, bytearray()).extend(values.part(begin, end))
            if values.offsets is not None:
                self._lengths.setdefault(name, []).extend(values.lengths(begin, end))

    def _seal_kept(self) -> None:
        """Creates a batch of the transitions that were kept."""
        count = len(self._data["terminals"])
        rows = {}
        for name, data in self._data.items():
            offsets = None
            if name in self._lengths:
                import numpy

                offsets = numpy.concatenate([[0], numpy.cumsum(self._lengths[name])]).astype("i8")
            width = self._columns[name].value_bytes if name in self._columns else 1 if name in _FLAGS else _FLOAT_BYTES
            rows[name] = Values(bytes(data), width, offsets)
        self._seal(rows, 0, count)
        self._data, self._lengths = {}, {}

    def _seal(self, rows: Mapping[str, Values], begin: int, end: int) -> None:
        """Creates a batch of transitions ``begin`` to ``end``."""
        requests, name = [], f"{self._prefix}-{self._batches}"
        transitions = end - begin
        while begin < end:
            count = end - begin
            while count > 1 and self._size(rows, begin, begin + count) > _REQUEST_BYTES:
                count = (count + 1) // 2
            requests.append(self._request(rows, begin, begin + count, batch_id=name, more=begin + count < end))
            begin += count
        self._batches += 1
        self._unsent.append(_Batch(requests, transitions))

    def _request(self, rows: Mapping[str, Values], begin: int, end: int, **fields: Any) -> _Request:
        columns = self._columns
        if set(columns) == set(VECTORS) and set(self._vectors) == set(VECTORS):
            fields.update(observation_size=columns["observations"].shape[0], action_size=columns["actions"].shape[0])
            own: Sequence[str] = (*VECTORS, "rewards", "priorities", *_FLAGS)
        else:
            fields.update(columns=[column.spec(name) for name, column in columns.items()])
            own = ("rewards", "priorities", *_FLAGS)
        request = self._connection.request("AppendTrajectories", dataset=self._dataset, capacity=self._capacity, **fields)
        parts: List[Any] = [request.SerializeToString()]
        for name, values in rows.items():
            part = values.part(begin, end)
            if name in own:
                parts += [_tag(_number(request, name), len(part)), part]
                continue
            head = training_service_pb2.ColumnData(name=name, lengths=values.lengths(begin, end))
            encoded = [head.SerializeToString(), _tag(_number(head, "values"), len(part)), part]
            parts += [_tag(_number(request, "data"), sum(map(len, encoded))), *encoded]
        return _Request(b"".join(parts))

    def _send(self) -> None:
        try:
            self._store(len(self._unsent))
        except InvalidArgumentError:
            # The daemon will never accept the refused batches, so they must not hold back the other ones.
            error: Optional[InvalidArgumentError] = None
            while self._unsent:
                try:
                    self._store(1)
                except InvalidArgumentError as refused:
                    del self._unsent[0]
                    error = error or refused
            assert error is not None
            raise error from None

    def _store(self, count: int) -> None:
        """Sends the oldest batches in one call."""
        batches = self._unsent[:count]
        if not batches:
            return
        answer = self._connection.send_again("AppendTrajectories", [request for batch in batches for request in batch.requests])
        self.transitions += sum(batch.transitions for batch in batches)
        self.buffer_transitions = answer.buffer_transitions
        del self._unsent[:count]

    def flush(self) -> None:
        """Sends the pending transitions, the last one as truncated if the episode has not ended.

        Raises:
            FailedPreconditionError: the buffer has other columns, or another writer.
            ResourceExhaustedError: the daemon's disk is full, or a transition is larger than its limit on messages (4 MiB by default).
            UnavailableError: the daemon did not respond in time. The transitions are kept, and ``flush`` may be called again.
        """
        if self._data.get("rewards"):
            self._data["timeouts"][-1] = True
            self._seal_kept()
        self._send()

    def __enter__(self) -> "Appender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()
