"""A world model that a daemon trains, with the interface of an earlier WorldModel that trained in the caller's process."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from genesis.client import Client
from genesis.connection import FilePath
from genesis.data import array_of
from genesis.errors import AlreadyExistsError, InvalidArgumentError
from genesis.job import Job
from genesis.precision_gate import allows_reduced_precision
from genesis.spec import merged
from genesis.training.v1 import precision_pb2
from genesis.transfer import sha256_of

if TYPE_CHECKING:
    import numpy
    import torch

_ARRAYS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
_TRANSITION = ("observation", "action", "reward", "next_observation", "done")
ACCEPTED = ("accepted: the name of a replay buffer of the daemon; the path of a trajectory file; a dict of the arrays observations, "
            "actions, rewards, next_observations, terminals and timeouts; a list of such dicts, one for each episode; or a list of "
            "transitions (observation, action, reward, next_observation, done)")


def _array(name: str, value: Any) -> "numpy.ndarray":
    try:
        return array_of(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"{name} cannot be read as an array: {error}; {ACCEPTED}") from None


def _actions(actions: "numpy.ndarray") -> "numpy.ndarray":
    """Returns actions as a trajectory file has them: float32, or int64 [N] for discrete actions.

    Raises:
        InvalidArgumentError: the actions are integers that are not [N], or are not numbers.
    """
    if actions.dtype.kind == "f":
        return actions.astype("float32")
    if actions.dtype.kind in "iu" and actions.ndim == 1:
        return actions.astype("int64")
    raise InvalidArgumentError(f"actions is {actions.dtype} of shape {actions.shape}; accepted: floating-point numbers [N] or [N, A], or integers [N], "
                               "each the number of a discrete action; make numbers floating-point by .astype('float32'), and [N, 1] discrete by "
                               ".reshape(-1)")


def _flags(name: str, flags: "numpy.ndarray") -> "numpy.ndarray":
    """Returns flags as bool."""
    import numpy

    if flags.dtype.kind == "b" or flags.dtype == numpy.uint8 or (flags.dtype.kind in "iuf" and ((flags == 0) | (flags == 1)).all()):
        return flags.astype(bool)
    raise InvalidArgumentError(f"{name} is {flags.dtype} of shape {flags.shape}; accepted: bool, or the numbers 0 and 1")


def _episode(episode: Mapping[str, Any]) -> "Dict[str, numpy.ndarray]":
    """Returns the arrays of one episode, in which ``next_observations``, ``terminals`` and ``timeouts`` may be omitted."""
    import numpy

    arrays = {name: _array(name, value) for name, value in episode.items() if name in _ARRAYS}
    missing = [name for name in ("observations", "actions", "rewards") if name not in arrays]
    if missing:
        raise InvalidArgumentError(f"an episode has no {', '.join(missing)}; {ACCEPTED}")
    arrays["actions"] = _actions(arrays["actions"])
    arrays.update({name: _flags(name, arrays[name]) for name in ("terminals", "timeouts") if name in arrays})
    count = len(arrays["rewards"])
    if "next_observations" not in arrays:
        if len(arrays["observations"]) != count + 1:
            raise InvalidArgumentError(f"an episode has {len(arrays['observations'])} observations and {count} rewards, and no "
                                       "next_observations; accepted: one observation more than rewards")
        arrays["next_observations"] = arrays["observations"][1:]
        arrays["observations"] = arrays["observations"][:-1]
    arrays.setdefault("terminals", numpy.zeros(count, dtype=bool))
    if "timeouts" not in arrays:
        arrays["timeouts"] = numpy.zeros(count, dtype=bool)
        if count and not arrays["terminals"][-1]:
            arrays["timeouts"][-1] = True
    return arrays


def _transitions(transitions: Any) -> "Dict[str, numpy.ndarray]":
    import numpy

    for number, transition in enumerate(transitions):
        if not isinstance(transition, (tuple, list)) or len(transition) != len(_TRANSITION):
            raise InvalidArgumentError(f"item {number} of the replay buffer is not a tuple ({', '.join(_TRANSITION)}); {ACCEPTED}")
    observations, actions, rewards, following, done = zip(*transitions)
    taken = _array("actions", actions)
    if taken.ndim == 1 and taken.dtype.kind == "f":
        whole = next((number for number, action in enumerate(actions) if _array("action", action).dtype.kind != "f"), None)
        if whole is not None:
            raise InvalidArgumentError(f"action is the integer {actions[whole]} in item {whole} of the replay buffer, and a floating-point number in "
                                       "others; accepted: integers, each the number of a discrete action, in all items or in none")
    terminals = _array("done", done).astype(bool)
    timeouts = numpy.zeros(len(rewards), dtype=bool)
    timeouts[-1] = not terminals[-1]
    return {"observations": _array("observations", observations), "actions": _actions(taken), "rewards": _array("rewards", rewards),
            "next_observations": _array("next_observations", following), "terminals": terminals, "timeouts": timeouts}


def trajectories_of(buffer: Any) -> "Dict[str, numpy.ndarray]":
    """Returns a replay buffer as the arrays of a trajectory file (docs/data.md).

    Args:
        buffer: a dict of arrays, a list of such dicts, one per episode, or a list of transitions. Integers [N] as actions are discrete
            actions, which become one-hot.

    Raises:
        InvalidArgumentError: the buffer is empty or has another form, or its actions are integers [N, A] or of both types.
    """
    import numpy

    if isinstance(buffer, Mapping):
        arrays = _episode(buffer)
    else:
        items = list(buffer)
        if not items:
            raise InvalidArgumentError(f"the replay buffer is empty; {ACCEPTED}")
        if isinstance(items[0], Mapping):
            episodes = [_episode(item) for item in items]
            other = next((number for number, episode in enumerate(episodes) if episode["actions"].dtype != episodes[0]["actions"].dtype), None)
            if other is not None:
                raise InvalidArgumentError(f"actions is {episodes[other]['actions'].dtype} in episode {other} and {episodes[0]['actions'].dtype} in "
                                           "episode 0; accepted: integers, each the number of a discrete action, in all episodes or in none")
            arrays = {name: numpy.concatenate([episode[name] for episode in episodes]) for name in _ARRAYS}
        else:
            arrays = _transitions(items)
    return {name: array if array.dtype == bool or name == "actions" else array.astype("float32") for name, array in arrays.items()}


class WorldModel:
    """A world model that learns to predict the next observation and the reward from a replay buffer.

    The daemon trains it as the built-in model ``world_model``. Each ``train`` continues from the weights of the previous one, or from
    those of ``load_checkpoint``.

    Args:
        client: the client of the daemon. Default: ``genesis.Client()``.
        spec: additional fields of the job file, such as ``{"model": {"world_model": {"hidden_size": 256}}}``.
    """

    def __init__(self, client: Optional[Client] = None, *, spec: Optional[Mapping[str, Any]] = None) -> None:
        self._client = client
        self._spec: Mapping[str, Any] = spec or {}
        #: Training data: a buffer as for ``trajectories_of``, the name of a replay buffer of the daemon, or the path of a trajectory file.
        self.replay_buffer: Any = None
        #: Metrics of measured steps, the oldest first: dicts with ``step``, ``loss``, ``loss_scale`` and ``samples_per_second``.
        self.training_history: List[Dict[str, float]] = []
        #: The latest job; None before the first ``train``.
        self.job: Optional[Job] = None
        self._fp16_stats: Optional[Dict[str, Any]] = None
        self._loaded: Optional[pathlib.Path] = None

    @property
    def client(self) -> Client:
        """Client of the daemon, created on first use."""
        if self._client is None:
            self._client = Client()
        return self._client

    @property
    def fp16_enabled(self) -> bool:
        """Whether training may use reduced precision, which requires the caller's environment and the daemon to allow it."""
        return allows_reduced_precision() and self.client.precision_policy().reduced_precision_enabled

    async def train(self, num_epochs: int = 1, batch_size: int = 32) -> Dict[str, float]:
        """Trains on the replay buffer and waits for the job.

        Args:
            num_epochs: number of passes over the replay buffer.
            batch_size: transitions per step.

        Returns:
            The metrics of the last measured step, as in ``training_history``.

        Raises:
            JobFailedError: the job failed or was cancelled. The message contains the reason.
            InvalidArgumentError: there is no replay buffer, or it has the wrong form.
        """
        return await asyncio.get_running_loop().run_in_executor(None, self._train, num_epochs, batch_size)

    def _train(self, num_epochs: int, batch_size: int) -> Dict[str, float]:
        spec: Dict[str, Any] = {
            "model": {"world_model": {}}, "dataset": self._dataset(),
            "training": {"epochs": num_epochs, "batch_size": batch_size}}
        # Without a mode, the job runs in reduced precision if the daemon's gate and the hardware allow it.
        if not allows_reduced_precision():
            spec["precision"] = {"mode": "FP32"}
        start = self._start()
        if start:
            spec["start_from_checkpoint"] = start
        self.job = self.client.submit(merged(spec, self._spec)).watch(progress=False)
        self._loaded = None
        self._take_figures(self.job)
        return self.training_history[-1]

    def _take_figures(self, job: Job) -> None:
        progress = job.progress
        stats = job.stats()
        self._fp16_stats = {
            "fp16_enabled_runtime": progress.mode not in (precision_pb2.PRECISION_MODE_UNSPECIFIED,
                                                          precision_pb2.PRECISION_MODE_FP32),
            "overflow_rate": stats.overflow_rate,
            "training_steps": progress.step,
            # None in a mode without a loss scale.
            "current_scale": stats.current_scale if stats.HasField("current_scale") else None}
        points = stats.history or [progress]
        self.training_history += [{"step": point.step, "loss": point.loss, "loss_scale": point.loss_scale,
                                   "samples_per_second": point.samples_per_second} for point in points]

    def _dataset(self) -> Dict[str, Any]:
        buffer = self.replay_buffer
        if buffer is None:
            raise InvalidArgumentError(f"replay_buffer is None; {ACCEPTED}")
        if isinstance(buffer, (str, pathlib.Path)):
            if pathlib.Path(buffer).is_file():
                return {"trajectories": {"path": self.client.upload(buffer)}}
            return {"replay": {"path": str(buffer)}}
        from genesis import data

        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            path = pathlib.Path(folder) / "replay.npz"
            data.save(iter([trajectories_of(buffer)]), path)
            return {"trajectories": {"path": self.client.upload(path)}}

    def _start(self) -> str:
        """Returns the ID of the checkpoint to continue from; empty to start with new weights."""
        if self._loaded is not None:
            checkpoint_id = f"imported-{sha256_of(self._loaded)[:32]}"
            try:
                self.client.import_checkpoint(self._loaded, checkpoint_id)
            except AlreadyExistsError:
                pass
            return checkpoint_id
        return self.job.checkpoint().id if self.job is not None else ""

    def state_dict(self) -> "Dict[str, torch.Tensor]":
        """Returns the trained weights, or those of ``load_checkpoint``.

        Raises:
            InvalidArgumentError: there are no weights yet.
        """
        if self._loaded is not None:
            import torch

            return torch.load(self._loaded, map_location="cpu", weights_only=True)["model_state_dict"]
        if self.job is None:
            raise InvalidArgumentError("there are no weights yet; call train or load_checkpoint")
        return self.job.checkpoint().model_state_dict

    def save_checkpoint(self, path: FilePath) -> None:
        """Writes the newest checkpoint to a local file. An existing file is replaced.

        Raises:
            InvalidArgumentError: there is no checkpoint yet.
        """
        path = pathlib.Path(path)
        with tempfile.TemporaryDirectory(prefix=".genesis-", dir=path.parent) as folder:
            whole = pathlib.Path(folder) / "checkpoint.pt"
            if self._loaded is not None:
                shutil.copyfile(self._loaded, whole)
            elif self.job is not None:
                self.job.checkpoint().download(whole)
            else:
                raise InvalidArgumentError("there is nothing to save yet; call train or load_checkpoint")
            os.replace(whole, path)

    def load_checkpoint(self, path: FilePath) -> None:
        """Makes the next ``train`` continue from a local file that ``save_checkpoint`` wrote. It may have been trained in any precision."""
        path = pathlib.Path(path)
        with open(path, "rb"):
            self._loaded = path.resolve()
