"""Weights & Biases, and Trackio, which has its API."""

from __future__ import annotations

import contextvars
import time as clock
from typing import List

from genesis.events import is_final, state_name
from genesis.forward.run import Row, Run, cleaned, spec_of, story, summary, unique_name
from genesis.training.v1 import job_pb2

# What W&B shows as failed, and as killed.
_EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELLED": 255}
_TAG_LENGTH = 64
_STORED_WITHIN_SECONDS = 60


class WandbRun(Run):
    """A job as a run of W&B. The step of W&B is the job's, so W&B ignores steps that are sent again. It takes evaluations with a step of
    their own."""

    needs = "wandb"

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=target, id=unique_name(job), name=job.id, resume="allow", reinit="create_new", notes=story(job),
            config={**spec_of(job), "genesis": summary(job)}, tags=[f"{key}={cleaned(value)}"[:_TAG_LENGTH] for key, value in job.labels.items()],
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True))
        self._run.define_metric("eval/*", step_metric="eval/step")
        super().__init__(target, job, max(step, self._run.starting_step - 1))

    def log(self, rows: List[Row]) -> None:
        for row in rows:
            self._run.log(row.values, step=row.step)
            self.step = row.step

    def evaluated(self, row: Row) -> None:
        self._run.log({**row.values, "eval/step": row.step}, step=self.step)

    def note(self, job: job_pb2.Job, text: str, step: int, time: float) -> None:
        self._run.notes = story(job)
        self._run.config.update({"genesis": summary(job)}, allow_val_change=True)

    def state(self, job: job_pb2.Job) -> None:
        if is_final(job):
            self._run.finish(exit_code=_EXIT_CODES[state_name(job)])

    def close(self) -> None:
        self._run.mark_preempting()
        self._run.finish(exit_code=1)


class TrackioRun(Run):
    """A job as a run of Trackio, which shows events as alerts and has no states of runs."""

    needs = "trackio"

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        # A context of its own, because init would finish the run of another job of this thread.
        self._run = contextvars.Context().run(
            trackio.init, project=target, name=unique_name(job), resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False,
            config={**spec_of(job), "genesis": summary(job)})
        self._stored = lambda: SQLiteStorage.get_max_step_for_run(target, self._run.name) or 0
        super().__init__(target, job, max(step, self._stored()))

    def log(self, rows: List[Row]) -> None:
        for row in rows:
            self._run.log(row.values, step=row.step)
            self.step = row.step
        deadline = clock.monotonic() + _STORED_WITHIN_SECONDS
        while self._run.url is None and self._stored() < self.step:  # A remote Trackio has a queue of its own.
            if clock.monotonic() > deadline:
                raise OSError(f"Trackio has not stored step {self.step} within {_STORED_WITHIN_SECONDS} s")
            clock.sleep(0.05)

    def evaluated(self, row: Row) -> None:
        self._run.log(row.values, step=row.step)

    def note(self, job: job_pb2.Job, text: str, step: int, time: float) -> None:
        from trackio import AlertLevel

        self._run.alert(cleaned(text), level=AlertLevel.INFO, step=step)

    def state(self, job: job_pb2.Job) -> None:
        if is_final(job):
            self.close()

    def close(self) -> None:
        self._run.finish()
