"""Modules for tests of genesis.export, and a test case that trains them in jobs."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy
import torch
import torch.utils.checkpoint
import twin
from torch import nn

import genesis

GATE = {"ENABLE_FP16_TRAINING": "true"}
EXAMPLES, BATCH, STEPS = 120, 12, 30
FORMATS = {"FP32": None, "MIXED_BF16": torch.bfloat16}
PURE = {"BF16": torch.bfloat16, "FP16": torch.float16}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool1d(2),
                                    nn.Flatten(), nn.Linear(24, 3))

    def forward(self, x):
        return self.layers(x.unsqueeze(1))


class Attentive(nn.Module):
    """A transformer with a non-persistent buffer of positions and an output layer tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 16)
        self.register_buffer("positions", torch.randn(4, 16), persistent=False)
        self.mixer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.output = nn.Linear(16, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, word):
        hidden = self.mixer(self.embedding(word) + self.positions)
        return self.output(hidden).mean(1)[:, :3]


class Spectral(nn.Module):
    """A module with a complex weight, and with a maximum of values whose last bit depends on the processor (mish uses log1p and tanh)."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 2))
        self.spread, self.head = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(self.filter), n=6)
        return self.head(nn.functional.mish(self.spread(h.unsqueeze(2))).amax(1))


class Sliced(nn.Module):
    """A module that indexes rows and columns of a weight and of an activation, and changes a slice in place."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 8, 3))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        hidden = x[:, :, None] * self.table[:, :, 0] + x[:, :, None] * self.table[0:6, :, 1:][:, :, 1]
        moved = hidden[:, :, :].clone()
        moved[:, 2:, :] += hidden[:, :4, :]
        moved[:, :, :].mul_(0.5)
        return self.head(torch.tanh(moved[:, 0:, :].sum(1)))


class Rare(nn.Module):
    """A module whose layers need rarely used operators."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 24)), nn.PReLU(), nn.Unflatten(1, (2, 3, 4)))
        self.centres = nn.Parameter(torch.randn(5, 6))
        self.head = nn.Linear(51, 3)

    def forward(self, x):
        smooth = torch.fft.irfft(torch.fft.rfft(x) * 0.5 * torch.tensor([1, 1, 0.5, 0]), n=6)
        maps = self.maps(x).float()
        turned = torch.view_as_complex(maps.reshape(-1, 12, 2)) * torch.polar(torch.ones(12), torch.arange(12.0))
        return self.head(torch.cat([nn.functional.adaptive_max_pool2d(maps, 2).flatten(1),
                                    nn.functional.interpolate(maps, (2, 2), mode="bilinear", antialias=True).flatten(1),
                                    smooth, torch.cdist(x, self.centres), torch.view_as_real(turned).flatten(1)], 1))


class Bags(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.words = nn.Embedding(7, 3, sparse=True) if sparse else nn.EmbeddingBag(7, 3)
        self.sparse = sparse

    def forward(self, word):
        return self.words(word).mean(1) if self.sparse else self.words(word)


class Unmoved(nn.Module):
    """A module with a bias before a norm layer, whose gradient consists of rounding errors."""

    def __init__(self):
        super().__init__()
        self.begin = nn.Linear(7, 96)
        self.wide = nn.ConvTranspose2d(16, 12, (3, 5), stride=(2, 3), padding=(1, 2), output_padding=(1, 2), groups=4)
        self.norm = nn.Sequential(nn.InstanceNorm2d(12, affine=True), nn.PReLU(12))
        self.wider = nn.Sequential(nn.ConvTranspose2d(12, 8, 4, stride=2, padding=1, bias=False), nn.Tanh(),
                                   nn.ConvTranspose2d(8, 8, 3, dilation=2, padding=2, groups=8), nn.PixelShuffle(2))
        self.head = nn.Conv2d(2, 1, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        maps = self.wider(self.norm(self.wide(self.begin(x).view(-1, 16, 2, 3))))
        return self.head(nn.functional.interpolate(maps, scale_factor=0.5, mode="bilinear", align_corners=False))


class Compilable(nn.Module):
    """A module with everything that a compiled step must support: batch norm, dropout, and tied, frozen, unused, constant and
    non-persistent tensors."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.SiLU())
        self.mix, self.mix_again = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.mix_again.weight = self.mix.weight
        self.base = nn.Linear(6, 16)
        self.base.requires_grad_(False)
        self.never = nn.Linear(8, 8)
        self.register_buffer("shift", torch.randn(16), persistent=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        hidden = self.norm(x) + self.base(x) * torch.tensor([0.5, 2.0] * 8) + self.shift
        hidden = self.mix_again(torch.relu(self.mix(hidden)))
        return self.head(nn.functional.dropout(hidden, 0.2, self.training))


class Branches(nn.Module):
    """A module of two branches that draw dropout independently and join at the end."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.ReLU()) for _ in range(3)])
        self.decoder = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Tanh()) for _ in range(3)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        encoded = self.encoder(x)
        return self.head(nn.functional.dropout(self.decoder(x) * encoded, 0.1, self.training))


class Codebook(nn.Module):
    """A VQ-VAE layer (van den Oord et al., 2017): rounds to the nearest vector of a codebook, which forward updates."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 3)
        self.register_buffer("vectors", torch.randn(8, 4))
        self.register_buffer("counts", torch.ones(8))
        self.register_buffer("sums", self.vectors.clone())

    def forward(self, x):
        y = self.encoder(x)
        nearest = torch.cdist(y, self.vectors).argmin(1)
        rounded = self.vectors[nearest]
        if self.training:
            chosen = nn.functional.one_hot(nearest, 8).to(y.dtype)
            self.counts = self.counts * 0.9 + chosen.sum(0) * 0.1
            self.sums.mul_(0.9).add_((chosen.T @ y).detach(), alpha=0.1)
            self.vectors = self.sums / self.counts.clamp(min=1e-3)[:, None]
        return self.decoder(y + (rounded - y).detach())


class Encoder(nn.Module):
    """A module with dropout after attention, whose output has the words as its outermost dimension in memory."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.words, self.layers, self.head = nn.Embedding(7, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, word):
        padding = torch.arange(4) > word[:, :1] % 3 + 1
        return self.head(self.layers(self.words(word), src_key_padding_mask=padding).masked_fill(padding[..., None], 0).mean(1))


class Chosen(nn.Module):
    """A module that draws exponential numbers, like the Gumbel softmax (Jang et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(nn.functional.gumbel_softmax(self.layer(x)))


class Shuffled(nn.Module):
    """A module that mixes the activations of random pairs of examples, like Manifold Mixup (Verma et al., 2019)."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.relu(self.layer(x))
        return self.head(0.7 * hidden + 0.3 * hidden[torch.randperm(hidden.shape[0])])


class Reciprocal(nn.Module):
    """A module that divides by a word minus 2. Its test uses words that are at least 3."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, word):
        return self.head(1 / (word - 2).float())


class Filtered(nn.Module):
    """A module that filters in the frequency domain, and uses the magnitude of frequencies. The gradient of abs contains a complex zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 2) * 0.2)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        filtered = torch.einsum("bf,kf->bkf", torch.fft.rfft(x, dim=1), torch.view_as_complex(self.weight))
        return self.head(torch.fft.irfft(filtered, n=6, dim=2).mean(1)) + filtered.abs().sum((1, 2))[:, None] * 0.01


class LastState(nn.Module):
    """A module that reads the last states of an LSTM."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True), nn.Linear(10, 3)

    def forward(self, x):
        _, (hidden, cell) = self.layers(x.view(-1, 2, 3))
        return self.head(torch.cat([hidden[-1], cell[-2]], 1))


class Aliased(nn.Module):
    """A module with one batch norm under two names, and a buffer that two batch norms share."""

    def __init__(self):
        super().__init__()
        self.norm, self.other, self.head = nn.BatchNorm1d(6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.again, self.other.running_mean = self.norm, self.norm.running_mean

    def forward(self, x):
        return self.head(self.again(x) + 0.1 * torch.tanh(x))


class Varied(nn.Module):
    """A module that uses the standard deviation over the batch, like VICReg (Bardes et al., 2022). Its gradient divides by the batch size
    minus 1."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        y = self.layer(x)
        return self.head(y / (0.1 + y.std(0)) + y.var(0, keepdim=True)) * (x.shape[0] ** 0.5 / 3)


class Turning(nn.Module):
    """A module that rotates complex numbers and reads their angles. Its gradients contain the factor 1j."""

    def __init__(self):
        super().__init__()
        self.layer, self.head, self.angle = nn.Linear(6, 8), nn.Linear(8, 3), nn.Parameter(torch.randn(4))
        self.register_buffer("turn", torch.view_as_real(torch.polar(torch.ones(4), torch.linspace(0, 3, 4))).clone())

    def forward(self, x):
        turned = torch.view_as_complex(self.layer(x).float().view(-1, 4, 2)) * torch.polar(torch.ones(4), self.angle) * 1j
        turned = turned * torch.view_as_complex(self.turn) + torch.fft.fft(turned) / 6
        return self.head(torch.cat([turned.abs(), turned.angle() * 0.1], 1))


class Averaging(nn.Module):
    """A module with a moving average in two buffers, one persistent and one not."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("kept", torch.zeros(3))
        self.register_buffer("left_out", torch.zeros(3), persistent=False)

    def forward(self, x):
        y = self.head(x)
        if self.training:
            for average in (self.kept, self.left_out):
                average.lerp_(y.detach().float().mean(0), 0.3)
        return y - self.left_out


class Forgetful(nn.Module):
    """A module that changes a non-persistent buffer, which is in no checkpoint."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls.add_(1)
        return self.head(x) * (1 + 0.01 * self.calls)


class Partial(nn.Module):
    """A module with a frozen layer, an unused layer, and a tensor that forward creates from numbers."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 8)
        self.base.requires_grad_(False)
        self.never = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x)) * torch.tensor([0.5, 2.0] * 4))


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.layers(x)


class Scaled(nn.Module):
    """A module that multiplies tensors with gaps in memory by numbers, in forward and backward."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.first(x)
        halves = hidden[:, :4] * 0.5 + hidden[:, 4:] * 0.25
        return self.second(torch.cat([halves * 2, hidden[:, ::2].sin()], 1))


class Masked(nn.Module):
    """A module with infinities in a persistent buffer."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return self.head(torch.softmax(self.score(x) + self.mask, 1) * x)


class Versioned(nn.Module):
    """A module that loads weights depending on their version, as does its submodule. torchvision's mnasnet does the same."""

    _version = 2

    class Part(nn.Linear):
        _version = 7

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(self.Part(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") not in (1, 2):
            raise ValueError(f"version should be set to 1 or 2 instead of {local_metadata.get('version')}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class Regular(nn.Module):
    """A module with dropout after a batch norm and an activation, which a compiled step fuses into one loop that reads the mask."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        if x.sum() > 0:
            return self.layer(x)
        return -self.layer(x)


class Changed(nn.Module):
    """Applies an operation to the output of a layer."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(6, 3), change

    def forward(self, x):
        return self.change(self.layer(x))


def packed(y):
    sequences = nn.utils.rnn.pack_padded_sequence(y[:, None, :].expand(-1, 2, -1), torch.full(y.shape[:1], 2), batch_first=True,
                                                  enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(sequences, batch_first=True)[0].sum(1)


def hooked(method):
    module = nn.Linear(6, 3)
    getattr(module.weight, method)(lambda given: None)
    return module


class Kept(nn.Module):
    """A module that executes a line of Python in forward, which keeps state where a graph cannot follow it."""

    def __init__(self, line):
        super().__init__()
        self.layer, self.other, self.mean, self.line = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False), torch.zeros(3), line
        self.list, self.seen, self.calls = [self.layer.weight], [], 0

    def forward(self, x):
        names = {"self": self, "y": self.layer(x), "torch": torch}
        exec(self.line, names)
        return names["y"] + self.other(x) - self.mean


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("turn", torch.ones(3, dtype=torch.complex64))

    def forward(self, x):
        return (self.layer(x) * self.turn).real


class Recomputed(nn.Module):
    """A module that reads weights again during backward, because of recomputation, and assigns to its buffers."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        y = self.head(x) * self.scale
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * (1 + self.scale.detach()))
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
            self.steps = self.steps + 1
        return y - self.mean * (self.steps / 10).clamp(max=1)


class Transposed(nn.Module):
    """A module with a batch norm of a transposed tensor, whose memory layout a trace of torch gets wrong."""

    def __init__(self):
        super().__init__()
        self.first, self.batch_norm = nn.Linear(2, 8), nn.BatchNorm1d(8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.batch_norm(self.first(x.reshape(-1, 3, 2)).transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(x)).mean(1)


class Differentiated(nn.Module):
    """A module whose forward pass contains a derivative of its own output, as in physics-informed networks."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        x = x.detach().requires_grad_()
        y = self.layers(x)
        slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + slope[:, :3] * slope[:, 3:]


class Arithmetic(nn.Module):
    """A module that computes with masks, integers and numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        mask, places = x > 0, torch.arange(6) // 2
        x = x - 0.5 * mask + True * x + (places << 1) * 0.1 + (mask / 2) + 2 * mask - (1 - places % 2)
        return self.head(self.first(x + x // 0.25 * 0.1))


class Redrawn(nn.Module):
    """A module with dropout between recurrent layers and in a recomputed block."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(1, 4, 3, dropout=0.3, bidirectional=True, batch_first=True)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.recurrent(x[:, :, None])[0].mean(1)
        return self.head(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False))


class Counting(nn.Module):
    """A module whose output depends on how often it has been evaluated."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if not self.training:
            self.seen += 1
        return self.layer(x) * (1 + self.seen)


class Merged(nn.Linear):
    """A layer that adds a product of two small matrices to its weight in eval mode, like LoRA."""

    def __init__(self):
        super().__init__(6, 3)
        self.weight.requires_grad_(False)
        self.first, self.second, self.merged = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 3)), False

    def train(self, mode=True):
        if mode == self.merged:
            self.weight.data += (self.first @ self.second).T * (-1 if mode else 1)
            self.merged = not mode
        return super().train(mode)

    def forward(self, x):
        return super().forward(x) if self.merged else super().forward(x) + x @ self.first @ self.second


class Padded(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, **options)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        padding = torch.arange(6).expand(x.shape) > 3
        return self.head(self.encoder(x[:, :, None] * torch.arange(8.0), src_key_padding_mask=padding).mean(1))


class Solved(nn.Module):
    """A module that solves linear systems whose matrices are the output of a layer, and uses their determinants."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x).float()
        matrix = y[:, :4].reshape(-1, 2, 2)
        matrix = matrix @ matrix.transpose(1, 2) + torch.eye(2)
        solution = torch.linalg.solve(matrix, y[:, 4:, None]).squeeze(2)
        return self.head(torch.cat([solution, torch.logdet(matrix)[:, None], y[:, :1]], 1))


MODULES = {Normed: "x", Convolutional: "x", Attentive: "word", Partial: "x", Scaled: "x", Sliced: "x", Rare: "x", Spectral: "x", Recomputed: "x",
           Transposed: "x", Differentiated: "x", Solved: "x", Arithmetic: "x", LastState: "x", Aliased: "x",
           Turning: "x", Varied: "x"}


def loss_of(module, batch):
    field = "word" if "word" in batch else "x"
    return nn.functional.cross_entropy(module(batch[field]), batch["label"])


def learnt(name, tensor, mode):
    """Returns the part of a weight that depends on the data.

    The bias of the keys is left out in reduced precision: softmax is invariant to it, so its gradient consists of rounding errors, which
    Adam turns into steps of full size."""
    if mode == "FP32" or not name.endswith("in_proj_bias"):
        return tensor
    queries, _, values = tensor.chunk(3)
    return torch.cat([queries, values])


class Loop:
    """A training loop in Python. In pure formats, the module's weights have that format, and the optimizer updates FP32 masters."""

    def __init__(self, module, mode):
        self.trained = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
        self.masters = self.trained
        if mode in PURE:
            self.masters = {name: tensor.detach().clone().requires_grad_() for name, tensor in self.trained.items()}
            module.to(PURE[mode])
        self.optimizer = torch.optim.AdamW(self.masters.values(), lr=1e-3, weight_decay=0.01, fused=True)
        self.scaler = torch.amp.GradScaler("cpu", enabled=mode == "FP16")

    def step(self, losses, max_norm=None):
        """Runs a step on the losses of its micro-batches. Returns the sum of the losses."""
        self.optimizer.zero_grad()
        total = 0.0
        for loss in losses:
            self.scaler.scale(loss).backward()
            total += loss.item()
            self._gather()
        self.scaler.unscale_(self.optimizer)
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.masters.values(), max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.masters is not self.trained:
            with torch.no_grad():
                for name, tensor in self.trained.items():
                    tensor.copy_(self.masters[name])
        return total

    def _gather(self):
        for name, tensor in self.trained.items() if self.masters is not self.trained else ():
            if tensor.grad is not None:
                before = self.masters[name].grad
                self.masters[name].grad = tensor.grad.float() if before is None else before + tensor.grad
            tensor.grad = None


class ExportedJobs(unittest.TestCase):
    """A test case with helpers that train these modules on a few rows of random numbers."""

    exported = {}  # The bytes of each module's file: its weights are those of one seed, and exports take seconds.
    exports_few = False  # Whether a file has no precisions but FP32 and that of its job.

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        generator = numpy.random.default_rng(11)
        self.arrays = {"x": generator.normal(size=(EXAMPLES, 6)).astype("float32"),
                       "label": generator.integers(0, 3, EXAMPLES),
                       "word": generator.integers(0, 7, (EXAMPLES, 4))}

    def batch(self, field, size=5):
        return {name: torch.tensor(self.arrays[name][:size]) for name in (field, "label")}

    def job(self, net, mode="FP32", arrays=None, **sections):
        field = MODULES.get(net, "x")
        torch.manual_seed(4)
        module = net()
        few = self.exports_few or mode in PURE
        key = (net, mode) if few else net
        if key not in self.exported:
            precisions = sorted({"FP32", mode}) if few else ["FP32", "MIXED_BF16", "MIXED_FP16"]
            genesis.export(module, self.batch(field), self.path / "net.pt2", loss=loss_of, precisions=precisions)
            self.exported[key] = (self.path / "net.pt2").read_bytes()
        (self.path / "net.pt2").write_bytes(self.exported[key])
        numpy.savez(self.path / "rows.npz", **(arrays or {name: self.arrays[name] for name in (field, "label")}))
        job = {"model": {"exported": {"path": str(self.path / "net.pt2")}},
               "dataset": {"arrays": {"path": str(self.path / "rows.npz")}},
               "training": {"max_steps": STEPS, "batch_size": BATCH, "seed": 3, "max_grad_norm": -1},
               "precision": {"mode": mode}}
        for section, values in sections.items():
            job.setdefault(section, {}).update(values)
        path = self.path / "job.yaml"
        path.write_text(json.dumps(job))
        return path, module

    def train(self, job, *flags):
        with tempfile.TemporaryDirectory() as checkpoints:
            records, _ = twin.run_worker(job, checkpoints, *flags, environment=GATE)
            files = [path.read_bytes() for path in sorted(pathlib.Path(checkpoints).glob("*.pt"))]
            last = torch.load(twin.newest_checkpoint(checkpoints))
            return records, last, files

    def refused(self, job):
        with tempfile.TemporaryDirectory() as checkpoints:
            done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", checkpoints], capture_output=True,
                                  text=True, env={**os.environ, **GATE})
        self.assertNotEqual(done.returncode, 0)
        lines = [line for line in done.stderr.splitlines() if re.search("model.exported|precision\\.|FAILURE_CAUSE", line)]
        self.assertTrue(lines, done.stderr)
        return lines[-1]
