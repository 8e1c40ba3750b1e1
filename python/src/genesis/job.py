"""The handle of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from genesis.checkpoints import Checkpoint
from genesis.connection import Connection
from genesis.errors import FailedPreconditionError, JobFailedError, NotFoundError
from genesis.events import Event, events_of, is_final, state_name
from genesis.predictions import Prediction, predict
from genesis.requests import shown
from genesis.training.v1 import job_pb2
from genesis.transfer import download_artifact
from genesis.weights import Weights

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


# Maximum number of seconds for which one call waits for a checkpoint.
_EVALUATION_WAIT = 30


def _charts() -> Any:
    try:
        import genesis.chart as chart
    except ImportError as error:
        raise ImportError(f"a chart needs matplotlib: {error}; install it with: pip install matplotlib") from None
    return chart


def _history_row(row: Any) -> Dict[str, Any]:
    values = {}
    for field in row.DESCRIPTOR.fields:
        if field.name == "time":
            values["time"] = row.time.ToDatetime()
        elif field.enum_type is not None:
            name = field.enum_type.values_by_number[getattr(row, field.name)].name
            values[field.name] = name.split("_STATE_")[-1].split("_MODE_")[-1]
        elif field.has_presence and not row.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = getattr(row, field.name)
    return values


class Job:
    """A job of the daemon. ``message`` is its last known state, which ``refresh()`` updates."""

    def __init__(self, connection: Connection, message: job_pb2.Job) -> None:
        self._connection = connection
        self.message = message

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def state(self) -> str:
        """Last known state, such as ``QUEUED``, ``RUNNING`` or ``SUCCEEDED``."""
        return state_name(self.message)

    @property
    def progress(self) -> job_pb2.Progress:
        """Last known progress: steps, loss, loss scale and speed."""
        return self.message.progress

    @property
    def ended(self) -> bool:
        """Whether the last known state is ``SUCCEEDED``, ``FAILED`` or ``CANCELLED``."""
        return is_final(self.message)

    def refresh(self) -> "Job":
        """Reads the job's current state from the daemon. Returns this job."""
        self.message = self._connection.call("GetJob", job_id=self.id).job
        return self

    def events(self, cursor: int = 0, *, timeout: float = 600.0) -> Iterator[Event]:
        """Yields past and future events of the job until it ends.

        If the connection breaks or the daemon restarts, reconnects and continues after the last event.

        Args:
            cursor: yields only events after this ``Event.sequence``; 0 for all events that the daemon has kept, -1 for future ones.
            timeout: number of seconds for which the daemon may be unavailable before the error is raised.

        Raises:
            NotFoundError: the job does not exist.
            UnavailableError: the daemon was unavailable for longer than the timeout.
        """
        for response in self._connection.watch("WatchJob", cursor, timeout, job_id=self.id):
            if response is None:
                if self.ended:
                    return
                continue
            self.message = response.job
            yield from events_of(response)

    def weights(self, *, interval: float = 1.0, format: str = "FP32", average: bool = False, since: int = 0, timeout: float = 600.0) -> Weights:
        """Iterates over the job's weights while it trains. Each ``WeightsVersion`` is the newest one, and the last one has the final weights.

        Waits while the job has no worker, and reconnects if the connection breaks or the daemon restarts. On the daemon's machine versions
        are mapped, not copied.

        >>> for version in job.weights():
        ...     version.load_into(module)

        Args:
            interval: minimum number of seconds between two versions; 0 for as many as the worker can copy.
            format: ``FP32``, or ``BF16``, to which the weights are rounded.
            average: the moving average of the weights (``training.ema_decay``).
            since: yields only versions after this ``WeightsVersion.number``.
            timeout: as in ``events``.

        Raises:
            FailedPreconditionError: the job has ended. The message names its newest checkpoint.
            InvalidArgumentError: ``interval`` or ``format`` is not accepted, or the job keeps no average.
            UnavailableError: the daemon was unavailable for longer than the timeout.
        """
        return Weights(self._connection, self.id, interval=interval, format=format, average=average, since=since, timeout=timeout)

    def predict(self, inputs: Mapping[str, Any], *, checkpoint: Union[str, Checkpoint] = "", timeout: Optional[float] = None) -> Prediction:
        """Returns what the model predicts, computed by a process of the daemon beside training.

        >>> job.predict({"observation": observations, "action": actions})["next_observation"]

        Args:
            inputs: arrays, tensors or lists by name, each [batch, ...]; a batch of 1 is repeated. A world model takes observation [N, O] and
                action [N, A], or action [N, K, A] to be rolled forward K steps, and returns next_observation, reward and done, a
                probability. A transformer takes tokens [N, T] and returns the logits [N, V] of the next. An exported module takes and
                returns what its ``predict`` does.
            checkpoint: a checkpoint of the job. Default: the newest weights of the job.
            timeout: maximum number of seconds to wait. Default: the client's.

        Raises:
            InvalidArgumentError: the model does not accept the inputs, or the outputs take more than 4 MiB.
            FailedPreconditionError: the model makes no predictions, or the job has no weights yet.
            ResourceExhaustedError: too many calls wait, or too many other jobs predict.
            NotFoundError: the job has no such checkpoint.
        """
        checkpoint_id = checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
        return predict(self._connection, self.id, inputs, checkpoint_id, timeout)

    def watch(self, *, progress: Optional[bool] = None, chart: bool = False, timeout: float = 600.0) -> "Job":
        """Waits until the job ends. Shows a progress bar if tqdm is installed, otherwise a line for each tenth of the steps.

        Args:
            progress: whether to show progress. Default: only in a terminal or a notebook.
            chart: shows ``plot()`` in a notebook instead, redrawn at most once a second.
            timeout: as in ``events``.

        Returns:
            This job.

        Raises:
            JobFailedError: the job failed or was cancelled.
            FailedPreconditionError: ``chart`` outside of a notebook.
            ImportError: ``chart`` without matplotlib.
            UnavailableError: the daemon was unavailable for longer than the timeout.
        """
        from genesis.progress import Bar, in_notebook

        if chart:
            if not in_notebook():
                raise FailedPreconditionError("chart=True redraws a chart in a notebook, and this is none; job.watch() shows a bar, job.plot() "
                                              "returns the chart so far")
            _charts().follow(self, timeout)
            return self.check()
        with Bar(self.id, progress) as bar:
            for event in self.events(cursor=-1, timeout=timeout):
                bar.show(event)
        return self.check()

    def check(self) -> "Job":
        """Raises JobFailedError if the last known state is FAILED or CANCELLED; otherwise returns the job."""
        if self.state in ("FAILED", "CANCELLED"):
            failure = self.message.failure
            text = f"job {self.id} {self.state}: {failure.message or self.message.state_reason}"
            raise JobFailedError(text, self)
        return self

    def checkpoint(self, name: str = "", *, timeout: float = 600.0) -> Checkpoint:
        """Checkpoints a running job at its next step; otherwise returns the job's latest checkpoint.

        Args:
            name: name under which the new checkpoint is kept until it is deleted. Default: none, and retention may delete it.
            timeout: maximum number of seconds to wait for the checkpoint.

        Raises:
            FailedPreconditionError: ``name`` was given and the job is not running.
            AlreadyExistsError: the job has a checkpoint of this name.
            AbortedError: the job ended or lost its worker before the checkpoint was written.
            NotFoundError: the job has no checkpoint yet.
        """
        if not self.ended:
            self.refresh()
        if self.state == "RUNNING" or (name and not self.ended):
            answer = self._connection.call("Checkpoint", job_id=self.id, name=name, timeout=timeout, repeat=False)
            return Checkpoint(self._connection, answer.checkpoint)
        if name:
            raise FailedPreconditionError(f"job {self.id} ({self.state}) writes no more checkpoints that could be kept as {shown(name)}; without "
                                          "name its newest is given, and checkpoint.download(path) keeps a copy")
        if not self.message.HasField("latest_checkpoint"):
            raise NotFoundError(f"job {self.id} ({self.state}) has no checkpoint yet")
        return Checkpoint(self._connection, self.message.latest_checkpoint)

    def checkpoints(self) -> List[Checkpoint]:
        """Returns the checkpoints that the daemon has kept, the newest first."""
        found, token = [], ""
        while True:
            page = self._connection.call("ListCheckpoints", job_id=self.id, page_token=token)
            found += [Checkpoint(self._connection, each) for each in page.checkpoints]
            token = page.next_page_token
            if not token:
                return found

    def artifacts(self) -> List[Any]:
        """Lists files of the job other than checkpoints, such as logs, traces and exported weights, as messages with ``name`` and
        ``size_bytes``."""
        return list(self._connection.call("ListArtifacts", job_id=self.id).artifacts)

    def download(self, name: str, path: Any, *, timeout: float = 600.0) -> None:
        """Downloads an artifact to a file. Resumes an earlier attempt, which left ``<path>.part``.

        Args:
            name: name of the artifact, as listed by ``artifacts``.
            path: the file to write. It must not exist.
            timeout: maximum number of seconds for each call, including retries.

        Raises:
            FileExistsError: the file exists.
            NotFoundError: the job has no such artifact.
            DataLossError: a piece was damaged during the transfer.
        """
        download_artifact(self._connection, self.id, name, path, timeout=timeout)

    def pause(self) -> "Job":
        """Checkpoints the job and takes it off its worker until ``resume``. Returns once the request is durable.

        Raises:
            FailedPreconditionError: the job has ended or is being cancelled.
        """
        self.message = self._connection.call("PauseJob", job_id=self.id).job
        return self

    def resume(self) -> "Job":
        """Queues a paused job again, which then continues from its checkpoint.

        Raises:
            FailedPreconditionError: the job has ended, or is being cancelled or paused.
        """
        self.message = self._connection.call("ResumeJob", job_id=self.id).job
        return self

    def cancel(self, *, now: bool = False) -> "Job":
        """Stops the job after a checkpoint, or immediately if ``now``. Returns once the request is durable; ``watch`` waits for the end.

        Raises:
            FailedPreconditionError: the job has succeeded or failed.
        """
        self.message = self._connection.call("CancelJob", job_id=self.id, now=now).job
        return self

    def update(self, *, priority: Optional[int] = None, labels: Optional[Mapping[str, str]] = None) -> "Job":
        """Changes the priority if ``priority`` is given, and replaces all labels if ``labels`` is given.

        Raises:
            FailedPreconditionError: ``priority`` was given and the job has ended.
        """
        fields = {name: value for name, value in (("priority", priority), ("labels", labels)) if value is not None}
        request = self._connection.request("UpdateJob", job_id=self.id, **fields)
        request.update_mask.paths.extend(fields)
        self.message = self._connection.call("UpdateJob", request).job
        return self

    def report(self, values: Mapping[str, float], step: Optional[int] = None, *, checkpoint: Union[str, Checkpoint] = "") -> "Job":
        """Reports metrics that were measured with the weights of one step, such as the return of agents that act with a checkpoint.

        A report can be repeated; another value for the same step and name replaces the earlier one.

        Args:
            values: finite numbers by name, at most 64.
            step: number of optimizer steps before the measurement. Default: the step of ``checkpoint``.
            checkpoint: the checkpoint that was measured, or its ID.

        Raises:
            InvalidArgumentError: a name or a value is not accepted, or neither ``step`` nor ``checkpoint`` was given.
            NotFoundError: the job has no such checkpoint.
            ResourceExhaustedError: the job would have more than 64 metrics.
        """
        fields = {} if step is None else {"step": step}
        checkpoint_id = checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
        self.message = self._connection.call("ReportMetrics", job_id=self.id, values=values, checkpoint_id=checkpoint_id, **fields).job
        return self

    def evaluations(self, *, lease: int = 600, timeout: float = 600.0) -> Iterator[Checkpoint]:
        """Yields checkpoints whose step has no value of ``evaluation.metric``, newest first, each to one of all callers at a time.

        Waits for new checkpoints, and ends when the job has ended and each has a value.

        >>> for checkpoint in job.evaluations():
        ...     job.report({"return": evaluate(checkpoint)}, step=checkpoint.step)

        Args:
            lease: seconds, 1 to 86400, after which a checkpoint without a report goes to another caller.
            timeout: number of seconds for which the daemon may be unavailable before the error is raised.

        Raises:
            FailedPreconditionError: the job has no ``evaluation.metric``.
            UnavailableError: the daemon was unavailable for longer than the timeout.
        """
        while True:
            # Read first, because a last checkpoint may be written after the call.
            ended = self.refresh().ended
            found = self._connection.call("LeaseEvaluation", job_id=self.id, lease_seconds=lease, wait_seconds=_EVALUATION_WAIT, timeout=timeout)
            if found.HasField("checkpoint"):
                yield Checkpoint(self._connection, found.checkpoint)
            elif ended and not found.HasField("expire_time"):
                return

    def delete(self, *, checkpoints: bool = False) -> int:
        """Deletes a job that has ended, and also its checkpoints if ``checkpoints``.

        Returns:
            The number of deleted checkpoints.

        Raises:
            FailedPreconditionError: the job has not ended.
        """
        return self._connection.call("DeleteJob", job_id=self.id, delete_checkpoints=checkpoints,
                                     repeat=False).deleted_checkpoints

    def stats(self, window_seconds: int = 0) -> Any:
        """Returns the statistics of this job with a downsampled history, as the message ``StatsResponse``."""
        return self._connection.call("Stats", job_id=self.id, window_seconds=window_seconds)

    def history(self) -> List[Dict[str, Any]]:
        """Returns metrics over time as dicts, the oldest first (docs/history.md). The value of a metric that was not measured is None."""
        rows, token = [], ""
        while True:
            page = self._connection.call("GetHistory", job_id=self.id, page_token=token, page_size=1000)
            rows += [_history_row(row) for row in page.rows]
            token = page.next_page_token
            if not token:
                return rows

    def history_frame(self) -> "pandas.DataFrame":
        """Returns ``history()`` as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.history())

    def curves(self, metrics: Union[str, Sequence[str]] = (), from_step: int = 0, to_step: int = 0, points: int = 1000) -> Dict[str, List[Any]]:
        """Returns metrics of the job's steps as columns of equal length, one entry for each point.

        A point stands for ``steps`` steps, ``first_step`` to ``last_step``; ``skipped`` of them changed no weight. A metric, such as ``loss``,
        is the mean over the point, beside ``loss_min`` and ``loss_max``; NaN if no value was finite.

        Args:
            metrics: ``loss``, ``loss_scale``, ``grad_norm``, ``learning_rate``, ``step_seconds``, ``memory_bytes``. Default: all.
            from_step: first step.
            to_step: last step; 0 for the newest.
            points: maximum number of points, 1 to 10000.
        """
        metrics = [metrics] if isinstance(metrics, str) else metrics
        found = self._connection.call("GetCurves", job_id=self.id, metrics=metrics, from_step=from_step, to_step=to_step, points=points)
        columns = {"first_step": found.first_steps, "last_step": found.last_steps, "steps": found.counts, "skipped": found.skipped,
                   "training_seconds": found.training_seconds, "time": found.times, "samples": found.samples,
                   "reduced_precision": found.reduced_precision}
        for curve in found.curves:
            columns.update({curve.metric: curve.mean, f"{curve.metric}_min": curve.min, f"{curve.metric}_max": curve.max})
        return {name: list(values) for name, values in columns.items()}

    def curves_frame(self, metrics: Union[str, Sequence[str]] = (), from_step: int = 0, to_step: int = 0, points: int = 1000) -> "pandas.DataFrame":
        """Returns ``curves(...)`` as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.curves(metrics, from_step, to_step, points))

    def plot(self) -> "Figure":
        """Draws the job so far: loss, raw and smoothed, held-out loss, precision changes and restarts; below it the metrics that
        callers reported, the loss scale, if it was other than 1, and the throughput.

        Returns:
            A figure of matplotlib, which a notebook shows and ``savefig`` writes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return _charts().chart_of(self.refresh())

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, state={self.state!r}, step={self.progress.step})"
