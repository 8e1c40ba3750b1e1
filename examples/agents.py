#!/usr/bin/env python3
"""Agents that act with the world model that learns from them: python agents.py [--env ID] [--agents N] [--episodes N] [--samples-per-insert N] [--seed N]

One job of the daemon that GENESIS_SERVER names follows a replay buffer of the environment. Each agent plans with the predictions of the newest weights
(cross-entropy method, Chua et al., 2018), records what happens into the buffer, and reports its returns to the job."""

import argparse
import concurrent.futures
import time

import genesis
import gymnasium
import numpy

HORIZON, PLANS, BEST, ROUNDS = 20, 128, 12, 3
MODEL = {"hidden_size": 64, "latent_size": 32, "rollout_steps": 4}
RANDOM_STEPS = 400  # Before the job begins.


def make(name):
    env = gymnasium.make(name)
    if not isinstance(env.action_space, (gymnasium.spaces.Discrete, gymnasium.spaces.Box)) or len(env.observation_space.shape or ()) != 1:
        raise SystemExit(f"{name} has actions of {env.action_space} and observations of {env.observation_space}; accepted: Box or Discrete, and vectors")
    return env


def actions_of(space, plans):
    """Returns plans as actions of the environment, one-hot if they are discrete."""
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    return numpy.eye(space.n, dtype="float32")[plans.argmax(-1)] if discrete else plans.clip(space.low.ravel(), space.high.ravel())


def plan(predict, observation, mean, space, random):
    """Returns the mean of the best plans [HORIZON, A], whose first action is the next one."""
    spread = numpy.ones_like(mean)
    for _ in range(ROUNDS):
        plans = mean + spread * random.standard_normal((PLANS, *mean.shape), dtype="float32")
        found = predict({"observation": observation[None], "action": actions_of(space, plans)})
        alive = (1 - found["done"]).cumprod(1)  # The probability that the episode has not ended.
        best = plans[(found["reward"] * alive).sum((1, 2)).argpartition(-BEST)[-BEST:]]
        mean, spread = best.mean(0), best.std(0) + 0.05
    return mean


def episode(env, predict, random, seed):
    """Plays one episode. Returns the sum of its rewards."""
    mean = numpy.zeros((HORIZON, gymnasium.spaces.flatdim(env.action_space)), "float32")
    observation, _ = env.reset(seed=seed)
    earned, ended = 0.0, False
    while not ended:
        mean = plan(predict, observation, mean, env.action_space, random)
        action = gymnasium.spaces.unflatten(env.action_space, actions_of(env.action_space, mean[0]))
        observation, reward, terminated, truncated, _ = env.step(action)
        mean = numpy.concatenate([mean[1:], 0 * mean[:1]])
        earned, ended = earned + float(reward), terminated or truncated
    return earned


def act_at_random(env, seed):
    env.action_space.seed(seed)
    ended, taken = True, 0
    while taken < RANDOM_STEPS or not ended:
        if ended:
            env.reset(seed=1000 * seed + taken)
        ended, taken = any(env.step(env.action_space.sample())[2:4]), taken + 1


def act(options, job_id, agent):
    client, random = genesis.Client(), numpy.random.default_rng(agent)
    env, job = client.record(make(options.env), job_id), client.job(job_id)
    for number in range(options.episodes):
        while job.refresh().progress.samples_per_insert < 0.8 * options.samples_per_insert:  # Do not outrun the learner.
            if job.ended:
                raise SystemExit(f"job {job_id} is {job.state}: {job.message.failure.message}")
            time.sleep(0.1)
        earned = episode(env, job.predict, random, 1000 * agent + 500 + number)
        job.report({"return": earned}, step=job.refresh().progress.step)
        print(f"{time.strftime('%H:%M:%S')} agent {agent}, step {job.progress.step}: return {earned:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("env", "Pendulum-v1"), ("agents", 2), ("episodes", 8), ("samples-per-insert", 512), ("seed", 0)):
        parser.add_argument(f"--{name}", default=default, type=type(default), help="default: %(default)s")
    options = parser.parse_args()
    job_id = f"agents-{int(time.time())}"
    with genesis.Client() as client, concurrent.futures.ProcessPoolExecutor(options.agents) as agents:
        with client.record(make(options.env), job_id) as env:
            act_at_random(env, options.seed)
        job = client.submit({
            "model": {"world_model": MODEL}, "precision": {"mode": "FP32"}, "optimizer": {"learning_rate": 1e-3},
            "dataset": {"replay": {"path": job_id, "follow": True, "samples_per_insert": options.samples_per_insert}},
            "training": {"max_steps": 1_000_000, "batch_size": 256}, "checkpoint": {"every_steps": 1000}}, job_id=job_id)
        acting = [agents.submit(act, options, job_id, 100 * options.seed + number) for number in range(options.agents)]
        try:
            for each in acting:
                each.result()
        finally:
            if not job.refresh().ended:
                job.cancel()


if __name__ == "__main__":
    main()
