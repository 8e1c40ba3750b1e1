"""The client of one daemon."""

from __future__ import annotations

import pathlib
import tempfile
import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from genesis import readings, transfer
from genesis.checkpoints import Checkpoint
from genesis.columns import Column
from genesis.connection import Connection, FilePath
from genesis.data import is_loader
from genesis.errors import AlreadyExistsError, InvalidArgumentError
from genesis.events import Event, fleet_events_of
from genesis.job import Job
from genesis.module_job import (DEFAULT_BATCH_SIZE, EXPORTED_FOR, NOT_SENT, check_numbers, files_of, only_size, optimizer_of, refuse_given_twice,
                                size_in)
from genesis.requests import event_filter, number_of
from genesis.spec import Spec, merged, spec_of
from genesis.sweep import Sweep, Values, sweep_spec
from genesis.training.v1 import job_pb2, operations_pb2, training_service_pb2, webhook_pb2
from genesis.trajectories import Appender

if TYPE_CHECKING:
    import torch

    from genesis.exporting.losses import Loss
    from genesis.exporting.predictions import Predict

# An environment of gymnasium, single or vectorised.
_Env = TypeVar("_Env")


class Client:
    """Client of one daemon.

    Any thread may use it. Methods raise the exceptions of ``genesis.errors``. It can be used as a context manager that closes the
    connection.

    Args:
        server: ``HOST:PORT`` or ``unix:PATH``. Default: ``GENESIS_SERVER``, otherwise ``127.0.0.1:50051``.
        token, token_file: the caller's token, or a file that contains it, read for each call (docs/security.md). Default:
            ``GENESIS_TOKEN_FILE``, otherwise ``GENESIS_TOKEN``.
        tls_ca, tls_cert, tls_key: PEM files. ``tls_ca`` enables TLS. Default: ``GENESIS_TLS_CA``,
            ``GENESIS_TLS_CERT``, ``GENESIS_TLS_KEY``.
        timeout: maximum duration of a call in seconds, including retries while the daemon restarts.

    Raises:
        InvalidArgumentError: invalid ``server`` or ``timeout``.
        ValueError: a token without TLS for a remote server, or an incomplete set of TLS files.
        OSError: a token or PEM file cannot be read.
    """

    def __init__(self, server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[FilePath] = None,
                 tls_ca: Optional[FilePath] = None, tls_cert: Optional[FilePath] = None, tls_key: Optional[FilePath] = None,
                 timeout: float = 60.0) -> None:
        self.connection = Connection(server, token=token, token_file=token_file, tls_ca=tls_ca, tls_cert=tls_cert,
                                     tls_key=tls_key, timeout=timeout)

    def close(self) -> None:
        """Closes the connection."""
        self.connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Jobs.

    def train(self, module: "Union[torch.nn.Module, FilePath]", data: Any, *, loss: "Loss" = None, epochs: Optional[int] = None,
              max_steps: Optional[int] = None, batch_size: Optional[int] = None, learning_rate: Optional[float] = None,
              optimizer: "Optional[torch.optim.Optimizer]" = None, schedule: Optional[Mapping[int, float]] = None,
              precision: str = "FP32", holdout_fraction: Optional[float] = None, seed: int = 0, ranks: int = 1, job_id: str = "",
              spec: Optional[Mapping[str, Any]] = None, dynamic_batch: bool = True, data_passes: int = 1, predict: "Predict" = None) -> Job:
        """Exports a module, uploads it with its data, and submits a job that trains it.

        Args:
            module: the module, trained from its current weights, or the path of a file written by ``genesis.export``.
            data: a dict from field names to arrays or tensors; a tuple ``(x, target)``; a torch Dataset or DataLoader; a result of
                ``genesis.from_parquet``, ``from_images``, ``from_text`` or ``from_tokens``; or the path of a dataset file. float64
                is sent as float32. A DataLoader made with ``batch_size=None`` has a dataset that yields whole batches.
            loss, predict: as in ``genesis.export``.
            epochs, max_steps: length of the training. Exactly one must be given.
            batch_size: examples per step. Default: the batch size of a DataLoader, of ``spec`` or of an exported file with a fixed size,
                otherwise 32.
            learning_rate: learning rate of AdamW, which is used if ``optimizer`` is omitted. Gradients are clipped to a norm of 1 unless
                ``spec={"training": {"max_grad_norm": -1}}``.
            optimizer: a new ``torch.optim.AdamW``, ``Adam`` or ``SGD`` of the module's parameters, with any parameter groups.
            schedule: factors of the learning rate by step, with linear interpolation between them:
                ``{0: 0.0, 100: 1.0, 1000: 0.1}``.
            precision: ``FP32``, ``MIXED_BF16``, ``MIXED_FP16``, ``BF16``, ``FP16``, or ``AUTO``, which chooses by measuring.
            holdout_fraction: fraction of the examples, taken from the end, for the held-out loss; above 0, at most 0.5. Default: 0.1.
            seed: seed of the order of the examples, from 0.
            ranks: number of processes that train together, each with batches of ``batch_size`` (docs/distributed.md).
            job_id: ID of the job, which makes the call idempotent. Default: generated.
            spec: additional fields of the job file (docs/job_file.md), such as ``{"optimizer": {"kind": "SGD"}}``. A field that is
                also an argument must not be given twice.
            dynamic_batch: as in ``genesis.export``. Pass ``False`` if the module supports only batches of ``batch_size``.
            data_passes: number of times that a torch Dataset with random transforms is read. All readings are stored, and an epoch is a pass
                over each of them. Default: once, with a warning if a second reading gives other values.

        Returns:
            The job, which the daemon has accepted and stored.

        Raises:
            ExportError: the module cannot be exported. The message says how to fix it.
            InvalidArgumentError: the arguments, the data or the specification are invalid.
            AlreadyExistsError: another job has this ID.
            ResourceExhaustedError: a queue, a quota or a disk of the daemon is full.
            UnavailableError: the daemon did not respond in time.
        """
        if (epochs is None) == (max_steps is None):
            raise InvalidArgumentError(f"epochs is {epochs} and max_steps is {max_steps}; give one of the two")
        check_numbers({"epochs": epochs, "max_steps": max_steps, "batch_size": batch_size, "ranks": ranks, "data_passes": data_passes},
                      learning_rate, holdout_fraction, seed)
        if spec is not None and not isinstance(spec, Mapping):
            raise InvalidArgumentError(f"spec is a {type(spec).__name__}; accepted: a dict with the names of docs/job_file.md")
        refuse_given_twice(spec or {}, {"training.epochs": True, "training.max_steps": True, "training.batch_size": batch_size,
                                         "optimizer.learning_rate": learning_rate, "training.seed": seed or None,
                                         "dataset.arrays.holdout_fraction": holdout_fraction if data_passes == 1 else True,
                                         "distributed.ranks": ranks if ranks != 1 else None})
        only = only_size(module, dynamic_batch, predict)
        batch_size = int(batch_size or (data.batch_size if is_loader(data) else None) or size_in(spec) or only or DEFAULT_BATCH_SIZE)
        if only is not None and batch_size != only:
            raise InvalidArgumentError(f"batch_size is {batch_size}; accepted: {only}, the size of the batches that {str(module)!r} takes, which was "
                                       "exported with dynamic_batch=False")
        if str(precision).upper() not in EXPORTED_FOR:
            raise InvalidArgumentError(f"precision is {precision!r}; accepted: {', '.join(EXPORTED_FOR)}")
        if data_passes > 1:
            data, holdout_fraction = readings.several(data, data_passes, holdout_fraction)
        else:
            readings.warn_if_random(data)
        updated = optimizer_of(module, optimizer, schedule, learning_rate)
        built: Dict[str, Any] = {
            "model": {"exported": {"path": f"{NOT_SENT}.pt2"}},
            "dataset": {"arrays": {"path": f"{NOT_SENT}.npz"}},
            "training": {"batch_size": batch_size, "seed": seed},
            "precision": {"mode": precision}}
        if epochs is not None:
            built["training"]["epochs"] = epochs
        else:
            built["training"]["max_steps"] = max_steps
        if updated:
            built["optimizer"] = updated
        if ranks != 1:
            built["distributed"] = {"ranks": ranks}
        if holdout_fraction is not None:
            built["dataset"]["arrays"]["holdout_fraction"] = holdout_fraction
        self._require_valid(merged(built, spec or {}), job_id)
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            module_path, data_path = files_of(pathlib.Path(folder), module, data, loss, batch_size, precision.upper(), dynamic_batch, predict)
            built["model"]["exported"]["path"] = self.upload(module_path)
            built["dataset"]["arrays"]["path"] = self.upload(data_path)
        return self.submit(merged(built, spec or {}), job_id=job_id)

    def _require_valid(self, spec: Mapping[str, Any], job_id: str) -> None:
        """Validates a specification with the daemon before the export and the uploads, which may take long."""
        try:
            self.submit(spec, job_id=job_id, validate_only=True)
        except AlreadyExistsError:
            pass  # May be a retry. Once the paths are known, the daemon compares the jobs.
        except InvalidArgumentError as error:
            # The daemon checks that files exist only if all else is valid.
            faults = [line for line in str(error).splitlines() if NOT_SENT not in line]
            if faults:
                raise InvalidArgumentError("\n".join(faults)) from None

    def submit(self, spec: Spec, *, job_id: str = "", request_id: str = "", validate_only: bool = False) -> Job:
        """Submits a job.

        Args:
            spec: a dict with the field names of docs/job_file.md, or the message ``JobSpec``. Paths are those of the daemon's machine, such
                as those that ``upload`` returns.
            job_id: ID of the job. Default: generated.
            request_id: makes a repeated call return the same job. Default: generated unless ``job_id`` is given.
            validate_only: only checks the job.

        Returns:
            The job.

        Raises:
            InvalidArgumentError: invalid specification, with one line per error.
            AlreadyExistsError: another job has this ID.
        """
        request = self.connection.request("Train", spec=spec_of(spec), job_id=job_id, validate_only=validate_only,
                                          request_id=request_id or ("" if job_id else uuid.uuid4().hex))
        return Job(self.connection, self.connection.call("Train", request).job)

    def job(self, job_id: str) -> Job:
        """Returns the job with this ID.

        Raises:
            NotFoundError: the job does not exist.
        """
        return Job(self.connection, self.connection.call("GetJob", job_id=job_id).job)

    def jobs(self, *, states: Sequence[str] = (), owner: str = "", labels: Optional[Mapping[str, str]] = None,
             id_prefix: str = "", order: str = "NEWEST_FIRST") -> Iterator[Job]:
        """Lists jobs. Pages are fetched as the iterator is read.

        Args:
            states: names such as ``RUNNING``. Default: all states.
            owner, labels, id_prefix: return only jobs that match.
            order: ``NEWEST_FIRST``, ``OLDEST_FIRST`` or ``PRIORITY``.

        Raises:
            InvalidArgumentError: unknown state or order.
        """
        fields = {"states": [number_of(job_pb2.JobState, "states", state) for state in ([states] if isinstance(states, str) else states)],
                  "owner": owner, "labels": labels or {}, "id_prefix": id_prefix, "order": number_of(training_service_pb2.JobOrder, "order", order)}
        return (Job(self.connection, each) for each in self._pages("ListJobs", "jobs", **fields))

    def sweep(self, job: Union[Spec, Job], over: Mapping[str, Values], *, trials: int = 0, seed: int = 0, metric: str = "loss",
              maximize: bool = False, halving: Optional[int] = None, max_parallel: int = 0, sweep_id: str = "") -> Sweep:
        """Searches for good values of fields of a job. The daemon trains one job for each trial, also after a restart.

        >>> first = client.train(module, data, loss="mse", epochs=20)
        >>> sweep = client.sweep(first, {"optimizer.learning_rate": genesis.Range(1e-4, 1e-1, log=True)}, trials=20)
        >>> sweep.wait().best().checkpoint()

        Args:
            job: what every trial trains: a specification as for ``submit``, or a job whose specification is used again.
            over: for each field of a job file, such as ``optimizer.learning_rate``, a list of values or a ``Range``.
            trials: number of trials with values drawn at random. Default: a grid, one trial for each combination of values.
            seed: seed of the random search.
            metric: ``loss``, the held-out loss, or the name of a metric of evaluations.
            maximize: whether larger values of the metric are better.
            halving: at each rung, stops all but the best 1/``halving`` of the trials (successive halving). Needs ``evaluation.every_steps``.
                Default: every trial runs to its end.
            max_parallel: maximum number of unfinished jobs at the same time. Default: 4.
            sweep_id: ID of the sweep, which makes the call repeatable. Default: generated.

        Raises:
            InvalidArgumentError: invalid specification, or the job of a trial is.
            AlreadyExistsError: another sweep has this ID.
        """
        spec = sweep_spec(job, over, trials=trials, seed=seed, metric=metric, maximize=maximize, halving=halving, max_parallel=max_parallel)
        request = self.connection.request("CreateSweep", spec=spec, sweep_id=sweep_id or f"sweep-{uuid.uuid4().hex[:8]}")
        return Sweep(self.connection, self.connection.call("CreateSweep", request).sweep)

    def open_sweep(self, sweep_id: str) -> Sweep:
        """Returns the sweep with this ID.

        Raises:
            NotFoundError: the sweep does not exist.
        """
        return Sweep(self.connection, self.connection.call("GetSweep", sweep_id=sweep_id).sweep)

    def sweeps(self) -> Iterator[Sweep]:
        """Lists sweeps without their trials, newest first."""
        return (Sweep(self.connection, each) for each in self._pages("ListSweeps", "sweeps"))

    def _pages(self, method: str, items: str, **fields: Any) -> Iterator[Any]:
        token = ""
        while True:
            page = self.connection.call(method, page_token=token, **fields)
            yield from getattr(page, items)
            token = page.next_page_token
            if not token:
                return

    def events(self, cursor: int = 0, *, job_id: str = "", owner: str = "", labels: Optional[Mapping[str, str]] = None,
               kinds: Sequence[str] = (), states: Sequence[str] = (), timeout: float = 600.0) -> Iterator[Event]:
        """Yields past and future events of all jobs, or of those that match, in order and each once. Does not end by itself.

        If the connection breaks or the daemon restarts, reconnects and continues after the last event.

        Args:
            cursor: yields only events after this ``Event.sequence``; 0 for all events that the daemon has kept, -1 for future ones.
            job_id, owner, labels: yields only events of jobs that match.
            kinds: yields only these kinds, such as ``state_changed`` or ``progress``, which yields an ``update`` at most once a second
                for each job. Default: all kinds.
            states: yields only events after which the job is in one of these states, such as ``FAILED``.
            timeout: number of seconds for which the daemon may be unavailable before the error is raised.

        Raises:
            InvalidArgumentError: unknown kind or state.
            OutOfRangeError: events after the cursor are no longer kept.
            UnavailableError: the daemon was unavailable for longer than the timeout.
        """
        wanted = event_filter(job_id, owner, labels, kinds, states)
        for response in self.connection.watch("WatchJobs", cursor, timeout, filter=wanted, skip_dropped=cursor == 0):
            if response is not None:
                yield from fleet_events_of(response)

    def events_page(self, cursor: int = 0, *, wait_seconds: int = 0, page_size: int = 1000, job_id: str = "", owner: str = "",
                    labels: Optional[Mapping[str, str]] = None, kinds: Sequence[str] = (),
                    states: Sequence[str] = ()) -> Tuple[List[Event], int]:
        """Returns the next events after the cursor and the cursor of the next page, for callers that keep no stream open.

        Args:
            cursor: 0 for the oldest events, otherwise that of the previous page.
            wait_seconds: how long to wait for an event if there is none yet, 0 to 300.
            page_size: maximum number of events, 1 to 1000.
            job_id, owner, labels, kinds, states: as in ``events``.

        Raises:
            OutOfRangeError: events after the cursor are no longer kept.
        """
        page = self.connection.call("ListEvents", timeout=self.connection.timeout + wait_seconds, cursor=cursor, page_size=page_size,
                                    wait_seconds=wait_seconds, filter=event_filter(job_id, owner, labels, kinds, states))
        return fleet_events_of(page), page.cursor

    # Checkpoints.

    def checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Returns the checkpoint with this ID.

        Raises:
            NotFoundError: the checkpoint does not exist.
        """
        return Checkpoint(self.connection, self.connection.call("GetCheckpoint", checkpoint_id=checkpoint_id).checkpoint)

    def checkpoints(self, job_id: str = "") -> Iterator[Checkpoint]:
        """Lists the checkpoints of one job, or of all jobs, the newest first."""
        return (Checkpoint(self.connection, each) for each in self._pages("ListCheckpoints", "checkpoints", job_id=job_id))

    def import_checkpoint(self, path: FilePath, checkpoint_id: str) -> Checkpoint:
        """Uploads a local checkpoint, for use as ``start_from_checkpoint`` of a job.

        Raises:
            OSError: the file cannot be read.
            AlreadyExistsError: the ID is already in use.
        """
        return Checkpoint(self.connection, transfer.import_checkpoint(self.connection, path, checkpoint_id))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Deletes the record and the files of a checkpoint.

        Raises:
            NotFoundError: the checkpoint does not exist.
            FailedPreconditionError: a job that has not ended may still need it.
        """
        self.connection.call("DeleteCheckpoint", checkpoint_id=checkpoint_id, repeat=False)

    # Data.

    def upload(self, path: FilePath, *, on_progress: transfer.OnProgress = None) -> str:
        """Uploads a local file for use by jobs.

        Resumes an interrupted upload, and sends nothing if the daemon already has a file with the same content.

        Args:
            path: a local file whose name has an extension, such as ``.npz``.
            on_progress: called with the number of bytes sent so far and the total.

        Returns:
            The path of the file on the daemon's machine, for job files.

        Raises:
            InvalidArgumentError: the file name has no extension.
            ResourceExhaustedError: the limit of uploads (``datasets.max_uploads_bytes``) or of what the caller stores
                (``quotas.stored_bytes``) is reached, or the daemon's disk is full.
        """
        return transfer.upload(self.connection, path, on_progress=on_progress)

    def append(self, dataset: str, *, capacity: int = 0, columns: Optional[Mapping[str, Column]] = None) -> Appender:
        """Returns an ``Appender`` of transitions to a replay buffer, which is created if it does not exist.

        Args:
            dataset: name of the replay buffer.
            capacity: maximum number of transitions; 0 keeps the current one, which is 1000000 for a new buffer.
            columns: the columns of the buffer, such as ``{"observations": genesis.Column("uint8", (64, 64, 3)), ...}``. Default: those of the
                first transitions.
        """
        return Appender(self.connection, dataset, capacity, columns=columns)

    def record(self, env: _Env, dataset: str, *, capacity: int = 0) -> _Env:
        """Returns the environment with every episode appended to a replay buffer when it ends.

        Actions and observations are stored as ``gymnasium.spaces.flatten`` returns them, as float32: a discrete action is one-hot. Images, which
        are a ``Box`` of uint8, are stored unchanged. An episode that ``reset`` or ``close`` ends is stored as truncated.

        Args:
            env: a ``gymnasium.Env``, or a ``gymnasium.vector.VectorEnv`` of any autoreset mode.
            dataset, capacity: as for ``append``.

        Raises:
            InvalidArgumentError: ``env`` is not an environment, or the number of values in a space of it varies.
        """
        try:
            from genesis.recording import recorded
        except ImportError as error:
            raise ImportError(f"recording needs gymnasium: {error}; install it with: pip install gymnasium") from None

        return recorded(env, lambda: self.append(dataset, capacity=capacity))

    def datasets(self) -> Iterator[operations_pb2.DatasetInfo]:
        """Yields the files and replay buffers under the daemon's dataset root, ordered by name."""
        return self._pages("ListDatasets", "datasets")

    def delete_dataset(self, name: str) -> None:
        """Deletes a dataset permanently. A file that other callers uploaded too is kept for them.

        Raises:
            NotFoundError: the dataset does not exist.
            PermissionDeniedError: the dataset belongs to other callers.
            FailedPreconditionError: a job that has not ended names it, or transitions are being appended to it.
        """
        self.connection.call("DeleteDataset", name=name, repeat=False)

    # The daemon.

    def stats(self, window_seconds: int = 0) -> training_service_pb2.StatsResponse:
        """Returns statistics of the worker pool and of all jobs."""
        return self.connection.call("Stats", window_seconds=window_seconds)

    def server_info(self) -> training_service_pb2.GetServerInfoResponse:
        """Returns the version and the readiness of the daemon, and the state of the gate of reduced precision."""
        return self.connection.call("GetServerInfo")

    def precision_policy(self) -> training_service_pb2.GetPrecisionPolicyResponse:
        """Returns whether jobs may use reduced precision, and which source decides."""
        return self.connection.call("GetPrecisionPolicy")

    def set_precision_policy(self, allowed: bool, *, reason: str = "",
                             application: str = "NEW_ATTEMPTS") -> training_service_pb2.SetPrecisionPolicyResponse:
        """Forbids reduced precision, or lets the gate decide again if ``allowed``.

        Args:
            allowed: False to forbid reduced precision.
            reason: shown with the policy.
            application: when it takes effect: ``NEW_ATTEMPTS``, ``NEXT_STEP`` or ``AT_ONCE``.
        """
        return self.connection.call("SetPrecisionPolicy", reduced_precision_allowed=allowed, reason=reason,
                                    application=number_of(operations_pb2.PolicyApplication, "application", application))

    def workers(self) -> training_service_pb2.ListWorkersResponse:
        """Returns the worker processes and devices of the daemon."""
        return self.connection.call("ListWorkers")

    def drain_worker(self, worker_id: str) -> operations_pb2.WorkerInfo:
        """Stops a worker after its job has been checkpointed and requeued.

        Raises:
            NotFoundError: the worker does not exist.
        """
        return self.connection.call("DrainWorker", worker_id=worker_id).worker

    def config(self) -> List[operations_pb2.SettingValue]:
        """Returns all settings in effect, each with its source."""
        return list(self.connection.call("GetConfig").settings)

    def reload_config(self, *, validate_only: bool = False) -> List[operations_pb2.SettingValue]:
        """Reads the daemon's settings again and returns those that changed.

        Args:
            validate_only: checks the settings without applying them.

        Raises:
            InvalidArgumentError: a setting is invalid. No setting changes then.
            FailedPreconditionError: a changed setting requires a restart. No setting changes then.
        """
        return list(self.connection.call("ReloadConfig", validate_only=validate_only).changed)

    def backup(self) -> training_service_pb2.BackupStoreResponse:
        """Makes the daemon write a consistent copy of its store."""
        return self.connection.call("BackupStore", repeat=False)

    def history(self, job_id: str = "") -> Iterator[operations_pb2.HistoryRow]:
        """Yields rows of the metrics history of one job, or of all jobs, the oldest first."""
        return self._pages("GetHistory", "rows", job_id=job_id, page_size=1000)

    def webhook_deliveries(self) -> Iterator[webhook_pb2.WebhookDelivery]:
        """Yields the events that a webhook endpoint has not received, the newest first."""
        return self._pages("ListWebhookDeliveries", "deliveries")
