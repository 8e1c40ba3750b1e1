"""A limited time for measurements in the order of their importance."""

import contextlib
import signal
import time


class TimeUp(Exception):
    """The time expired during a measurement."""


class Budget:
    """Allows `limit` seconds from now. The duration of a measurement is that of the last of its kind, or an estimate."""

    def __init__(self, limit, guesses, clock=time.monotonic):
        self.limit, self.expected, self.clock = limit, dict(guesses), clock
        self.begin = clock()

    def left(self):
        return self.limit - (self.clock() - self.begin)

    def objection(self, kind):
        """Returns why a measurement of that kind cannot start any more, or ""."""
        if self.expected[kind] <= self.left():
            return ""
        return (f"it takes about {self.expected[kind]:.0f} s, and {max(self.left(), 0):.0f} s were left of "
                f"{self.limit:g} (--limit)")

    @contextlib.contextmanager
    def spend_on(self, kind):
        """Records its duration, and raises TimeUp in it when all time is up. Works only in the main thread."""
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
