"""Evaluates a world model's checkpoint on simulated businesses in Python and torch, without the daemon and the worker."""

import torch
from torch.nn import functional

import business_creation as creation

# Tolerance of sums over the same numbers in another order.
TOLERANCE = 1e-4


def held_out_count(episodes, fraction):
    """Returns the number of episodes that are held out, which are the newest."""
    return min(max(1, round(fraction * episodes)), episodes - 1)


def lives(seeds):
    """Returns observations, actions and next observations of all weeks of these businesses."""
    recordings = [creation.live(seed) for seed in seeds]

    def column(name, width):
        values = [value for recording in recordings for value in getattr(recording, name)]
        return torch.tensor(values, dtype=torch.float32).reshape(-1, width)

    return (column("observations", len(creation.OBSERVATION)), column("actions", len(creation.ACTION)),
            column("next_observations", len(creation.OBSERVATION)))


def layers(weights, name, values):
    """Applies the linear layers `name`.0, .2, ... with SiLU between them."""
    numbers = sorted({int(key.split(".")[1]) for key in weights if key.startswith(name + ".")})
    for number in numbers:
        values = functional.linear(values, weights[f"{name}.{number}.weight"], weights[f"{name}.{number}.bias"])
        if number != numbers[-1]:
            values = functional.silu(values)
    return values


def predict(weights, observation, action):
    latent = layers(weights, "encoder", (observation - weights["observation_mean"]) / weights["observation_std"])
    action = (action - weights["action_mean"]) / weights["action_std"]
    latent = latent + layers(weights, "dynamics", torch.cat([latent, action], 1))
    return observation + layers(weights, "change_head", latent) * weights["change_std"] + weights["change_mean"]


class HeldOut:
    """The three errors of HeldOutError, in units of the variance over the training businesses."""

    def __init__(self, checkpoint, seeds, fraction):
        """`seeds` are those of the businesses in the buffer, the oldest first."""
        seeds = list(seeds)
        kept = len(seeds) - held_out_count(len(seeds), fraction)
        seen, _, seen_next = lives(seeds[:kept])
        observation, action, following = lives(seeds[kept:])
        deviation = seen.double().std(0, correction=0).float()
        weights = torch.load(checkpoint, map_location="cpu")["model_state_dict"]

        def error(guess):
            return ((guess - following) / deviation).double().square().mean().item()

        self.transitions = len(following)
        self.model = error(predict(weights, observation, action))
        self.persistence = error(observation)
        self.mean = error(seen_next.double().mean(0).float())
        # How far the means stored in the model are from those of its training businesses.
        self.mean_distance = (weights["observation_mean"] - seen.double().mean(0).float()).abs().max().item()
