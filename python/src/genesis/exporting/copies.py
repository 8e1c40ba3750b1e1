"""Runs functions in copies of this process, because a trace takes one processor only."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Tuple, Union

import torch

from genesis.errors import ExportError

# A copy is stopped if it takes longer than this many seconds and longer than PATIENCE times the time of this process's own work.
LEAST_PATIENCE = 60.0
PATIENCE = 10.0


class Outcome(NamedTuple):
    """The result of a function, or its ExportError."""
    result: Any
    error: Union[ExportError, None] = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


def run(first: Callable[[], None], others: Mapping[str, Callable[[], Any]], say: Callable[[str], None]) -> Dict[str, Outcome]:
    """Runs ``first`` in this process, and the other functions in this process and its copies, each once.

    A copy is a fork, as in torch's DataLoader. It sends the result of a function back, and its other effects are lost. If it ends in another way,
    this process runs the function. There are copies on Linux where processors, memory, and autograd permit it.

    Args:
        first: a function whose exception is raised at once.
        others: functions that may raise ExportError, by name. The first ones begin first.
        say: called with what this process waits for.
    """
    begin = time.monotonic()
    with _Turns(len(others)) as turns, contextlib.ExitStack() as stack:
        copies = [stack.enter_context(_Copy(lambda: _each(turns, others))) for _ in range(_count(len(others)))]
        first()
        outcomes = dict(_each(turns, others))
        patience = max(LEAST_PATIENCE, PATIENCE * (time.monotonic() - begin))
        for copy in copies:
            say(f"tracing {', '.join(name for name in others if name not in outcomes)}")
            outcomes.update(copy.outcomes(time.monotonic() + patience))
    return {name: outcomes.get(name) or _outcome(function) for name, function in others.items()}


def _each(turns: "_Turns", functions: Mapping[str, Callable[[], Any]]) -> Iterator[Tuple[str, Outcome]]:
    """Yields the names and outcomes of the functions that this process runs, one after another."""
    names = list(functions)
    for turn in turns:
        yield names[turn], _outcome(functions[names[turn]])


def _outcome(function: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(function())
    except ExportError as error:
        return Outcome(None, error)


def _count(most: int) -> int:
    """Returns the number of copies to make."""
    if not sys.platform.startswith("linux") or torch.cuda.is_available():  # Autograd's threads of devices do not exist in a copy.
        return 0
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    room = available // (2 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return max(0, min(most, len(os.sched_getaffinity(0)) - 1, room))


class _Turns:
    """The numbers below a count, shared by this process and its copies: each number is given to one of them only."""

    def __init__(self, count: int) -> None:
        self._reading, writing = os.pipe()
        os.write(writing, bytes(range(count)))
        os.close(writing)

    def __enter__(self) -> "_Turns":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)

    def __iter__(self):
        while turn := os.read(self._reading, 1):
            yield turn[0]


class _Copy:
    """A copy of this process, which runs functions and sends their outcomes."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns about a fork of a process with threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if self._process == 0:
            try:
                torch.set_num_threads(1)  # The threads of OpenMP do not exist in a copy.
                with os.fdopen(writing, "wb") as file:
                    _send(work, file)
            finally:
                os._exit(0)
        os.close(writing)

    def __enter__(self) -> "_Copy":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # The program may ignore SIGCHLD.
            os.waitpid(self._process, 0)

    def outcomes(self, deadline: float) -> Dict[str, Outcome]:
        """Returns the outcomes by name that the copy sends until it ends, or until a time of the monotonic clock. Repeats its warnings."""
        received, poll = bytearray(), select.poll()
        poll.register(self._reading, select.POLLIN)
        while poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            piece = os.read(self._reading, 1 << 20)
            if not piece:
                break
            received += piece
        outcomes: Dict[str, Outcome] = {}
        while received:
            size = int.from_bytes(received[:8], "little")
            if len(received) < 8 + size:
                break  # The copy ended before it had sent the rest.
            name, outcome, warned = pickle.loads(received[8:8 + size])
            for each in warned:
                warnings.warn_explicit(*each)
            outcomes[name] = outcome
            del received[:8 + size]
        return outcomes


def _send(work: Callable[[], Any], file: Any) -> None:
    turns = iter(work())
    while True:
        with warnings.catch_warnings(record=True) as warned:
            turn = next(turns, None)
        if turn is None:
            return
        name, outcome = turn
        message = pickle.dumps((name, outcome, [(str(each.message), each.category, each.filename, each.lineno) for each in warned]))
        file.write(len(message).to_bytes(8, "little") + message)
        file.flush()
