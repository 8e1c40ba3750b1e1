"""A bounded time for measurements that come in the order of their importance."""

import contextlib
import signal
import time


class TimeUp(Exception):
    """The time was up while something was measured."""


class Budget:
    """`limit` seconds from now. What something takes is taken from the last of its kind, or guessed."""

    def __init__(self, limit, guesses, clock=time.monotonic):
        self.limit, self.expected, self.clock = limit, dict(guesses), clock
        self.begin = clock()

    def left(self):
        return self.limit - (self.clock() - self.begin)

    def objection(self, kind):
        """Why something of that kind does not begin any more, or ""."""
        if self.expected[kind] <= self.left():
            return ""
        return (f"it takes about {self.expected[kind]:.0f} s, and {max(self.left(), 0):.0f} s were left of "
                f"{self.limit:g} (--limit)")

    @contextlib.contextmanager
    def spend_on(self, kind):
        """Notes how long it takes, and raises TimeUp in it when all time is up. In the main thread only."""
        def up(*_):
            raise TimeUp

        before = signal.signal(signal.SIGALRM, up)
        begin = self.clock()
        signal.setitimer(signal.ITIMER_REAL, max(self.left(), 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self.expected[kind] = self.clock() - begin
