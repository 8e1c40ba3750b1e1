"""The workloads of `peers`: for each the job of genesis-worker, its data and weights in files, and the same model in Python. Needs torch
and numpy."""

import contextlib
import json
import pathlib

import numpy
import torch
from torch import nn

import python_package
import python_twins

SEED = 7
HELD_OUT = 0.01
OBSERVATION, ACTION = 16, 4


class Workload:
    """Base class of workloads. `examples` returns all training examples as tensors by field, and `twin` the module with
    loss(fields, autocast)."""

    convolutions = False

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def job(self):
        return {"model": self.model(), "dataset": {**self.dataset()},
                "training": {"batch_size": self.batch, "seed": SEED, "max_grad_norm": 1.0},
                "optimizer": {"learning_rate": self.learning_rate}}


class World(Workload):
    """A world model of a random system, whose next state is tanh of a linear map of state and action, with 256 episodes of 64 steps."""

    episodes, length, latent, learning_rate = 256, 64, 64, 1e-3

    def __init__(self, folder, hidden=256, batch=128, latent=64):
        super().__init__(folder)
        self.hidden, self.batch, self.latent = hidden, batch, latent

    def model(self):
        return {"world_model": {"hidden_size": self.hidden, "latent_size": self.latent}}

    def dataset(self):
        return {"trajectories": {"path": str(self.folder / "transitions.npz"),
                                 "holdout_fraction": HELD_OUT}}

    def write_data(self):
        generator = numpy.random.default_rng(SEED)
        shape = (self.episodes, self.length)
        dynamics = generator.normal(size=(OBSERVATION, OBSERVATION)) * 0.2
        control = generator.normal(size=(ACTION, OBSERVATION)) * 0.3
        actions = generator.uniform(-1, 1, (*shape, ACTION))
        states = numpy.empty((self.episodes, self.length + 1, OBSERVATION))
        states[:, 0] = generator.uniform(-1, 1, (self.episodes, OBSERVATION))
        for step in range(self.length):
            states[:, step + 1] = numpy.tanh(states[:, step] @ dynamics + actions[:, step] @ control)
        last = numpy.zeros(shape, bool)
        last[:, -1] = True
        numpy.savez(self.folder / "transitions.npz",
                    observations=states[:, :-1].reshape(-1, OBSERVATION).astype("float32"),
                    next_observations=states[:, 1:].reshape(-1, OBSERVATION).astype("float32"),
                    actions=actions.reshape(-1, ACTION).astype("float32"),
                    rewards=(1 - (states[:, 1:] ** 2).mean(2)).reshape(-1).astype("float32"),
                    terminals=last.reshape(-1), timeouts=numpy.zeros(last.size, bool))

    def _dataset(self):
        return python_twins.Dataset(self.folder / "transitions.npz", HELD_OUT)

    def examples(self):
        data = self._dataset()
        return {name: getattr(data, name)[: data.training_size].contiguous()
                for name in ("observation", "action", "change", "reward", "done")}

    def twin(self):
        torch.manual_seed(SEED)
        twin = python_twins.WorldModel(OBSERVATION, ACTION, self.hidden, self.latent)
        data = self._dataset()
        for name in ("observation", "action", "change", "reward"):
            mean, deviation = data.statistics(name)
            getattr(twin, name + "_mean").copy_(mean)
            getattr(twin, name + "_std").copy_(deviation)
        return twin


class OwnLoss(nn.Module):
    """A user's module whose forward returns the loss."""

    def __init__(self, twin):
        super().__init__()
        self.encoder, self.dynamics = twin.encoder, twin.dynamics
        self.change_head, self.reward_head = twin.change_head, twin.reward_head
        self.done_head = twin.done_head

    def forward(self, observation, action, change, reward, done):
        latent = self.encoder(observation)
        latent = latent + self.dynamics(torch.cat([latent, action], 1))
        functional = nn.functional
        return (functional.mse_loss(self.change_head(latent).float(), change)
                + functional.mse_loss(self.reward_head(latent).float(), reward)
                + functional.binary_cross_entropy_with_logits(self.done_head(latent).float(), done))


class ByFields(nn.Module):
    """OwnLoss with the interface of the twins."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def loss(self, fields, autocast):
        with autocast:
            return self.module(*(fields[name] for name in Exported.FIELDS))


class Exported(World):
    """The small world model as a user's module: an exported file, and arrays that are normalized in advance."""

    FIELDS = ("observation", "action", "change", "reward", "done")

    def model(self):
        return {"exported": {"path": str(self.folder / "module.pt2")}}

    def dataset(self):
        return {"arrays": {"path": str(self.folder / "arrays.npz"), "holdout_fraction": HELD_OUT}}

    def _normal(self):
        data = self._dataset()
        arrays = {}
        for name in self.FIELDS:
            values = getattr(data, name)
            if name != "done":
                mean, deviation = data.statistics(name)
                values = (values - mean) / deviation
            arrays[name] = values.float().contiguous()
        return arrays

    def write_data(self):
        super().write_data()
        numpy.savez(self.folder / "arrays.npz",
                    **{name: values.numpy() for name, values in self._normal().items()})
        python_package.make_importable(self.folder)
        import genesis
        genesis.export(self.twin().module, {name: values[:self.batch] for name, values in self.examples().items()},
                       self.folder / "module.pt2", precisions=["FP32", "MIXED_BF16", "MIXED_FP16"])

    def examples(self):
        arrays = self._normal()
        count = len(arrays["done"])
        kept = count - max(1, int(HELD_OUT * count + 0.5))
        return {name: values[:kept] for name, values in arrays.items()}

    def twin(self):
        return ByFields(OwnLoss(super().twin()))


class Text(Workload):
    """A language model on a Markov chain in which each token has four possible successors."""

    vocabulary, context, layers, heads, width, batch = 4096, 128, 6, 6, 384, 4
    learning_rate = 3e-4

    def model(self):
        return {"transformer": {"vocabulary_size": self.vocabulary, "context_length": self.context,
                                "layers": self.layers, "heads": self.heads,
                                "embedding_size": self.width}}

    def dataset(self):
        return {"tokens": {"path": str(self.folder / "text.tokens"), "holdout_fraction": HELD_OUT}}

    def write_data(self):
        generator = numpy.random.default_rng(SEED)
        followers = generator.integers(0, self.vocabulary, (self.vocabulary, 4))
        tokens = numpy.empty(256 * self.context + 1, "<u2")
        tokens[0] = 0
        choices = generator.integers(0, 4, len(tokens))
        for i in range(1, len(tokens)):
            tokens[i] = followers[tokens[i - 1], choices[i]]
        tokens.tofile(self.folder / "text.tokens")

    def examples(self):
        tokens = torch.from_numpy(
            numpy.fromfile(self.folder / "text.tokens", "<u2").astype("int64"))
        count = (len(tokens) - 1) // self.context
        kept = count - max(1, int(HELD_OUT * count + 0.5))
        return {"tokens": tokens.unfold(0, self.context + 1, self.context)[:kept].contiguous()}

    def twin(self):
        return python_twins.Transformer(self.vocabulary, self.context, self.layers, self.heads,
                                        self.width, False, SEED)


class Maps(Workload):
    """The diffusion U-Net on smooth random maps with one channel, without a condition."""

    channels, multipliers, steps, size, batch = 64, [1, 2, 4], 1000, 64, 8
    learning_rate = 1e-4
    convolutions = True

    def model(self):
        return {"radio_unet": {"part": "DIFFUSION", "base_channels": self.channels,
                               "channel_multipliers": self.multipliers,
                               "diffusion_steps": self.steps}}

    def dataset(self):
        return {"arrays": {"path": str(self.folder / "maps.npz"), "holdout_fraction": HELD_OUT}}

    def write_data(self):
        generator = numpy.random.default_rng(SEED)
        coarse = torch.from_numpy(generator.uniform(-1, 1, (64, 1, 8, 8)).astype("float32"))
        maps = nn.functional.interpolate(coarse, size=(self.size, self.size), mode="bilinear")
        numpy.savez(self.folder / "maps.npz", image=maps.numpy())

    def examples(self):
        image = torch.from_numpy(numpy.load(self.folder / "maps.npz")["image"])
        return {"image": image[: len(image) - max(1, int(HELD_OUT * len(image) + 0.5))]}

    def twin(self):
        torch.manual_seed(SEED)
        return python_twins.Diffusion(1, 0, self.channels, self.multipliers, self.steps)


WORKLOADS = {
    "world_model small": World,
    "world_model large": lambda folder: World(folder, 2048, 512),
    "transformer": Text,
    "radio_unet": Maps,
    "exported": Exported,
}


def operations(workload, device):
    """Returns the number of floating-point operations of forward and backward of a step of the twin, and its number of parameters.

    On the device "meta" nothing is computed, and attention counts as its matrix products."""
    from torch.utils.flop_counter import FlopCounterMode
    fields = {name: values[: workload.batch].to(device) for name, values in workload.examples().items()}
    twin = workload.twin()
    parameters = sum(p.numel() for p in twin.parameters())
    twin.to(device)
    with FlopCounterMode(display=False) as counter:
        twin.loss(fields, contextlib.nullcontext()).backward()
    return counter.get_total_flops(), parameters


def prepare(workload, device="cpu"):
    """Writes the data and the job of a workload. Returns its metadata for the report."""
    workload.folder.mkdir(parents=True, exist_ok=True)
    workload.write_data()
    (workload.folder / "job.json").write_text(json.dumps(workload.job()))
    counted, parameters = operations(workload, device)
    return {"operations": counted, "parameters": parameters,
            "convolutions": workload.convolutions, "batch": workload.batch}
