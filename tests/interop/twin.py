"""The world model, its data and its training loop in Python and torch, and helpers that run genesis-worker."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import torch
from torch import nn

from splitmix import SplitMix64

WORKER = os.environ["GENESIS_WORKER"]
SCALER_DRIVER = os.environ["GENESIS_SCALER_DRIVER"]
TRAJECTORIES = pathlib.Path(os.environ["GENESIS_TRAJECTORIES"])


def permutation(size, seed, epoch):
    """Returns the order of the examples in an epoch, as documented in trainer/data/batch_sampler.h."""
    random, order = SplitMix64(seed, epoch), list(range(size))
    for n in range(size, 1, -1):
        chosen = random.below(n)
        order[n - 1], order[chosen] = order[chosen], order[n - 1]
    return order


def batches(size, batch_size, seed):
    epoch = 0
    while True:
        order = torch.tensor(permutation(size, seed, epoch))
        for begin in range(0, size - batch_size + 1, batch_size):
            yield order[begin : begin + batch_size]
        epoch += 1


class Dataset:
    """The transitions of an .npz file. The last fraction `holdout` of the episodes is held out."""

    def __init__(self, path, holdout=0.1):
        arrays = dict(numpy.load(path))
        self.observation = torch.tensor(arrays["observations"])
        self.action = torch.tensor(arrays["actions"]).reshape(len(self.observation), -1)
        self.next_observation = torch.tensor(arrays["next_observations"])
        self.change = self.next_observation - self.observation
        self.reward = torch.tensor(arrays["rewards"]).reshape(-1, 1)
        self.done = torch.tensor(arrays["terminals"]).float().reshape(-1, 1)
        ends = numpy.flatnonzero(arrays["terminals"] | arrays["timeouts"]) + 1
        held_out = max(1, round(holdout * len(ends)))
        self.training_size = int(ends[len(ends) - held_out - 1])

    def to(self, device):
        for name in ("observation", "action", "next_observation", "change", "reward", "done"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def statistics(self, name):
        values = getattr(self, name)[: self.training_size].double()
        mean, deviation = values.mean(0), values.std(0, correction=0)
        if name == "change":
            observation = self.observation[: self.training_size].double()
            size, unit = observation.square().mean(0).sqrt(), observation.std(0, correction=0)
            unit = torch.where(unit <= 2**-22 * size, 1, unit)
        else:
            size, unit = torch.hypot(mean, deviation), torch.ones_like(mean)
        return mean.float(), torch.where(deviation <= 2**-22 * size, unit, deviation).float()


def layers(*sizes):
    parts = []
    for size, following in zip(sizes, sizes[1:]):
        parts += [nn.Linear(size, following), nn.SiLU()]
    return nn.Sequential(*parts[:-1])


class WorldModel(nn.Module):
    def __init__(self, observation, action, hidden, latent):
        super().__init__()
        self.encoder = layers(observation, hidden, latent)
        self.dynamics = layers(latent + action, hidden, hidden, latent)
        self.change_head = layers(latent, hidden, observation)
        self.reward_head = layers(latent, hidden, 1)
        self.done_head = layers(latent, hidden, 1)
        for name, size in (("observation", observation), ("action", action),
                           ("change", observation), ("reward", 1)):
            self.register_buffer(name + "_mean", torch.zeros(size))
            self.register_buffer(name + "_std", torch.ones(size))

    def take_statistics(self, dataset):
        for name in ("observation", "action", "change", "reward"):
            mean, deviation = dataset.statistics(name)
            getattr(self, name + "_mean").copy_(mean)
            getattr(self, name + "_std").copy_(deviation)

    def heads(self, observation, action):
        latent = self.encoder((observation - self.observation_mean) / self.observation_std)
        action = (action - self.action_mean) / self.action_std
        following = latent + self.dynamics(torch.cat([latent, action], 1))
        return (self.change_head(following), self.reward_head(following),
                self.done_head(following))

    def forward(self, observation, action):
        change, reward, done = self.heads(observation, action)
        return (observation + change * self.change_std + self.change_mean,
                reward * self.reward_std + self.reward_mean, done)

    def loss(self, dataset, rows):
        change, reward, done = self.heads(dataset.observation[rows], dataset.action[rows])
        wanted_change = (dataset.change[rows] - self.change_mean) / self.change_std
        wanted_reward = (dataset.reward[rows] - self.reward_mean) / self.reward_std
        return (nn.functional.mse_loss(change, wanted_change)
                + nn.functional.mse_loss(reward, wanted_reward)
                + nn.functional.binary_cross_entropy_with_logits(done, dataset.done[rows]))


def job_file(folder, dataset="pendulum.npz", **settings):
    """Writes a small job and returns its path. `settings` overrides values by section."""
    job = {
        "model": {"world_model": {"hidden_size": 32, "latent_size": 16}},
        "dataset": {"trajectories": {"path": str(TRAJECTORIES / dataset)}},
        "training": {"max_steps": 50, "batch_size": 64, "seed": 3},
    }
    for section, values in settings.items():
        job.setdefault(section, {}).update(values)
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text(json.dumps(job))  # JSON is valid YAML.
    return path


def run_worker(job, checkpoints, *flags, environment=None):
    """Runs a job file with genesis-worker. Returns the records of its steps, and its output."""
    telemetry = pathlib.Path(checkpoints) / "telemetry.jsonl"
    done = subprocess.run(
        [WORKER, "--spec", job, "--checkpoint-dir", checkpoints, "--telemetry", telemetry,
         "--threads", "1", *flags],
        capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in telemetry.read_text().splitlines()], done.stdout


def newest_checkpoint(folder):
    return max(pathlib.Path(folder).glob("*.pt"))


class PendulumTest(unittest.TestCase):
    """A test with the pendulum's transitions and a folder of its own, in which Python computes with one thread as the worker does."""

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.dataset = Dataset(TRAJECTORIES / "pendulum.npz")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
