"""The workloads of `gpu`: those of `peers` in sizes that fill a GPU, and tiny ones that test the program on a CPU. Needs torch and
numpy."""

import workloads

TINY = {"hidden": 32, "batch": 16, "latent": 16}


class Text(workloads.Text):
    """GPT-2 124M, with the vocabulary padded to a multiple of 64."""

    vocabulary, context, layers, heads, width, batch = 50304, 1024, 12, 12, 768, 8


class TinyText(Text):
    vocabulary, context, layers, heads, width, batch = 128, 16, 2, 2, 32, 4


class Maps(workloads.Maps):
    size = 256


class TinyMaps(Maps):
    size, channels, multipliers, batch = 16, 8, [1, 2], 2


def by_name(device):
    """Returns {name: function that builds the workload in a folder}, in sizes for that device."""
    if device == "cpu":
        return {"world_model small": lambda folder: workloads.World(folder, **TINY),
                "world_model large": lambda folder: workloads.World(folder, **{**TINY, "hidden": 64}),
                "transformer": TinyText, "radio_unet": TinyMaps,
                "exported": lambda folder: workloads.Exported(folder, **TINY)}
    return {**workloads.WORKLOADS, "transformer": Text, "radio_unet": Maps}
