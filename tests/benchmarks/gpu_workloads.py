"""The workloads of `gpu`: those of `peers` in sizes that fill a GPU, and tiny ones that prove the program on a
processor. Needs torch and numpy."""

import torch
from torch import nn

import python_twins
import workloads

TINY = {"hidden": 32, "batch": 16, "latent": 16}


class Positions(nn.Embedding):
    """Gives its first rows, without the tensor of positions, which the twin makes on the processor."""

    def forward(self, positions):
        return self.weight[: len(positions)]


class Diffusion(python_twins.Diffusion):
    """Draws on the processor, as genesis-worker does, and computes where its weights are."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.time_embedding.register_forward_pre_hook(
            lambda layers, inputs: (inputs[0].to(layers[0].weight.device, non_blocking=True),))

    def loss(self, fields, autocast):
        image = fields["image"]
        steps = torch.randint(self.steps, (len(image),))
        noise = torch.randn(image.shape).to(image.device, non_blocking=True)
        signal = self.alphas_cumprod[steps.to(image.device, non_blocking=True)].view(-1, 1, 1, 1)
        maps = signal.sqrt() * image + (1 - signal).sqrt() * noise
        with autocast:
            predicted = self(maps, steps)
        return nn.functional.mse_loss(predicted.float(), noise)


class Text(workloads.Text):
    """GPT-2 124M, the vocabulary filled up to a multiple of 64."""

    vocabulary, context, layers, heads, width, batch = 50304, 1024, 12, 12, 768, 8

    def twin(self):
        twin = super().twin()
        twin.position_embedding = Positions(self.context, self.width,
                                            _weight=twin.position_embedding.weight.detach())
        return twin


class TinyText(Text):
    vocabulary, context, layers, heads, width, batch = 128, 16, 2, 2, 32, 4


class Maps(workloads.Maps):
    size = 256

    def twin(self):
        torch.manual_seed(workloads.SEED)
        return Diffusion(1, 0, self.channels, self.multipliers, self.steps)


class TinyMaps(Maps):
    size, channels, multipliers, batch = 16, 8, [1, 2], 2


def by_name(device):
    """{name: what makes it in a folder}, in the sizes for that device."""
    if device == "cpu":
        return {"world_model small": lambda folder: workloads.World(folder, **TINY),
                "world_model large": lambda folder: workloads.World(folder, **{**TINY, "hidden": 64}),
                "transformer": TinyText, "radio_unet": TinyMaps,
                "torchscript": lambda folder: workloads.Scripted(folder, **TINY)}
    return {**workloads.WORKLOADS, "transformer": Text, "radio_unet": Maps}
