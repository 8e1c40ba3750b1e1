"""The jobs of the cases."""

import os

from machine import ON_CUDA

TRAJECTORIES = os.environ["GENESIS_TRAJECTORIES"]


def world_model(steps=200, batch=256, hidden=64, **more):
    """Returns a job on recorded Pendulum trajectories."""
    return {
        "model": {"world_model": {"hidden_size": hidden, "latent_size": 16, **more}},
        "dataset": {"trajectories": {"path": f"{TRAJECTORIES}/pendulum.npz"}},
        "training": {"max_steps": steps, "batch_size": batch, "seed": 3},
        "optimizer": {"learning_rate": 3e-3},
    }


def transformer(layers, width, context, batch, steps, vocabulary=64):
    return {
        "model": {"transformer": {"vocabulary_size": vocabulary, "context_length": context,
                                  "layers": layers, "heads": width // 64 or 1,
                                  "embedding_size": width}},
        "dataset": {"synthetic": {"tokens": {"size": 64 * batch * context,
                                             "vocabulary_size": min(64, vocabulary)}}},
        "training": {"max_steps": steps, "batch_size": batch, "seed": 3},
        "optimizer": {"learning_rate": 1e-3},
    }


def small_transformer():
    if ON_CUDA:
        return transformer(layers=4, width=256, context=128, batch=32, steps=200)
    return transformer(layers=2, width=64, context=32, batch=16, steps=80)


def large_transformer():
    """Returns a job in which activations, and not weights and optimizer, fill the memory."""
    if ON_CUDA:
        return transformer(layers=8, width=512, context=512, batch=32, steps=120, vocabulary=1024)
    return transformer(layers=2, width=64, context=64, batch=8, steps=24)


def radio_unet(part):
    size, channels, batch, steps = (64, 64, 32, 100) if ON_CUDA else (16, 8, 8, 40)
    return {
        "model": {"radio_unet": {"part": part, "base_channels": channels,
                                 "channel_multipliers": [1, 2]}},
        "dataset": {"synthetic": {"maps": {"maps": 16 * batch, "size": size}}},
        "training": {"max_steps": steps, "batch_size": batch, "seed": 3, "max_grad_norm": 0.5},
        "optimizer": {"learning_rate": 1e-3},
    }
