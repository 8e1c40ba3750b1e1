"""Twins of trainer/models/builtin/radio_unet.h."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def zero(layer):
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def convolution(inputs, outputs, size=3, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2)


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = convolution(inputs, outputs)
        if time:
            self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = zero(convolution(outputs, outputs))
        if inputs != outputs:
            self.skip = convolution(inputs, outputs, 1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x)))
        if hasattr(self, "time"):
            h = h + self.time(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return (self.skip(x) if hasattr(self, "skip") else x) + h


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.heads = channels // 64 if channels % 64 == 0 else 1
        self.norm = nn.GroupNorm(8, channels)
        self.query_key_value = nn.Linear(channels, 3 * channels)
        self.projection = zero(nn.Linear(channels, channels))

    def forward(self, x):
        batch, channels, height, width = x.shape
        rows = self.norm(x).flatten(2).transpose(1, 2)
        query, key, value = (
            part.reshape(batch, -1, self.heads, channels // self.heads).transpose(1, 2)
            for part in self.query_key_value(rows).chunk(3, 2))
        seen = F.scaled_dot_product_attention(query, key, value)
        h = self.projection(seen.transpose(1, 2).reshape(batch, -1, channels))
        return x + h.transpose(1, 2).reshape(x.shape)


class Level(nn.Module):
    def __init__(self, inputs, outputs, time, way):
        super().__init__()
        self.blocks = nn.ModuleList([ResidualBlock(inputs, outputs, time),
                                     ResidualBlock(outputs, outputs, time)])
        if way == "down":
            self.downsample = convolution(outputs, outputs, stride=2)
        if way == "up":
            self.upsample = convolution(outputs, outputs)

    def run(self, x, time):
        for block in self.blocks:
            x = block(x, time)
        return x

    def leave(self, x):
        if hasattr(self, "downsample"):
            return self.downsample(x)
        if hasattr(self, "upsample"):
            return self.upsample(F.interpolate(x, scale_factor=2, mode="nearest"))
        return x


class Middle(nn.Module):
    def __init__(self, channels, time):
        super().__init__()
        self.first = ResidualBlock(channels, channels, time)
        self.attention = Attention(channels)
        self.last = ResidualBlock(channels, channels, time)

    def forward(self, x, time):
        return self.last(self.attention(self.first(x, time)), time)


def down_levels(channels, time):
    last = len(channels) - 1
    return nn.ModuleList(Level(channels[max(i - 1, 0)], channels[i], time, "down" if i < last else "")
                         for i in range(len(channels)))


def up_levels(channels, time, skips):
    levels, inputs = [], channels[-1]
    for i in reversed(range(len(channels))):
        levels.append(Level(inputs + (channels[i] if skips else 0), channels[i], time,
                            "up" if i else ""))
        inputs = channels[i]
    return nn.ModuleList(levels)


def cosine_schedule(steps):
    def left(step):
        return math.cos((step / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1 - left(step + 1) / left(step), 0.999) for step in range(steps)]
    return torch.cumprod(1 - torch.tensor(betas, dtype=torch.float64), 0).float()


def drawn(fields, name, draw):
    """Returns random numbers from the batch if it has them, otherwise draws them with the CPU's generator, like the C++ model."""
    if name in fields:
        return fields[name]
    return draw().to(fields["image"].device, non_blocking=True)


class Diffusion(nn.Module):
    def __init__(self, maps, condition, base, multipliers, steps):
        super().__init__()
        channels, time = [base * m for m in multipliers], 4 * base
        self.base, self.steps = base, steps
        self.time_embedding = nn.Sequential(nn.Linear(base, time), nn.SiLU(),
                                            nn.Linear(time, time))
        self.input = convolution(maps + condition, channels[0])
        self.down = down_levels(channels, time)
        self.middle = Middle(channels[-1], time)
        self.up = up_levels(channels, time, skips=True)
        self.norm = nn.GroupNorm(8, channels[0])
        self.output = zero(convolution(channels[0], maps))
        self.register_buffer("alphas_cumprod", cosine_schedule(steps))

    def forward(self, maps, steps):
        half = self.base // 2
        angles = steps[:, None].float() * torch.exp(
            torch.arange(half, device=steps.device) * (-math.log(10000) / half))
        time = self.time_embedding(torch.cat([angles.sin(), angles.cos()], 1).to(maps.dtype))
        x, passed = self.input(maps), []
        for level in self.down:
            passed.append(level.run(x, time))
            x = level.leave(passed[-1])
        x = self.middle(x, time)
        for level in self.up:
            x = level.leave(level.run(torch.cat([x, passed.pop()], 1), time))
        return self.output(F.silu(self.norm(x)))

    def loss(self, fields, autocast):
        image = fields["image"].float()
        steps = drawn(fields, "step", lambda: torch.randint(self.steps, (len(image),)))
        noise = drawn(fields, "noise", lambda: torch.randn(image.shape))
        signal = self.alphas_cumprod[steps].view(-1, 1, 1, 1)
        maps = signal.sqrt() * image + (1 - signal).sqrt() * noise
        if "condition" in fields:
            maps = torch.cat([maps, fields["condition"].float()], 1)
        with autocast:
            predicted = self(maps.to(self.output.weight.dtype), steps)
        return F.mse_loss(predicted.float(), noise)


class Encoder(nn.Module):
    def __init__(self, channels, maps, latent):
        super().__init__()
        self.input = convolution(maps, channels[0])
        self.down = down_levels(channels, 0)
        self.middle = Middle(channels[-1], 0)
        self.norm = nn.GroupNorm(8, channels[-1])
        self.output = convolution(channels[-1], 2 * latent)

    def forward(self, x):
        x = self.input(x)
        for level in self.down:
            x = level.leave(level.run(x, None))
        return self.output(F.silu(self.norm(self.middle(x, None))))


class Decoder(nn.Module):
    def __init__(self, channels, maps, latent):
        super().__init__()
        self.input = convolution(latent, channels[-1])
        self.middle = Middle(channels[-1], 0)
        self.up = up_levels(channels, 0, skips=False)
        self.norm = nn.GroupNorm(8, channels[0])
        self.output = convolution(channels[0], maps)

    def forward(self, x):
        x = self.middle(self.input(x), None)
        for level in self.up:
            x = level.leave(level.run(x, None))
        return self.output(F.silu(self.norm(x)))


class Autoencoder(nn.Module):
    def __init__(self, maps, base, multipliers, latent, kl_weight):
        super().__init__()
        channels = [base * m for m in multipliers]
        self.kl_weight = kl_weight
        self.encoder = Encoder(channels, maps, latent)
        self.decoder = Decoder(channels, maps, latent)

    def loss(self, fields, autocast):
        image = fields["image"].float()
        format = next(self.parameters()).dtype
        with autocast:
            encoded = self.encoder(image.to(format))
        mean, log_variance = encoded.float().chunk(2, 1)
        log_variance = log_variance.clamp(-30, 20)
        noise = drawn(fields, "noise", lambda: torch.randn(mean.shape))
        latent = mean + torch.exp(0.5 * log_variance) * noise
        with autocast:
            decoded = self.decoder(latent.to(format))
        divergence = 0.5 * (mean ** 2 + log_variance.exp() - 1 - log_variance).sum()
        return F.mse_loss(decoded.float(), image) + self.kl_weight * divergence / image.numel()
