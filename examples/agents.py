#!/usr/bin/env python3
"""Agents that act with the world model that learns from them: python agents.py [--agents N] [--episodes N] [--seed N]

One job of the daemon that GENESIS_SERVER names follows a replay buffer of Pendulum-v1. Each agent plans with the newest weights (cross-entropy
method, Chua et al., 2018), records what happens into the buffer, and reports its returns to the job."""

import argparse
import multiprocessing
import tempfile
import time

import gymnasium
import torch
from torch import nn

import genesis

HORIZON, PLANS, BEST, ROUNDS = 20, 256, 24, 4


class Model(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4))

    def forward(self, observation, action):
        """Returns the change of the observation, and the reward."""
        return self.layers(torch.cat([observation, action], -1)).split([3, 1], -1)


def loss(model, batch):
    change, reward = model(batch["observation"], batch["action"])
    return 10 * nn.functional.mse_loss(change, batch["change"]) + 0.02 * nn.functional.mse_loss(reward, batch["reward"])


@torch.no_grad()
def plan(model, observation, mean):
    """Returns the mean of the best plans [HORIZON, 1], whose first action is the next one."""
    spread = torch.ones_like(mean)
    for _ in range(ROUNDS):
        plans = (mean + spread * torch.randn(PLANS, HORIZON, 1)).clamp(-2, 2)
        at, earned = torch.tensor(observation).expand(PLANS, -1), torch.zeros(PLANS, 1)
        for action in plans.unbind(1):
            change, reward = model(at, action)
            at, earned = at + change, earned + reward
        best = plans[earned[:, 0].topk(BEST).indices]
        mean, spread = best.mean(0), best.std(0) + 0.05
    return mean


def act(job_id, agent, episodes):
    torch.set_num_threads(1)
    torch.manual_seed(agent)
    client, model = genesis.Client(), Model()
    env, job = client.record(gymnasium.make("Pendulum-v1"), job_id), client.job(job_id)
    weights = job.weights(interval=0.2)
    for episode in range(episodes):
        version = next(weights)  # The newest.
        version.load_into(model)
        observation, _ = env.reset(seed=1000 * agent + 500 + episode)
        mean, earned, ended = torch.zeros(HORIZON, 1), 0.0, False
        while not ended:
            mean = plan(model, observation, mean)
            observation, reward, terminated, ended, _ = env.step(mean[0].numpy())
            mean, earned = torch.cat([mean[1:], torch.zeros(1, 1)]), earned + float(reward)
        job.report({"return": earned}, step=version.step)
        print(f"{time.strftime('%H:%M:%S')} agent {agent}, weights of step {version.step}: return {earned:.0f}", flush=True)
    env.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=8, help="of each agent")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    job_id = f"agents-{int(time.time())}"
    torch.manual_seed(arguments.seed)
    with genesis.Client() as client, tempfile.TemporaryDirectory() as folder:
        with client.record(gymnasium.make("Pendulum-v1"), job_id) as env:
            for episode in range(2):  # Random actions, to begin with.
                env.reset(seed=1000 * arguments.seed + episode)
                while not env.step(env.action_space.sample())[3]:
                    pass
        examples = {name: torch.randn(8, size) for name, size in (("observation", 3), ("action", 1), ("change", 3), ("reward", 1), ("done", 1))}
        file = genesis.export(Model(), examples, f"{folder}/model.pt2", loss=loss, precisions=["FP32"])
        job = client.submit({
            "model": {"exported": {"path": client.upload(file)}}, "precision": {"mode": "FP32"}, "optimizer": {"learning_rate": 1e-3},
            "dataset": {"replay": {"path": job_id, "follow": True, "samples_per_insert": 512}},
            "training": {"max_steps": 1_000_000, "batch_size": 256}, "checkpoint": {"every_steps": 1000}}, job_id=job_id)
        while not job.refresh().progress.step:
            time.sleep(0.1)
        agents = [multiprocessing.Process(target=act, args=(job_id, 100 * arguments.seed + agent, arguments.episodes))
                  for agent in range(arguments.agents)]
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.join()
        job.cancel()
    raise SystemExit(any(agent.exitcode for agent in agents))


if __name__ == "__main__":
    main()
