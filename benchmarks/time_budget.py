"""A time limit for measurements that run in the order of their importance."""

import contextlib
import signal
import time


class TimeUp(Exception):
    """An exception because a measurement reached the time limit."""


class Budget:
    """A limit of `limit` seconds from now. A measurement is expected to take as long as the last one of its kind, or else as estimated."""

    def __init__(self, limit, guesses, clock=time.monotonic):
        self.limit, self.expected, self.clock = limit, dict(guesses), clock
        self.begin = clock()

    def left(self):
        return self.limit - (self.clock() - self.begin)

    def objection(self, kind):
        """Returns why a measurement of this kind can no longer start; empty if it can."""
        if self.expected[kind] <= self.left():
            return ""
        return (f"it takes about {self.expected[kind]:.0f} s, and {max(self.left(), 0):.0f} s were left of "
                f"{self.limit:g} (--limit)")

    @contextlib.contextmanager
    def spend_on(self, kind):
        """Records the duration of a measurement, and raises TimeUp in it at the time limit. Works only in the main thread."""
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
