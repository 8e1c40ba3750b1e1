"""Environments of gymnasium that append their transitions to a replay buffer."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import gymnasium
import numpy
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from genesis.errors import InvalidArgumentError
from genesis.trajectories import Appender


def recorded(env: Any, appender: Callable[[], Appender]) -> Any:
    """Returns the environment with recording. ``appender`` creates the writer of one environment."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return VectorRecording(env, appender)
    if isinstance(env, gymnasium.Env):
        return Recording(env, appender)
    raise InvalidArgumentError(f"env has the type {type(env).__name__}; accepted: a gymnasium.Env or a gymnasium.vector.VectorEnv")


class _Episodes:
    """The episodes of one environment, one after another."""

    def __init__(self, appender: Appender, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        for name, space in (("observation", observation_space), ("action", action_space)):
            if not space.is_np_flattenable:
                raise InvalidArgumentError(f"the {name} space is {space}; accepted: one that gymnasium.spaces.flatten makes a fixed number of values")
        self._appender = appender
        self._observation_space, self._action_space = observation_space, action_space
        self._has_images = isinstance(observation_space, gymnasium.spaces.Box) and observation_space.dtype == numpy.uint8
        self._observation: Optional[numpy.ndarray] = None

    def action(self, action: Any) -> numpy.ndarray:
        return gymnasium.spaces.flatten(self._action_space, action)

    def begin(self, observation: Any) -> None:
        # Copied, because an environment may write the next observation into the same array.
        self._observation = numpy.array(observation) if self._has_images else gymnasium.spaces.flatten(self._observation_space, observation)

    def add(self, action: numpy.ndarray, reward: Any, observation: Any, terminated: bool, truncated: bool) -> None:
        """Adds a step to the episode, with its action as ``action`` returned it."""
        before = self._observation
        if before is None:  # The environment itself allows a step without a reset.
            return
        self.begin(observation)
        self._appender.add(before, action, float(reward), self._observation, bool(terminated), bool(truncated))
        if terminated or truncated:
            self._observation = None

    def cut(self) -> None:
        """Ends an open episode as truncated."""
        self._observation = None
        self._appender.flush()


class Recording(gymnasium.Wrapper):
    """An environment that appends its transitions. Any wrapper may be around it or inside it."""

    def __init__(self, env: gymnasium.Env, appender: Callable[[], Appender]) -> None:
        super().__init__(env)
        self._episodes = _Episodes(appender(), env.observation_space, env.action_space)

    def reset(self, **options: Any) -> Tuple[Any, Dict[str, Any]]:
        self._episodes.cut()
        observation, info = super().reset(**options)
        self._episodes.begin(observation)
        return observation, info

    def step(self, action: Any) -> Tuple[Any, Any, bool, bool, Dict[str, Any]]:
        taken = self._episodes.action(action)
        observation, reward, terminated, truncated, info = super().step(action)
        self._episodes.add(taken, reward, observation, terminated, truncated)
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        self._episodes.cut()
        super().close()


class VectorRecording(gymnasium.vector.VectorWrapper):
    """A vectorised environment that appends the transitions of each of its environments."""

    def __init__(self, env: gymnasium.vector.VectorEnv, appender: Callable[[], Appender]) -> None:
        super().__init__(env)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._episodes = [_Episodes(appender(), env.single_observation_space, env.single_action_space) for _ in range(env.num_envs)]
        # Whether the next step resets the environment and ignores the action.
        self._resets = numpy.zeros(env.num_envs, dtype=bool)

    def reset(self, *, seed: Any = None, options: Optional[Dict[str, Any]] = None) -> Tuple[Any, Dict[str, Any]]:
        chosen = (options or {}).get("reset_mask", numpy.ones(self.num_envs, dtype=bool))
        for episodes, is_reset in zip(self._episodes, chosen):
            if is_reset:
                episodes.cut()
        observations, infos = super().reset(seed=seed, options=options)
        for episodes, observation, is_reset in zip(self._episodes, iterate(self.observation_space, observations), chosen):
            if is_reset:
                episodes.begin(observation)
        self._resets[chosen] = False
        return observations, infos

    def step(self, actions: Any) -> Tuple[Any, Any, Any, Any, Dict[str, Any]]:
        taken = [episodes.action(action) for episodes, action in zip(self._episodes, iterate(self.action_space, actions))]
        observations, rewards, terminations, truncations, infos = super().step(actions)
        last = self._last_observations(infos)
        for number, observation in enumerate(iterate(self.observation_space, observations)):
            episodes = self._episodes[number]
            if self._resets[number]:
                episodes.begin(observation)
                continue
            episodes.add(taken[number], rewards[number], last[number] if last[number] is not None else observation, terminations[number],
                         truncations[number])
            if last[number] is not None:
                episodes.begin(observation)
        self._resets = (terminations | truncations) & (self._mode == AutoresetMode.NEXT_STEP)
        return observations, rewards, terminations, truncations, infos

    def _last_observations(self, infos: Dict[str, Any]) -> List[Any]:
        """Returns the last observation of each episode that ended in a step that also began the next one."""
        if self._mode != AutoresetMode.SAME_STEP or "final_obs" not in infos:
            return [None] * self.num_envs
        return [observation if ended else None for observation, ended in zip(infos["final_obs"], infos["_final_obs"])]

    def close(self, **options: Any) -> None:
        for episodes in self._episodes:
            episodes.cut()
        super().close(**options)
