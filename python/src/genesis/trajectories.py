"""Appends transitions of an environment to a replay buffer of the daemon."""

from __future__ import annotations

import struct
import uuid
from typing import Any, List, Optional, Sequence

from genesis.connection import Connection
from genesis.data import array_of, is_column
from genesis.errors import InvalidArgumentError
from genesis.requests import shown

# Columns in the order in which transitions are given, then their flags.
_NUMBERS = ("observations", "actions", "rewards", "next_observations")
_FLAGS = ("terminals", "timeouts")
_FLOAT_BYTES = 4
# Episodes share a request up to this size, half of the daemon's default limit on messages.
_REQUEST_BYTES = 2 << 20
# Requests share a call up to this size.
_CALL_BYTES = 32 << 20


def _float32(name: str, value: Any) -> bytes:
    """Returns the numbers of an array, a tensor, a list or one number as float32 in little-endian order."""
    try:
        if is_column(value):
            import numpy

            with numpy.errstate(over="ignore"):  # The daemon refuses infinity.
                return array_of(value).astype("<f4").tobytes()
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return b"".join(_float32(name, part) for part in value)
        return struct.pack("<f", float(value))
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is {shown(value)}: {error}; accepted: numbers, as an array, a tensor, a list or one number") from None


def _packed(number: int, values: bytes) -> bytes:
    """Returns a repeated field of a message in protobuf's wire format, from its packed values."""
    encoded = bytearray()
    for varint in (number << 3 | 2, len(values)):
        while varint > 0x7F:
            encoded.append(varint & 0x7F | 0x80)
            varint >>= 7
        encoded.append(varint)
    return bytes(encoded) + values


class Appender:
    """A writer of transitions, as returned by gymnasium's ``step``, to a replay buffer. It sends whole episodes.

    >>> with client.append("businesses") as buffer:
    ...     observation, _ = env.reset()
    ...     for action in actions:
    ...         following, reward, terminated, truncated, _ = env.step(action)
    ...         buffer.add(observation, action, reward, following, terminated, truncated)
    ...         observation = following

    An episode is durable once the ``add`` or ``extend`` that ends it has returned. It is stored only once even if it is sent again after the
    connection broke. One that the daemon refuses, such as one with NaN, raises InvalidArgumentError and is dropped. Leaving the ``with`` block without an exception sends an unfinished episode as truncated. Not thread-safe.
    """

    def __init__(self, connection: Connection, dataset: str, capacity: int = 0, batch_prefix: Optional[str] = None) -> None:
        self._connection = connection
        self._dataset, self._capacity = dataset, capacity
        self._prefix = batch_prefix or uuid.uuid4().hex
        self._requests = 0
        self._sizes = (0, 0)
        # Transitions that are in no request yet.
        self._columns = {name: bytearray() for name in (*_NUMBERS, *_FLAGS)}
        # Requests that are not acknowledged yet. One never changes, because the daemon refuses other transitions under the same ID.
        self._unsent: List[Any] = []
        #: Number of transitions that this appender has stored.
        self.transitions = 0
        #: Number of transitions in the buffer after the last episode was sent.
        self.buffer_transitions = 0

    def add(self, observation: Any, action: Any, reward: float, next_observation: Any, terminated: bool = False,
            truncated: bool = False) -> None:
        """Adds one transition. If it ends an episode, sends the episode.

        Args:
            observation, action, next_observation: numbers, as an array, a tensor or a list of the same size in all transitions.
            reward: one number.
            terminated, truncated: as returned by gymnasium's ``step``.

        Raises:
            InvalidArgumentError: a value is not numeric or has another size.
            GenesisError: the episode could not be sent, as in ``flush``.
        """
        numbers = [_float32("observation", observation), _float32("action", action), _float32("reward", reward),
                   _float32("next_observation", next_observation)]
        if len(numbers[2]) != _FLOAT_BYTES:
            raise InvalidArgumentError(f"reward is {shown(reward)}; accepted: one number")
        self._check_sizes(numbers, 1)
        self._take(numbers, [bytes([bool(terminated)]), bytes([bool(truncated and not terminated)])])
        if terminated or truncated:
            self._seal()
            self._send()

    def extend(self, observations: Any, actions: Any, rewards: Any, next_observations: Any, terminals: Any, timeouts: Any = None) -> None:
        """Adds N transitions in their order, and sends all episodes that they end. The last episode stays open if no flag ends it.

        Args:
            observations, actions, next_observations: numbers, as an array, a tensor or a list [N, ...]. A row is of one transition.
            rewards: N numbers.
            terminals, timeouts: N flags: whether the episode terminated, or was cut off, at the transition. ``timeouts`` may be omitted.

        Raises:
            InvalidArgumentError: a value is not numeric or has another size.
            GenesisError: an episode could not be sent, as in ``flush``.
        """
        count = len(rewards)
        given = dict(zip((*_NUMBERS, *_FLAGS), (observations, actions, rewards, next_observations, terminals, [0] * count if timeouts is None else timeouts)))
        for name, values in given.items():
            if len(values) != count:
                raise InvalidArgumentError(f"{name} has {len(values)} rows and rewards {count}; accepted: one row for each transition")
        if not count:
            return
        numbers = [_float32(name, given[name]) for name in _NUMBERS]
        for name, values in zip(_NUMBERS, numbers):
            if len(values) % (_FLOAT_BYTES * count) or (name == "rewards" and len(values) != _FLOAT_BYTES * count):
                raise InvalidArgumentError(f"{name} has {len(values) // _FLOAT_BYTES} numbers in {count} rows; accepted: rows of the same size, and one "
                                           "number as a reward")
        self._check_sizes(numbers, count)
        ended = bytes(map(bool, given["terminals"]))
        flags = [ended, bytes(bool(cut) and not end for cut, end in zip(given["timeouts"], ended))]
        self._take_episodes(numbers, flags, count)
        self._send()

    def _check_sizes(self, numbers: Sequence[bytes], count: int) -> None:
        observation, action, _, following = (len(values) // (_FLOAT_BYTES * count) for values in numbers)
        if self._sizes == (0, 0):
            self._sizes = (observation, action)
        if (observation, action) != self._sizes or following != observation:
            raise InvalidArgumentError(f"observation, action and next observation have {observation}, {action} and {following} numbers; "
                                       f"accepted: {self._sizes[0]}, {self._sizes[1]} and {self._sizes[0]}, as before")

    def _take_episodes(self, numbers: Sequence[bytes], flags: Sequence[bytes], count: int) -> None:
        """Takes transitions, and makes requests of the episodes that they end."""
        widths = [len(values) // count for values in (*numbers, *flags)]

        def take(begin: int, end: int) -> None:
            parts = [values[begin * width:end * width] for values, width in zip((*numbers, *flags), widths)]
            self._take(parts[:len(_NUMBERS)], parts[len(_NUMBERS):])

        begin = 0
        ends = [place + 1 for place in range(count) if any(each[place] for each in flags)]
        for place, end in enumerate(ends):
            if place + 1 < len(ends) and (ends[place + 1] - begin) * sum(widths) <= _REQUEST_BYTES:
                continue
            take(begin, end)
            self._seal()
            begin = end
            if len(self._unsent) * _REQUEST_BYTES >= _CALL_BYTES:
                self._send()
        take(begin, count)

    def _take(self, numbers: Sequence[bytes], flags: Sequence[bytes]) -> None:
        for column, values in zip(self._columns.values(), (*numbers, *flags)):
            column += values

    def _seal(self) -> None:
        """Makes a request of the transitions that are in none."""
        request = self._connection.request("AppendTrajectories", dataset=self._dataset, batch_id=f"{self._prefix}-{self._requests}",
                                           observation_size=self._sizes[0], action_size=self._sizes[1], capacity=self._capacity)
        # Several times as fast as lists of numbers.
        request.MergeFromString(b"".join(_packed(request.DESCRIPTOR.fields_by_name[name].number, bytes(column)) for name, column in self._columns.items()))
        self._requests += 1
        self._unsent.append(request)
        for column in self._columns.values():
            column.clear()

    def _send(self) -> None:
        try:
            self._store(len(self._unsent))
        except InvalidArgumentError:
            # The daemon will never accept the refused ones, so they must not hold back the others and later ones.
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
        """Sends the oldest requests in one call."""
        requests = self._unsent[:count]
        if not requests:
            return
        answer = self._connection.send_again("AppendTrajectories", requests)
        self.transitions += sum(len(request.rewards) for request in requests)
        self.buffer_transitions = answer.buffer_transitions
        del self._unsent[:count]

    def flush(self) -> None:
        """Sends the pending transitions, the last one as truncated if the episode has not ended.

        Raises:
            FailedPreconditionError: the buffer has observations or actions of another size, or another writer.
            ResourceExhaustedError: the daemon's disk is full, or the episode is larger than the daemon's limit on messages (4 MiB by default).
            UnavailableError: the daemon did not respond in time. The transitions are kept, and ``flush`` may be called again.
        """
        if self._columns["rewards"]:
            self._columns["timeouts"][-1] = True
            self._seal()
        self._send()

    def __enter__(self) -> "Appender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()
