"""The progress of a job and of an export, on stderr."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any, Optional

from genesis.events import Event


def in_notebook() -> bool:
    """Returns whether a notebook runs this code, without importing IPython."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


class Line:
    """Shows the work of the client before a job starts, on stderr: on one line of a terminal, which each text replaces; otherwise as a record
    of the logger ``genesis`` for each text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._moves = sys.stderr.isatty()
        self._begun = time.monotonic()
        self._process = os.getpid()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if self._moves:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        elif kind is None:
            self.say("done")

    def say(self, what: str) -> None:
        if os.getpid() != self._process:  # A copy of the process that reports its work.
            return
        text = f"{self._name}: {what} ({time.monotonic() - self._begun:.1f} s)"
        if self._moves:
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        else:
            logging.getLogger("genesis").info(text)


class Bar:
    """The progress of a job on stderr: a bar if tqdm is installed, otherwise a line for each tenth of the steps."""

    def __init__(self, name: str, shown: Optional[bool]) -> None:
        self._name = name
        self._shown = sys.stderr.isatty() or in_notebook() if shown is None else shown
        self._bar: Any = None
        self._tenth = -1

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()

    def show(self, event: Event) -> None:
        progress = event.job.progress
        if not self._shown or not progress.total_steps:
            return
        if self._bar is None:
            try:
                from tqdm.auto import tqdm
                self._bar = tqdm(total=progress.total_steps, desc=self._name, unit="step")
            except ImportError:
                self._bar = False
        if self._bar is False:
            self._say(event)
            return
        self._bar.n = progress.step
        self._bar.set_postfix(loss=f"{progress.loss:.4g}", refresh=False)
        self._bar.refresh()

    def _say(self, event: Event) -> None:
        progress = event.job.progress
        tenth = 10 * progress.step // progress.total_steps
        if tenth != self._tenth:
            self._tenth = tenth
            print(f"{self._name}: {event.state} {progress.step}/{progress.total_steps} loss {progress.loss:.4g}", file=sys.stderr)
