"""Twin of trainer/models/builtin/latent_world_model.h."""

import torch
from torch import nn
from torch.nn import functional as F


def layers(*sizes):
    parts = []
    for size, following in zip(sizes, sizes[1:]):
        parts += [nn.Linear(size, following), nn.SiLU()]
    return nn.Sequential(*parts[:-1])


class Member(nn.Module):
    def __init__(self, observation, action, hidden, latent, gru):
        super().__init__()
        self.encoder = layers(observation, hidden, latent)
        self.dynamics = (nn.GRUCell(action, latent) if gru
                         else layers(latent + action, hidden, hidden, latent))
        self.change_head = layers(latent, hidden, observation)
        self.reward_head = layers(latent, hidden, 1)
        self.done_head = layers(latent, hidden, 1)

    def advance(self, latent, action):
        if isinstance(self.dynamics, nn.GRUCell):
            return self.dynamics(action.to(latent.dtype), latent)
        return latent + self.dynamics(torch.cat([latent, action.to(latent.dtype)], 1))

    def heads(self, observation, actions):
        latent = self.encoder(observation)
        latents = []
        for action in actions.unbind(1):
            latent = self.advance(latent, action)
            latents.append(latent)
        latents = torch.stack(latents, 1)
        return self.change_head(latents), self.reward_head(latents), self.done_head(latents)


class WorldModel(Member):
    """A world model, or an ensemble of `members` of them. Fields are [B, H, columns], or [B, columns] for a single step."""

    def __init__(self, observation, action, hidden, latent, gru=False, members=1):
        nn.Module.__init__(self)
        sizes = (observation, action, hidden, latent, gru)
        if members == 1:
            Member.__init__(self, *sizes)
        else:
            self.members = nn.ModuleList(Member(*sizes) for _ in range(members))
        for name, size in (("observation", observation), ("action", action),
                           ("change", observation), ("reward", 1)):
            self.register_buffer(name + "_mean", torch.zeros(size))
            self.register_buffer(name + "_std", torch.ones(size))

    def normal(self, name, values):
        return (values - getattr(self, name + "_mean")) / getattr(self, name + "_std")

    def predictions(self, fields):
        """Returns for each member: change, reward and logit of done, each [B, H, columns]."""
        observation = self.normal("observation", fields["observation"][:, 0])
        actions = self.normal("action", fields["action"])
        format = next(self.parameters()).dtype
        return [member.heads(observation.to(format), actions)
                for member in (self.members if hasattr(self, "members") else [self])]

    @staticmethod
    def rollouts(fields):
        return {name: value if value.dim() == 3 else value.unsqueeze(1)
                for name, value in fields.items()}

    def loss(self, fields, autocast):
        fields = self.rollouts(fields)
        with autocast:
            members = self.predictions(fields)
        losses = [
            F.mse_loss(change.float(), self.normal("change", fields["change"]))
            + F.mse_loss(reward.float(), self.normal("reward", fields["reward"]))
            + F.binary_cross_entropy_with_logits(done.float(), fields["done"])
            for change, reward, done in members]
        return sum(losses) / len(losses)

    def metrics(self, fields):
        """Returns means over the batch. The C++ model's Evaluate returns sums."""
        fields = self.rollouts(fields)
        change = torch.stack([heads[0] for heads in self.predictions(fields)]).mean(0)
        change = change * self.change_std + self.change_mean
        first = fields["observation"][:, :1]
        following = fields["observation"] + fields["change"]
        mean = following.flatten(0, 1).mean(0)

        def error(predicted):
            return ((predicted - following) / self.observation_std).square().mean()

        return {"observation_error": error(first + change.cumsum(1)),
                "persistence_error": error(first), "mean_error": error(mean)}
