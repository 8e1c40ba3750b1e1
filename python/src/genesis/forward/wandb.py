"""Weights & Biases, and Trackio, which has its API."""

from __future__ import annotations

import contextvars
import pathlib
import struct
import time as clock
from typing import Any, Iterator, List

from genesis.events import is_final, state_name
from genesis.forward.run import Row, Run, cleaned, quoted, spec_of, summary, unique_name
from genesis.training.v1 import job_pb2

# Exit codes by which W&B names the end of a run.
_EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELLED": 255}
_TAG_LENGTH = 64
# LevelDB's log: block, header of a part of a record, and kinds of the only or last part.
_BLOCK, _HEADER, _LAST_PARTS = 32768, 7, (1, 4)
_STORED_WITHIN_SECONDS = 60


class WandbRun(Run):
    """A job as a run of W&B. The step of W&B is the job's, so W&B ignores steps that are sent again. Evaluations have a step of
    their own."""

    needs = "wandb"

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=target, id=unique_name(job), name=job.id, resume="allow", reinit="create_new",
            config={**spec_of(job), "genesis": summary(job)}, tags=[f"{key}={cleaned(value)}"[:_TAG_LENGTH] for key, value in job.labels.items()],
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True))
        self._run.define_metric("eval/*", step_metric="eval/step")
        self._run.define_metric("reported/*", step_metric="reported/step")
        logged = _logged_offline(self._run) if self._run.offline else self._run.starting_step - 1
        super().__init__(target, job, max(logged, 0))
        self._open = self.step + 1  # W&B accepts nothing more for earlier steps.

    def log(self, rows: List[Row]) -> None:
        for row in rows:
            steps = {f"{name.split('/')[0]}/step": row.step for name in row.values if not name.startswith("train/")}
            self._open = max(self._open, row.step)
            self._run.log({**row.values, **steps}, step=self._open)

    def note(self, job: job_pb2.Job, text: str, story: str, step: int) -> None:
        self._run.notes = quoted(story)
        self._run.config.update({"genesis": summary(job)}, allow_val_change=True)

    def state(self, job: job_pb2.Job) -> None:
        if is_final(job):
            self._run.finish(exit_code=_EXIT_CODES[state_name(job)])

    def close(self) -> None:
        self._run.mark_preempting()
        self._run.finish(exit_code=1)


def _logged_offline(run: Any) -> int:
    """Returns the newest step of a run in the logs of earlier processes that ran offline. The newest records of a process that was killed
    may be missing, because W&B writes them only in part."""
    from wandb.proto.wandb_internal_pb2 import Record

    newest = 0
    for path in pathlib.Path(run.settings.wandb_dir).glob(f"offline-run-*-{run.id}/run-{run.id}.wandb"):
        for data in records_of_log(path.read_bytes()):
            newest = max(newest, Record.FromString(data).history.step.num)
    return newest


def records_of_log(log: bytes) -> Iterator[bytes]:
    """Yields the records of a log in LevelDB's format, which begins after 7 bytes of W&B's own."""
    at, parts = 7, []
    while at + _HEADER <= len(log):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        size, kind = struct.unpack_from("<HB", log, at + 4)
        parts.append(log[at + _HEADER:at + _HEADER + size])
        at += _HEADER + size
        if kind in _LAST_PARTS:
            if at <= len(log):
                yield b"".join(parts)
            parts = []


class TrackioRun(Run):
    """A job as a run of Trackio, which shows events as alerts and has no states of runs."""

    needs = "trackio"

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        # A separate context, because init would otherwise finish the run of another job of this thread.
        self._run = contextvars.Context().run(
            trackio.init, project=target, name=unique_name(job), resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False,
            config={**spec_of(job), "genesis": summary(job)})
        self._stored = lambda: SQLiteStorage.get_max_step_for_run(target, self._run.name) or 0
        super().__init__(target, job, self._stored())

    def log(self, rows: List[Row]) -> None:
        for row in rows:
            self._run.log(row.values, step=row.step)
            self.step = row.step
        deadline = clock.monotonic() + _STORED_WITHIN_SECONDS
        while self._run.url is None and self._stored() < self.step:  # A remote Trackio has a queue of its own.
            if clock.monotonic() > deadline:
                raise OSError(f"Trackio stored step {self._stored()}; expected {self.step} within {_STORED_WITHIN_SECONDS} s")
            clock.sleep(0.05)

    def note(self, job: job_pb2.Job, text: str, story: str, step: int) -> None:
        from trackio import AlertLevel

        self._run.alert(cleaned(text), level=AlertLevel.INFO, step=step)

    def state(self, job: job_pb2.Job) -> None:
        if is_final(job):
            self.close()

    def close(self) -> None:
        self._run.finish()
