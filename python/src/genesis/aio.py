"""The client for asyncio: the methods of ``Client`` and ``Job`` as coroutines.

Calls run in a thread pool of the client, so that none of them blocks the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from typing import Any, AsyncIterator, Callable, Iterator, TypeVar

from genesis.checkpoints import Checkpoint
from genesis.client import Client
from genesis.events import Event
from genesis.job import Job
from genesis.sweep import Sweep
from genesis.weights import WeightsVersion

_T = TypeVar("_T")
_THREADS = 32
_END = object()


class _Threads:
    """A thread pool that runs blocking calls for the event loop."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="genesis")

    async def run(self, function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(function, *args, **kwargs))

    async def each(self, iterator: Iterator[_T]) -> AsyncIterator[_T]:
        try:
            while True:
                item = await self.run(next, iterator, _END)
                if item is _END:
                    return
                yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                self._close(close)  # Does not block, and works after the client was closed.

    @staticmethod
    def _close(close: Callable[[], None]) -> None:
        try:
            close()
        except ValueError:  # Another thread is still reading. It stops when the stream ends.
            pass

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Coroutines:
    """An object whose methods are coroutines."""

    def __init__(self, threads: _Threads, blocking: Any) -> None:
        self._threads, self._blocking = threads, blocking

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._blocking, name)
        if not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._threads.run(lambda: self._wrapped(method(*args, **kwargs)))

        return call

    def _wrapped(self, found: Any) -> Any:
        if found is self._blocking:
            return self
        if isinstance(found, Job):
            return AsyncJob(self._threads, found)
        return AsyncSweep(self._threads, found) if isinstance(found, Sweep) else found

    def __repr__(self) -> str:
        return f"Async{self._blocking!r}"


class AsyncSweep(_Coroutines):
    """A sweep whose methods, such as ``wait``, ``best`` and ``cancel``, are coroutines."""


class AsyncJob(_Coroutines):
    """A job whose methods, such as ``refresh``, ``checkpoint`` and ``cancel``, are coroutines. ``events`` is an asynchronous iterator."""

    def __init__(self, threads: _Threads, job: Job) -> None:
        super().__init__(threads, job)
        self.job = job

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def state(self) -> str:
        """Last known state."""
        return self.job.state

    async def events(self, cursor: int = 0) -> AsyncIterator[Event]:
        async for event in self._threads.each(self.job.events(cursor)):
            yield event

    async def weights(self, **options: Any) -> AsyncIterator[WeightsVersion]:
        """Yields versions as ``Job.weights`` does."""
        versions = self.job.weights(**options)
        try:
            async for version in self._threads.each(versions):
                yield version
        finally:
            versions.close()

    async def evaluations(self, **options: Any) -> AsyncIterator[Checkpoint]:
        """Yields checkpoints as ``Job.evaluations`` does."""
        async for checkpoint in self._threads.each(self.job.evaluations(**options)):
            yield checkpoint

    async def watch(self, **options: Any) -> "AsyncJob":
        """Waits until the job ends. Takes the arguments of ``Job.watch``.

        Raises:
            JobFailedError: the job failed or was cancelled.
        """
        await self._threads.run(self.job.watch, **options)
        return self


class AsyncClient(_Coroutines):
    """Client of one daemon for asyncio.

    Takes the arguments of ``Client`` and has its methods as coroutines. A method that returns a ``Job`` or a ``Sweep`` returns an
    ``AsyncJob`` or an ``AsyncSweep`` here, and one that returns an iterator returns a list.

    >>> async with genesis.AsyncClient() as client:
    ...     job = await client.train(module, data, loss="mse", epochs=20)
    ...     async for event in job.events():
    ...         print(event.kind, event.step, event.loss)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.client = Client(*args, **kwargs)
        super().__init__(_Threads(), self.client)

    async def close(self) -> None:
        """Closes the connection. Calls that have not started are cancelled."""
        self.client.close()
        self._threads.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def events(self, *args: Any, **kwargs: Any) -> AsyncIterator[Event]:
        """Yields events as ``Client.events`` does."""
        async for event in self._threads.each(self.client.events(*args, **kwargs)):
            yield event

    def _wrapped(self, found: Any) -> Any:
        return [self._wrapped(each) for each in found] if isinstance(found, Iterator) else super()._wrapped(found)
