#!/usr/bin/env python3
"""Records Pendulum-v1 and CartPole-v1 under a seeded uniform random policy.

    python3 record.py [--out FOLDER] [--transitions N]

Writes pendulum.npz and cartpole.npz: whole episodes in time order, in the arrays of D4RL
(observations, actions, rewards, next_observations, terminals, timeouts). The same versions of
Python packages and zlib write the same bytes. README.md says which versions wrote the files beside.
"""

import argparse
import hashlib
import pathlib

import gymnasium
import numpy as np

SEED = 20240
RECORDINGS = {"pendulum": "Pendulum-v1", "cartpole": "CartPole-v1"}


def record(environment_id: str, transitions: int) -> dict[str, np.ndarray]:
    """Plays whole episodes until at least `transitions` transitions are recorded."""
    environment = gymnasium.make(environment_id)
    environment.action_space.seed(SEED)
    columns = {
        name: []
        for name in (
            "observations", "actions", "rewards", "next_observations", "terminals", "timeouts"
        )
    }
    episode = 0
    while len(columns["rewards"]) < transitions:
        observation, _ = environment.reset(seed=SEED + episode)
        episode += 1
        ended = False
        while not ended:
            action = environment.action_space.sample()
            following, reward, terminated, truncated, _ = environment.step(action)
            columns["observations"].append(observation)
            columns["actions"].append(np.atleast_1d(action))
            columns["rewards"].append(reward)
            columns["next_observations"].append(following)
            columns["terminals"].append(terminated)
            columns["timeouts"].append(truncated)
            observation = following
            ended = terminated or truncated
    environment.close()
    flags = ("terminals", "timeouts")
    return {
        name: np.asarray(values, dtype=bool if name in flags else np.float32)
        for name, values in columns.items()
    }


def main() -> None:
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=here, help="folder (default: this one)")
    parser.add_argument("--transitions", type=int, default=20000, help="at least so many per file")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"gymnasium {gymnasium.__version__}, numpy {np.__version__}, seed {SEED}")
    for name, environment_id in RECORDINGS.items():
        arrays = record(environment_id, options.transitions)
        path = options.out / f"{name}.npz"
        np.savez_compressed(path, **arrays)
        episodes = int((arrays["terminals"] | arrays["timeouts"]).sum())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path.name}: {len(arrays['rewards'])} transitions, {episodes} episodes, "
              f"{path.stat().st_size} bytes, sha256 {digest}")
        for key, array in arrays.items():
            print(f"  {key} {array.shape} {array.dtype}")


if __name__ == "__main__":
    main()
