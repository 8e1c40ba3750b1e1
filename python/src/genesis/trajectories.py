"""Appends transitions of an environment to a replay buffer of the daemon."""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Optional, Sequence

from genesis.connection import Connection
from genesis.data import array_of, is_column
from genesis.errors import InvalidArgumentError
from genesis.requests import shown

_COLUMNS = ("observations", "actions", "next_observations", "rewards", "terminals", "timeouts")


def _flat(name: str, value: Any) -> List[float]:
    try:
        if is_column(value):
            return [float(each) for each in array_of(value).reshape(-1)]
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [number for part in value for number in _flat(name, part)]
        return [float(value)]
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"{name} is {shown(value)}: {error}; accepted: numbers, as an array, a tensor, a list or one number") from None


class Appender:
    """A writer of transitions, as returned by gymnasium's ``step``, to a replay buffer. It sends one episode at a time.

    >>> with client.append("businesses") as buffer:
    ...     observation, _ = env.reset()
    ...     for action in actions:
    ...         following, reward, terminated, truncated, _ = env.step(action)
    ...         buffer.add(observation, action, reward, following, terminated, truncated)
    ...         observation = following

    An episode is durable once the ``add`` that ends it has returned. It is stored only once even if it is sent again after the connection
    broke. Leaving the ``with`` block without an exception sends an unfinished episode as truncated. Not thread-safe.
    """

    def __init__(self, connection: Connection, dataset: str, capacity: int = 0, batch_prefix: Optional[str] = None) -> None:
        self._connection = connection
        self._dataset, self._capacity = dataset, capacity
        self._prefix = batch_prefix or uuid.uuid4().hex
        self._batches = 0
        self._sizes = (0, 0)
        self._rows: Dict[str, List[Any]] = {name: [] for name in _COLUMNS}
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
        observation, action, following, earned = map(_flat, ("observation", "action", "next_observation", "reward"),
                                                     (observation, action, next_observation, reward))
        sizes = (len(observation), len(action))
        if self._sizes == (0, 0):
            self._sizes = sizes
        if sizes != self._sizes or len(following) != len(observation):
            raise InvalidArgumentError(f"observation, action and next observation have {sizes[0]}, {sizes[1]} and {len(following)} numbers; "
                                       f"accepted: {self._sizes[0]}, {self._sizes[1]} and {self._sizes[0]}, as before")
        if len(earned) != 1:
            raise InvalidArgumentError(f"reward is {shown(reward)}; accepted: one number")
        for name, value in zip(_COLUMNS, (observation, action, following, earned, [bool(terminated)],
                                          [bool(truncated and not terminated)])):
            self._rows[name] += value
        if terminated or truncated:
            self.flush()

    def flush(self) -> None:
        """Sends the pending transitions, the last one as truncated if the episode has not ended.

        Raises:
            FailedPreconditionError: the buffer has observations or actions of another size, or another writer.
            ResourceExhaustedError: the daemon's disk is full, or the episode is larger than the daemon's limit on messages (4 MiB by default).
            UnavailableError: the daemon did not respond in time. The transitions are kept, and ``flush`` may be called again.
        """
        count = len(self._rows["rewards"])
        if not count:
            return
        if not (self._rows["terminals"][-1] or self._rows["timeouts"][-1]):
            self._rows["timeouts"][-1] = True
        request = self._connection.request(
            "AppendTrajectories", dataset=self._dataset, batch_id=f"{self._prefix}-{self._batches}", observation_size=self._sizes[0],
            action_size=self._sizes[1], capacity=self._capacity, **self._rows)
        answer = self._connection.send_again("AppendTrajectories", [request])
        self._batches += 1
        self._rows = {name: [] for name in _COLUMNS}
        self.transitions += count
        self.buffer_transitions = answer.buffer_transitions

    def __enter__(self) -> "Appender":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()
