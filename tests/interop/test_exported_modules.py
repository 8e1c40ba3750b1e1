"""Modules that genesis.export wrote train in the worker as they do in Python, and bad files are told in one message."""

import contextlib
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

import compiled_job
import exported
import numpy
import safetensors.torch
import step
import torch
import torch.utils.checkpoint
import twin
from torch import nn

import genesis
from genesis import tracing

GENERATOR = torch.Generator()
GATE = {"ENABLE_FP16_TRAINING": "true"}
EXAMPLES, BATCH, STEPS = 120, 12, 30
# Both run the same operators in the same order; what differs is how clipping and update are rounded.
# Products and attention may be made in FP32 and rounded (trainer/accel), which is another last bit of BF16.
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 5e-3}
FORMATS = {"FP32": None, "MIXED_BF16": torch.bfloat16}


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
    """Embedding, positions that no checkpoint holds, attention, and an output tied to the embedding."""

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
    """A complex weight, and the largest of values that processors compute in more than one way: mish takes log1p and tanh."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 2))
        self.spread, self.head = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(self.filter), n=6)
        return self.head(nn.functional.mish(self.spread(h.unsqueeze(2))).amax(1))


class Sliced(nn.Module):
    """Rows and columns of a weight and of what is computed, by indices that name each dimension; one is changed in place."""

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
    """Layers of which each needs an operator that few modules need."""

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
    """A bias before a norm, whose gradient is rounding alone."""

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
    """Has all that a compiled step must take along: batch norm, dropout, tied, frozen, unused, constant and passing tensors."""

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
    """Two branches, each with dropout, that meet at the end: what one draws the other does not wait for."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.ReLU()) for _ in range(3)])
        self.decoder = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Tanh()) for _ in range(3)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        encoded = self.encoder(x)
        return self.head(nn.functional.dropout(self.decoder(x) * encoded, 0.1, self.training))


class Codebook(nn.Module):
    """Rounds to the nearest of some vectors, which move (the VQ-VAE of van den Oord et al., 2017)."""

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
            self.sums = self.sums * 0.9 + (chosen.T @ y).detach() * 0.1
            self.vectors = self.sums / self.counts.clamp(min=1e-3)[:, None]
        return self.decoder(y + (rounded - y).detach())


class Chosen(nn.Module):
    """Draws exponential numbers, as the Gumbel softmax of Jang et al. (2017) does."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(nn.functional.gumbel_softmax(self.layer(x)))


class Filtered(nn.Module):
    """Filters in frequencies, and reads their size, whose gradient has a complex zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 4, 2) * 0.2)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        filtered = torch.einsum("bf,kf->bkf", torch.fft.rfft(x, dim=1), torch.view_as_complex(self.weight))
        return self.head(torch.fft.irfft(filtered, n=6, dim=2).mean(1)) + filtered.abs().sum((1, 2))[:, None] * 0.01


class Forgetful(nn.Module):
    """Changes a buffer that no checkpoint has."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls.add_(1)
        return self.head(x) * (1 + 0.01 * self.calls)


class Partial(nn.Module):
    """A frozen base, a weight that nothing uses, and a number made in forward."""

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
    """Multiplies what has gaps in memory, on the way there and back, by numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.first(x)
        halves = hidden[:, :4] * 0.5 + hidden[:, 4:] * 0.25
        return self.second(torch.cat([halves * 2, hidden[:, ::2].sin()], 1))


class Masked(nn.Module):
    """Holds infinities from its beginning, in a buffer that checkpoints have."""

    def __init__(self):
        super().__init__()
        self.score, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -torch.inf]))

    def forward(self, x):
        return self.head(torch.softmax(self.score(x) + self.mask, 1) * x)


class Versioned(nn.Module):
    """Loads weights by the version that they say, as mnasnet of torchvision does, and so does a part of it."""

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
    """Dropout of what a batch norm and an activation give: in one loop of a compiled step, which reads the mask."""

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
    """What it does to the output of a layer."""

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
    """Runs a line of Python in forward, which keeps something or reads what is kept in a way that a graph cannot follow."""

    def __init__(self, line):
        super().__init__()
        self.layer, self.other, self.mean, self.line = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False), torch.zeros(3), line
        self.list = [self.layer.weight]

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
    """Reads weights again while backward runs, and assigns to its buffers."""

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
    """Batch norm of what is transposed, whose layout torch's trace gets wrong."""

    def __init__(self):
        super().__init__()
        self.first, self.batch_norm = nn.Linear(2, 8), nn.BatchNorm1d(8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.batch_norm(self.first(x.reshape(-1, 3, 2)).transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(x)).mean(1)


class Differentiated(nn.Module):
    """Has a derivative of its own output in its forward pass, as physics-informed networks do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        x = x.detach().requires_grad_()
        y = self.layers(x)
        slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + slope[:, :3] * slope[:, 3:]


class Arithmetic(nn.Module):
    """Computes with masks, integers and numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        mask, places = x > 0, torch.arange(6) // 2
        x = x - 0.5 * mask + True * x + (places << 1) * 0.1 + (mask / 2) + 2 * mask - (1 - places % 2)
        return self.head(self.first(x + x // 0.25 * 0.1))


class Redrawn(nn.Module):
    """Draws random numbers between recurrent layers, and in what is computed again."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(1, 4, 3, dropout=0.3, bidirectional=True, batch_first=True)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.recurrent(x[:, :, None])[0].mean(1)
        return self.head(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False))


class Counting(nn.Module):
    """Counts evaluations, and what counts them changes what it gives."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if not self.training:
            self.seen += 1
        return self.layer(x) * (1 + self.seen)


class Merged(nn.Linear):
    """Has a product of two small matrices in its weight in eval mode, as LoRA's layers do."""

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
    """Solves systems of equations whose matrices are what a layer gives, and has their determinants."""

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
           Transposed: "x", Differentiated: "x", Solved: "x", Arithmetic: "x"}


def loss_of(module, batch):
    field = "word" if "word" in batch else "x"
    return nn.functional.cross_entropy(module(batch[field]), batch["label"])


def learnt(name, tensor, mode):
    """The part of a weight that depends on the data. softmax does not see the bias of the keys, so its gradient is rounding alone,
    of which Adam makes whole steps."""
    if mode == "FP32" or not name.endswith("in_proj_bias"):
        return tensor
    queries, _, values = tensor.chunk(3)
    return torch.cat([queries, values])


class ExportedJobs(unittest.TestCase):
    """Jobs of the modules above, on a few rows of random numbers."""

    exported = {}  # The bytes of each module's file: its weights are those of one seed, and exports take seconds.

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
        if net not in self.exported:
            genesis.export(module, self.batch(field), self.path / "net.pt2", loss=loss_of)
            self.exported[net] = (self.path / "net.pt2").read_bytes()
        (self.path / "net.pt2").write_bytes(self.exported[net])
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


class ExportedModules(ExportedJobs):
    def loop(self, module, field, mode="FP32", accumulation=1, max_norm=None):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        data = {name: torch.tensor(self.arrays[name]) for name in (field, "label")}
        torch.manual_seed(3)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(accumulation):
                now = next(rows)
                with torch.autocast("cpu", torch.bfloat16, enabled=FORMATS[mode] is not None):
                    loss = loss_of(module, {name: values[now] for name, values in data.items()})
                loss = loss.float() / accumulation
                loss.backward()
                total += loss.item()
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
            optimizer.step()
            losses.append(total)
        return losses

    def compare(self, net, mode, accumulation=1, max_norm=None):
        job, module = self.job(net, mode, training={"gradient_accumulation_steps": accumulation,
                                                    "max_grad_norm": max_norm or -1})
        records, last, _ = self.train(job)
        wanted = self.loop(module, MODULES[net], mode, accumulation, max_norm)
        self.assertEqual(len(records), STEPS)
        for record, loss in zip(records, wanted):
            self.assertLess(abs(record["loss"] - loss) / abs(loss), TOLERANCE[mode], record)
        state = last["model_state_dict"]
        self.assertEqual(set(state), set(module.state_dict()))
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.allclose(learnt(name, state[name], mode).double(), learnt(name, tensor, mode).double(), rtol=1e-2,
                                           atol=5e-3), name)
        net().load_state_dict(state)

    def test_losses_and_weights_are_those_of_the_python_loop(self):
        for net in MODULES:
            for mode in FORMATS:
                with self.subTest(net.__name__, mode=mode):
                    self.compare(net, mode)

    def test_a_gradient_that_is_rounding_alone_is_no_difference(self):
        torch.manual_seed(0)
        module, generator = Unmoved(), numpy.random.default_rng(7)
        x = torch.tensor(generator.normal(size=(16, 7)), dtype=torch.float32)
        target = torch.tensor(generator.normal(size=module(x).shape), dtype=torch.float32)
        for size in 4, 6, 8, 16:
            genesis.export(module, {"x": x[:size], "target": target[:size]}, self.path / f"{size}.pt2", loss="huber", precisions=["FP32"])

    def operators(self):
        """Of the file that was exported last, in FP32: ("mul", "Tensor") and so on, in their order."""
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            nodes = json.loads(archive.read("module/models/FP32.json"))["graph_module"]["graph"]["nodes"]
        return [tuple(node["target"].split(".")[3:]) for node in nodes if node["target"].startswith("torch.ops.aten.")]

    def test_numbers_that_multiply_are_tensors(self):
        self.job(Scaled)
        operators = self.operators()
        self.assertNotIn(("mul", "Scalar"), operators)
        self.assertEqual(operators.count(("full", "default")), 3, operators)  # 0.5, 0.25 and 2, there and back.

    def test_a_slice_of_all_is_no_operator(self):
        self.job(Sliced)
        targets = [name for name, *_ in self.operators()]
        # [:, :, 1:], [:, 2:, :] and [:, :4, :]; the gradient of the first and the last.
        self.assertLessEqual(targets.count("slice_backward"), 3, targets)
        self.assertGreater(targets.count("slice"), 0, targets)

    def test_accumulation_and_clipping(self):
        for net in (Attentive, Partial):
            with self.subTest(net.__name__):
                self.compare(net, "FP32", accumulation=2, max_norm=0.5)

    def test_what_draws_or_counts_does_as_in_python(self):
        for net in (Dropped, Redrawn, Counting):
            with self.subTest(net.__name__), mock.patch.dict(MODULES, {net: "x"}):
                self.compare(net, "FP32")

    def test_tensors_without_a_gradient_are_left_alone(self):
        job, module = self.job(Partial, optimizer={"weight_decay": 0.5})
        _, last, _ = self.train(job)
        for name in ("base.weight", "base.bias", "never.weight", "never.bias"):
            self.assertTrue(torch.equal(last["model_state_dict"][name], module.state_dict()[name]), name)

    def test_resume_is_bit_identical(self):
        for net in (Normed, Dropped):
            for mode in FORMATS:
                with self.subTest(net.__name__, mode=mode):
                    job, _ = self.job(net, mode, checkpoint={"every_steps": 10, "keep_last": 10},
                                      evaluation={"every_steps": 7})
                    whole, last, files = self.train(job)
                    middle = self.path / "middle.pt"
                    middle.write_bytes(files[0])
                    self.assertEqual(torch.load(middle)["genesis"]["step"], 10)
                    rest, last_of_rest, _ = self.train(job, "--resume", middle)
                    self.assertEqual(rest, whole[10:])
                    for name, value in last["model_state_dict"].items():
                        self.assertTrue(torch.equal(value, last_of_rest["model_state_dict"][name]), name)

    def test_evaluations_leave_no_trace(self):
        for net in (Normed, Dropped):
            plain, last, _ = self.train(self.job(net)[0])
            watched, last_watched, _ = self.train(self.job(net, evaluation={"every_steps": 4})[0])
            self.assertEqual(plain, watched)
            for name, value in last["model_state_dict"].items():
                self.assertTrue(torch.equal(value, last_watched["model_state_dict"][name]), name)

    def test_the_held_out_loss_is_that_of_eval_mode(self):
        for net in (Dropped, Recomputed, Transposed, Differentiated):
            with self.subTest(net.__name__), tempfile.TemporaryDirectory() as checkpoints:
                job, module = self.job(net, evaluation={"every_steps": 7})
                _, output = twin.run_worker(job, checkpoints, environment=GATE)
                module.load_state_dict(torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"])
                held_out = {name: torch.tensor(self.arrays[name][-(EXAMPLES // 10):]) for name in ("x", "label")}
                printed = float(output.rsplit("held-out loss ", 1)[1].split()[0])
                self.assertAlmostEqual(loss_of(module.eval(), held_out).item() / printed, 1, delta=1e-5)

    def test_loss_scaling_and_auto(self):
        for mode in ("MIXED_FP16", "AUTO"):
            records, _, _ = self.train(self.job(Normed, mode)[0], *(["--emulate-fp16"] if mode != "AUTO" else []))
            self.assertEqual(len(records), STEPS, mode)

    # Weights to start from.

    def start(self, net, state, name="start.safetensors", **tensors):
        """A job of two steps that starts from a file with the weights of another module, changed by ``tensors``."""
        path = self.path / name
        state = {**state, **tensors}
        (safetensors.torch.save_file if name.endswith("s") else torch.save)(state, path)
        return self.job(net, model={"initial_weights": str(path)}, training={"max_steps": 2})[0]

    def test_a_job_starts_from_weights_of_a_file(self):
        torch.manual_seed(77)
        for net in (Normed, Attentive, Masked):
            state = net().state_dict()
            trained = []
            # A file of safetensors has a tied tensor once; and half the size is the same weights.
            once = {name: tensor for name, tensor in state.items() if name != "output.weight"}
            for name, some in (("start.pt", state), ("start.safetensors", once),
                               ("start.safetensors", {each: value.double() if value.is_floating_point() else value for each, value in once.items()})):
                records, last, _ = self.train(self.start(net, some, name))
                trained.append((records[0]["loss"], last["model_state_dict"]))
            module = self.job(net)[1]
            module.load_state_dict(state)
            data = {name: torch.tensor(self.arrays[name]) for name in (MODULES.get(net, "x"), "label")}
            rows = next(twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3))
            wanted = loss_of(module, {name: values[rows] for name, values in data.items()}).item()
            for loss, weights in trained:
                self.assertLess(abs(loss - wanted), 1e-5 * wanted, net.__name__)
                for name, value in weights.items():
                    self.assertTrue(torch.equal(value, trained[0][1][name]), name)

    def test_weights_that_do_not_fit_are_named(self):
        state = Normed().state_dict()
        nan, late = state["layers.3.weight"].clone(), torch.zeros(16)
        nan[2, 7] = torch.nan
        late[15] = torch.inf
        for tensors, message in (
                ({"head.weight": torch.zeros(3, 16), "head.bias": torch.zeros(3)},
                 "2 tensors that the job's model has not: head.bias float32 [3], head.weight float32 [3, 16]; accepted: "),
                ({"layers.3.bias": torch.zeros(4)}, "layers.3.bias float32 [4] for float32 [3]; accepted"),
                ({"layers.3.bias": torch.zeros(3, dtype=torch.int32)}, "layers.3.bias int32 [3] for float32 [3]; accepted"),
                ({"layers.1.num_batches_tracked": torch.tensor(1.0)}, "layers.1.num_batches_tracked float32 [] for int64 []; accepted"),
                ({"layers.3.weight": nan}, "layers.3.weight is nan at [2, 7]; accepted"),
                ({"layers.1.running_var": late}, "layers.1.running_var is inf at [15]; accepted")):
            for name in ("start.safetensors", "start.pt"):
                with self.subTest(message, file=name):
                    said = self.refused(self.start(Normed, state, name, **tensors))
                    self.assertIn("FAILURE_CAUSE_CONFIG: model.initial_weights ", said)
                    self.assertIn(message, said)
        missing = {name: tensor for name, tensor in state.items() if not name.startswith("layers.1.running")}
        self.assertIn("2 tensors of the job's model are missing: layers.1.running_mean float32 [16], layers.1.running_var float32 [16]; ",
                      self.refused(self.start(Normed, missing)))
        wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
        self.assertIn("; the names begin with module.: remove that", self.refused(self.start(Normed, wrapped)))

    def test_version_numbers_come_back(self):
        job, module = self.job(Versioned, checkpoint={"every_steps": 10, "keep_last": 10}, training={"ema_decay": 0.9})
        _, last, files = self.train(job)
        module.load_state_dict(last["model_state_dict"])
        self.assertEqual(last["model_state_dict"]._metadata, dict(module.state_dict()._metadata))
        self.assertEqual(last["model_state_dict"]._metadata["layers.0"], {"version": 7})
        last["model_state_dict"].update(last["ema_state_dict"])
        module.load_state_dict(last["model_state_dict"])
        # Also after a restart from a checkpoint, and from weights that Python wrote.
        (self.path / "middle.pt").write_bytes(files[0])
        _, last, _ = self.train(job, "--resume", self.path / "middle.pt")
        Versioned().load_state_dict(last["model_state_dict"])
        _, last, _ = self.train(self.start(Versioned, module.state_dict(), "start.pt"))
        Versioned().load_state_dict(last["model_state_dict"])

    def test_a_mask_of_infinities_is_in_checkpoints(self):
        job, module = self.job(Masked, checkpoint={"every_steps": 10, "keep_last": 10})
        whole, last, files = self.train(job)
        self.assertTrue(torch.equal(last["model_state_dict"]["mask"], module.mask))
        (self.path / "middle.pt").write_bytes(files[0])
        rest, _, _ = self.train(job, "--resume", self.path / "middle.pt")
        self.assertEqual(rest, whole[10:])

    # Compiled steps.

    def test_a_compiled_step_trains_as_the_graph_does(self):
        packages = self.path / "packages"
        job, module = self.job(Compilable, "MIXED_BF16", checkpoint={"every_steps": 10, "keep_last": 10})
        made = compiled_job.compile_job(job, packages)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(len(list(packages.glob("*.pt2"))), 2, made.stdout)
        for mode in FORMATS:
            with self.subTest(mode):
                job, module = self.job(Compilable, mode, checkpoint={"every_steps": 10, "keep_last": 10})
                plain, last, _ = self.train(job)
                with tempfile.TemporaryDirectory() as folder:
                    compiled = compiled_job.train_compiled(self, job, folder, packages)
                    first = min(pathlib.Path(folder).glob("*.pt"))
                    with tempfile.TemporaryDirectory() as other:
                        rest = compiled_job.train_compiled(self, job, other, packages, "--resume", first)
                    state = torch.load(twin.newest_checkpoint(folder))["model_state_dict"]
                self.assertEqual(rest, compiled[10:])
                self.assertNotEqual([each["loss"] for each in compiled], [each["loss"] for each in plain])
                self.assertLess(compiled_job.worst(compiled, plain), 1e-4 if mode == "FP32" else 3e-2)
                for name, value in last["model_state_dict"].items():
                    torch.testing.assert_close(state[name], value, rtol=1e-2, atol=5e-3, msg=name)
                self.assertEqual(state["norm.1.num_batches_tracked"], STEPS)
                for name in ("base.weight", "never.weight"):
                    self.assertTrue(torch.equal(state[name], module.state_dict()[name]), name)

    def test_compiled_steps_compute_what_graphs_do(self):
        for net in (Branches, Regular, Spectral, Codebook, Chosen, Filtered):
            with self.subTest(net.__name__):
                packages = self.path / net.__name__
                job, _ = self.job(net)
                made = compiled_job.compile_job(job, packages)
                self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
                plain, _, _ = self.train(job)
                with tempfile.TemporaryDirectory() as folder:
                    compiled = compiled_job.train_compiled(self, job, folder, packages)
                self.assertLess(compiled_job.worst(compiled, plain), 1e-5 if net is Branches else 1e-4)

    def test_what_cannot_be_compiled_says_why(self):
        made = compiled_job.compile_job(self.job(Forgetful)[0], self.path / "packages")
        self.assertEqual(made.returncode, 1, made.stdout)
        self.assertIn("FP32: nothing was installed: forward changes calls, which state_dict() leaves out", made.stderr)
        self.assertEqual(list((self.path / "packages").iterdir()), [])

    def test_a_size_that_is_a_program_is_refused(self):
        sizes = ["Symbol('s9', positive=True, integer=True)", "Mul(Integer(12), Symbol('s9', positive=True, integer=True))"]
        exported.check_expressions([{"sizes": [{"as_expr": {"expr_str": each}} for each in sizes]}])
        for text in ("exit()", "Symbol('s9').__class__", "Integer(1)\nexit()", "Symbol('s9'); 1", "Symbol('s' + 'exit()')", "Mul(x for x in [1])",
                     "Symbol('exit')", 7):
            with self.subTest(text), self.assertRaisesRegex(step.StepError, "sums and products"):
                exported.check_expressions({"a": [{"expr_str": text}]})

    # What cannot be trained.

    def refused(self, job):
        with tempfile.TemporaryDirectory() as checkpoints:
            done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", checkpoints], capture_output=True,
                                  text=True, env={**os.environ, **GATE})
        self.assertNotEqual(done.returncode, 0)
        lines = [line for line in done.stderr.splitlines() if re.search("model.exported|precision\\.|FAILURE_CAUSE", line)]
        self.assertTrue(lines, done.stderr)
        return lines[-1]

    def rewrite(self, change, compression=zipfile.ZIP_STORED):
        """The exported file with `change` made to its records, {name: bytes}."""
        path = self.path / "net.pt2"
        with zipfile.ZipFile(path) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
        change(records)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in records.items():
                archive.writestr(zipfile.ZipInfo(name), content, compression)

    def edit(self, name, old, new):
        def change(records):
            self.assertIn(old, records[name])
            records[name] = records[name].replace(old, new)
        self.rewrite(change)

    def test_a_hostile_file_is_refused_before_it_is_loaded(self):
        graph, manifest = "module/models/FP32.json", "module/extra/genesis.json"

        def add(name):
            return lambda: self.rewrite(lambda records: records.__setitem__(name, b"x"))

        cases = {
            "operator": (lambda: self.edit(graph, b"torch.ops.aten.addmm.default", b"torch.ops.aten.from_file.default"),
                         'has the operator "torch.ops.aten.from_file.default"'),
            "custom operator": (lambda: self.edit(graph, b"torch.ops.aten.addmm.default", b"torch.ops.mine.run.default"),
                                'has the operator "torch.ops.mine.run.default"'),
            "escaped operator": (lambda: self.edit(graph, b'"target": "torch.ops.aten.addmm.default"',
                                                   b'"\\u0074arget": "os.system"'), 'has the operator "os.system"'),
            "library": (add("module/data/aotinductor/FP32/a.so"), "that is none of a module's"),
            "pickle": (add("module/data/sample_inputs/FP32.pt"), "that is none of a module's"),
            "object": (add("module/data/constants/custom_obj_0"), "that is none of a module's"),
            "constants": (lambda: self.edit("module/data/constants/FP32_constants_config.json", b"{}",
                                            b'{"a": {"path_name": "custom_obj_0"}}'), "has constants of its own"),
            "compressed": (lambda: self.rewrite(lambda records: None, zipfile.ZIP_DEFLATED),
                           'has the tensor "layers.0.weight" compressed; accepted: stored, as genesis.export writes it'),
            "function of sizes": (lambda: self.edit(graph, b'"target": "torch.ops.aten.addmm.default"', b'"target": "_operator.attrgetter"'),
                                  'has the operator "_operator.attrgetter"'),
            "shape": (lambda: self.edit(manifest, b"16,\n    6", b"16,\n    7"), "of other bytes"),
            "large shape": (lambda: self.edit(manifest, b"16,\n    6", b"9223372036854775807,\n    9223372036854775807"),
                            "of other bytes"),
            "older exporter": (lambda: self.edit(manifest, b'"format": 2,\n "producer": "genesis-trainer 0.1.0",', b'"format": 1,'),
                               "which an older genesis-trainer wrote, whose graphs may compute products of slices from memory that is not "
                               "theirs: export it again with genesis-trainer 0.1.0;"),
            "newer exporter": (lambda: self.edit(manifest, b'"format": 2,\n "producer": "genesis-trainer 0.1.0",',
                                                 b'"format": 3,\n "producer": "genesis-trainer 9.0\\n",\n "more": {"a": [1.5]},'),
                               'is of format 3, which "genesis-trainer 9.0\\n" wrote; this worker reads format 2: export it again with '
                               'genesis-trainer 0.1.0;'),
            "unknown key": (lambda: self.edit(manifest, b'"format": 2,', b'"format": 2,\n "more": 1,'), "an unknown key"),
            "losses": (lambda: self.edit(manifest, b'"losses": "MEAN"', b'"losses": "SUM"'), 'has losses "SUM"'),
            "version": (lambda: self.edit(manifest, b'"layers.1": 2', b'"layers.1": -2'), "has a manifest that cannot be read, at byte "),
            "losses that are none": (lambda: self.edit(manifest, b'"losses": "MEAN"', b'"losses": "EXAMPLES"'), "model.exported"),
            "not finite": (lambda: self.rewrite(lambda records: records.__setitem__(
                "module/extra/tensors/0", records["module/extra/tensors/0"][:-8] + numpy.float32([numpy.nan, numpy.inf]).tobytes())),
                           'has a tensor "layers.0.weight" that is nan at [15, 4]'),
            "torch": (lambda: self.edit(manifest, torch.__version__.split("+")[0].encode(), b"2.9.0"),
                      'was exported by torch "2.9.0"'),
            "gradient": (lambda: self.edit(manifest, b'"gradients": [', b'"gradients": ["none",'), 'names "none" among'),
            "broken graph": (lambda: self.edit(graph, b'{"graph_module"', b'{"graph_module'), "cannot be read"),
            "outputs": (lambda: self.edit(manifest, b'"layers.0.weight",\n  "layers.0.bias"', b'"layers.0.bias"'),
                        ""),
        }
        for name, (change, message) in cases.items():
            with self.subTest(name):
                job, _ = self.job(Normed)
                change()
                self.assertIn(message, self.refused(job))

    def test_a_graph_without_one_of_its_parts_is_refused(self):
        record = "module/models/FP32.json"
        job, _ = self.job(Normed)
        whole = self.exported[Normed]
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            outer = json.loads(archive.read(record))
        places = [(), ("graph_module",), *(("graph_module", name) for name in ("graph", "signature")),
                  *(("graph_module", "graph", name) for name in outer["graph_module"]["graph"])]
        for place in places:
            for other in (None, []):
                def change(records):
                    root = json.loads(records[record])
                    part = root
                    for name in place[:-1]:
                        part = part[name]
                    if not place:
                        root = other
                    elif other is None:
                        del part[place[-1]]
                    else:
                        part[place[-1]] = other
                    records[record] = json.dumps(root).encode()
                (self.path / "net.pt2").write_bytes(whole)
                self.rewrite(change)
                with self.subTest(place, other=other), tempfile.TemporaryDirectory() as checkpoints:
                    done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", checkpoints], capture_output=True, text=True,
                                          env={**os.environ, **GATE})
                    self.assertGreaterEqual(done.returncode, 0, done.stderr)  # No signal ended it.
                    if place[2:] in ((), ("inputs",), ("outputs",), ("nodes",)):
                        self.assertRegex(done.stderr, "model.exported.*(has a graph FP32 (without|of|that cannot be read)|cannot be loaded)")

    def test_a_truncated_file_is_refused_at_any_length(self):
        job, _ = self.job(Normed)
        whole = (self.path / "net.pt2").read_bytes()
        for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
            (self.path / "net.pt2").write_bytes(whole[:length])
            self.assertIn("net.pt2", self.refused(job))

    def test_data_that_does_not_fit_is_named(self):
        cases = {"missing": ({"label": self.arrays["label"]}, "dataset.arrays has label [] int64"),
                 "shape": ({"x": self.arrays["x"][:, :5], "label": self.arrays["label"]}, "x [5] float32"),
                 "type": ({"x": self.arrays["x"].astype("float64"), "label": self.arrays["label"]}, "x [6] float64")}
        for name, (arrays, message) in cases.items():
            with self.subTest(name):
                told = self.refused(self.job(Normed, arrays=arrays)[0])
                self.assertIn("net.pt2) needs the field x [6] of float32; ", told)
                self.assertIn(message, told)

    def test_a_precision_without_a_graph_is_refused(self):
        job, module = self.job(Normed, "BF16")
        self.assertIn("accepted: FP32, MIXED_BF16, MIXED_FP16; a graph keeps its weights in FP32: use MIXED_FP16 or MIXED_BF16",
                      self.refused(job))
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
        job.write_text(json.dumps({**json.loads(job.read_text()), "precision": {"mode": "MIXED_BF16"}}))
        self.assertIn("has no graph; accepted: FP32; or export the module for it", self.refused(job))

    def test_a_precision_that_nobody_named_and_the_file_has_not_is_fp32(self):
        job, module = self.job(Normed)
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
        spec = json.loads(job.read_text())
        for mode in (None, "AUTO"):
            spec["precision"] = {"mode": mode} if mode else {}
            job.write_text(json.dumps(spec))
            records, _, _ = self.train(job)
            self.assertEqual({record["mode"] for record in records}, {"FP32"})

    def test_a_label_that_the_module_has_no_class_for_is_named(self):
        row = int(numpy.random.default_rng().integers(EXAMPLES - EXAMPLES // 10))
        labels = self.arrays["label"].copy()
        labels[row] = 9
        job, _ = self.job(Normed, arrays={"x": self.arrays["x"], "label": labels})
        said = self.refused(job)
        self.assertRegex(said, rf"rows.npz: the field label of example {row} \(row \d+ of its batch\) is 9; accepted: ")
        self.assertIn("torch says: Target 9 is out of bounds.", said)

    def test_a_loss_that_is_not_finite_is_diagnosed(self):
        for mode in FORMATS:
            job, _ = self.job(Normed, mode, optimizer={"learning_rate": 1e30})
            self.assertRegex(self.refused(job), "FAILURE_CAUSE_NON_FINITE: the (loss|gradients?) became .* in FP32; .*verdict: ")
            job, _ = self.job(Scaled, mode)
            spec = json.loads(job.read_text())
            # The step is computed once more without it, backward too.
            job.write_text(json.dumps({**spec, "rehearsals": [{"kind": "NAN", "at_step": 7}]}))
            with tempfile.TemporaryDirectory() as checkpoints:
                records, output = twin.run_worker(job, checkpoints, environment=GATE)
            self.assertEqual(len(records), STEPS)
            self.assertIn(f"the loss became nan at step 7 in {mode}", output)
            self.assertIn("verdict: data", output)

    # What cannot be exported.

    def test_what_cannot_be_exported_is_told(self):
        path, batch = self.path / "net.pt2", self.batch("x")
        frozen, spoilt = Normed().requires_grad_(False), Normed()
        with torch.no_grad():
            spoilt.layers[3].weight[2, 7] = torch.inf
        cases = [
            (Branching(), batch, {"loss": loss_of}, "decides by values of tensors, which no graph does; use torch.where, at " + __file__),
            (Changed(lambda y: y.view(8, -1)), self.batch("x", 8), {"loss": loss_of}, "it takes batches of 8 alone; x.shape[0] stays a size"),
            (Changed(lambda y: y + 0 * torch.arange(len(y))[:, None]), batch, {"loss": loss_of}, "as in x.view(x.shape[0], -1), at " + __file__),
            (Changed(lambda y: y / len(y)), batch, {"loss": loss_of}, "with 6 examples: "),
            (Changed(lambda y: y / len(y)), batch, {"loss": loss_of}, "a size of the batch became a number: x.shape[0] stays a size"),
            (Changed(lambda y: y * 10 if y.shape[0] > 4 else y), batch, {"loss": loss_of}, "with 2 examples: "),
            (Changed(lambda y: y * 10 if y.shape[0] > 4 else y), batch, {"loss": loss_of}, "a graph goes one way: where batch > 4"),
            (Changed(lambda y: y * y.shape[0] ** 0.5), batch, {"loss": loss_of}, "a size may be added, subtracted, multiplied, divided and compared"),
            (Changed(lambda y: torch.where(y > 0, y.sqrt(), y)), batch, {"loss": loss_of}, "the gradient of layer.weight is not finite"),
            (Kept("self.mean = 0.9 * self.mean + y.detach().mean(0)"), batch, {"loss": loss_of}, "in the second step: what forward keeps in an attribute"),
            (Kept("self.other.weight.data = 0.9 * self.other.weight.data + 0.1 * self.layer.weight.data"), batch, {"loss": loss_of},
             "changes a tensor by .data =, where a graph follows .copy_()"),
            (Kept("y = y * sum(each.detach().norm() for each in self.list)"), batch, {"loss": loss_of}, "once weights have changed: "),
            (Kept("torch.manual_seed(0); y = y + torch.randn(3)"), batch, {"loss": loss_of}, "draws random numbers in another order than its graph"),
            (Turned(), batch, {"loss": loss_of}, "the tensor turn is of torch.complex64; accepted: torch.float32, "),
            (torch.jit.script(Normed()), batch, {"loss": loss_of}, "accepted: the module that torch.jit or torch.compile was given"),
            (Normed().to("meta"), batch, {"loss": loss_of}, "layers.0.weight is on the device meta and has no values"),
            (Changed(lambda y: y - y[y > 0].mean()), batch, {"loss": loss_of}, "needs the operator aten._assert_scalar.default, at " + __file__),
            (Changed(lambda y: y - y[y > 0].mean()), batch, {"loss": loss_of}, "x[mask], makes a size of values: use torch.where"),
            (Changed(lambda y: torch.zeros(y.shape).scatter(1, torch.zeros_like(y, dtype=torch.int64), y)), batch, {"loss": loss_of},
             "it can in FP32: leave MIXED_BF16 out of precisions"),
            (Changed(lambda y: nn.functional.affine_grid(y.view(-1, 1, 3).expand(-1, 2, 3), (y.shape[0], 1, 2, 2), align_corners=False).flatten(1)),
             batch, {"loss": loss_of}, "takes no size that depends on the batch; write it with others, at " + __file__),
            (nn.Flatten(), batch, {"loss": loss_of}, "has no parameter with requires_grad"),
            (frozen, batch, {"loss": loss_of}, "has no parameter with requires_grad"),
            (loss_of, batch, {"loss": loss_of}, "module is a function; accepted: a torch.nn.Module"),
            (nn.LazyLinear(3), batch, {"loss": loss_of}, "module is lazy and has no shapes yet; run the module on a batch before"),
            (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None)), batch, {"loss": loss_of}, "1 has momentum=None"),
            (Normed().double(), batch, {"loss": loss_of}, "layers.0.weight is of torch.float64"),
            (spoilt, batch, {"loss": loss_of}, "the parameter layers.3.weight is inf at [2, 7]; accepted: finite numbers"),
            (Normed(), batch, {"loss": lambda module, fields: module(fields["x"])}, "a tensor [5, 3] of torch.float32"),
            (Normed(), batch, {"loss": lambda module, fields: fields["x"].sum()}, "depends on no parameter"),
            (Normed(), batch, {"loss": "crossentropy"}, "loss is 'crossentropy'"),
            (Normed(), batch, {"loss": "mse"}, "no field 'target'"),
            (Normed(), {"x": batch["x"], "target": batch["label"].int()}, {"loss": "cross_entropy"}, "batch['target'] is of torch.int32; accepted "),
            (Normed(), {"x": batch["x"], "target": batch["label"]}, {"loss": "huber"}, "accepted with loss='huber': torch.float32"),
            (Normed(), {"x": batch["x"], "target": batch["label"].float()}, {"loss": "mse"},
             "Normed gives a tensor [5, 3] of torch.float32, and batch['target'] is a tensor [5] of torch.float32; accepted with loss='mse': one shape"),
            (Normed(), {}, {"loss": loss_of}, "batch is empty"),
            (Normed(), {"x": batch["x"], "label": batch["label"][:3]}, {"loss": loss_of}, "the same number"),
            (Normed(), self.batch("x", 1), {"loss": loss_of}, "2 or more"),
            (Normed(), {"x": [1, 2]}, {"loss": loss_of}, "is a list"),
            (Normed(), batch, {"loss": loss_of, "precisions": ["BF16"]}, "precisions is ['BF16']"),
            (Normed(), batch, {"loss": lambda module, fields: module(fields["x"]).sum() * float("nan")}, "the loss is nan on the batch"),
            (Bags(sparse=False), self.batch("word"), {"loss": loss_of}, "Bags needs the operator aten._embedding_bag.default, at " + __file__),
            (Bags(sparse=False), self.batch("word"), {"loss": loss_of},
             "which no worker runs; write torch.nn.Embedding(...)(indices).sum(1), or mean(1), in place of EmbeddingBag"),
            (Bags(sparse=True), self.batch("word"), {"loss": loss_of}, "which no worker runs; leave out sparse=True"),
            (Merged(), batch, {"loss": loss_of}, "Merged.eval() changes weight, as merged weights do"),
            (Merged().eval(), batch, {"loss": loss_of}, "Merged.train() changes weight, as merged weights do"),
            (Kept("y = y - y.mean(0) if not self.training and y.shape[0] < 32 else y"), batch, {"loss": loss_of}, "one way: where batch < 32"),
            (hooked("register_hook"), batch, {"loss": loss_of}, "the parameter weight has a hook of its gradient"),
            (hooked("register_post_accumulate_grad_hook"), batch, {"loss": loss_of}, "the parameter weight has a hook of its gradient"),
            (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3).eval()), batch, {"loss": loss_of}, "1 is in eval mode, and the module in train mode"),
            (Padded(), batch, {"loss": loss_of}, "make it with enable_nested_tensor=False"),
            (Normed(), batch, {"loss": nn.CrossEntropyLoss()}, "loss is torch.nn.CrossEntropyLoss, which takes an output and a target; accepted: "),
            (Normed(), batch, {"loss": nn.functional.mse_loss}, "mse_loss(module(batch['x']), batch['target'])"),
            (Changed(lambda y: (y, y)), {"x": batch["x"], "target": batch["label"]}, {"loss": "cross_entropy"}, "Changed gives a tuple; accepted"),
            (Normed(), {"x": batch["x"], "target": batch["label"][:, None]}, {"loss": "cross_entropy"}, "loss='cross_entropy': the shape [5]"),
            (Changed(lambda y: {"boxes": y}), {"x": batch["x"]}, {}, "Changed gives a dict of boxes; accepted without loss=: one with loss"),
            (Normed(), batch, {}, "forward of Normed: got an unexpected keyword argument 'label'; without loss=, Normed(**batch) must return it"),
            (Kept("y = y if self.training else y * len(y)"), batch, {"loss": loss_of},
             "differ in the held-out loss, in eval mode, with 6 examples: "),
            (Kept("y = y if self.training else y * sum(each.detach().norm() for each in self.list)"), batch, {"loss": loss_of},
             "in eval mode, with 5 examples: "),
            (Changed(lambda y: y * y.detach().max().item()), batch, {"loss": loss_of}, "keep it a tensor, without item(), tolist() or float()"),
            (Changed(lambda y: y * torch.unique(y.detach() > 0).sum()), batch, {"loss": loss_of}, "torch.nn.functional.one_hot(x, n).sum(0)"),
            (Changed(lambda y: y + torch.tensor(y.detach().numpy().mean())), batch, {"loss": loss_of}, "values to NumPy, which no graph does"),
            (Changed(lambda y: y + torch.randn(3, generator=GENERATOR)), batch, {"loss": loss_of}, "leave out generator=, and the job's seed decides"),
            (Changed(lambda y: torch.distributions.Normal(y, 1.0).rsample()), batch, {"loss": loss_of}, "give validate_args=False, at " + __file__),
            (Changed(packed), batch, {"loss": loss_of}, "give whole sequences, and multiply what is behind their ends by a mask"),
            (Changed(lambda y: nn.functional.ctc_loss(y.log_softmax(1).expand(4, -1, -1), torch.ones(y.shape[0], 2), torch.full(y.shape[:1], 4),
                                                      torch.full(y.shape[:1], 2))), batch, {"loss": lambda module, fields: module(fields["x"])},
             "ctc_loss reads lengths as numbers, one for each example"),
            (nn.Embedding(7, 3, max_norm=1.0), self.batch("word"), {"loss": lambda module, fields: module(fields["word"]).sum()},
             "leave out max_norm= of Embedding"),
            (Changed(lambda y: y.sum() + "1"), batch, {}, "forward of Changed: got an unexpected keyword argument 'label'; without loss=, "),
            (Changed(lambda y: y.sum() + "1"), {"x": batch["x"]}, {}, "Changed fails on the batch: TypeError: unsupported operand type(s) for +"),
            (Kept("y = y if self.training else {'boxes': y}"), batch, {"loss": loss_of}, "Kept fails on the batch in eval mode, in which "),
            (Normed(), batch, {"loss": lambda module, fields: loss_of(module, fields) if module.training else module(fields["x"])},
             "in eval mode the loss is a tensor [5, 3] of torch.float32; accepted: "),
        ]
        for module, fields, options, message in cases:
            with self.subTest(message):
                with self.assertRaises(genesis.ExportError) as caught:
                    genesis.export(module, fields, path, **options)
                self.assertIn(message, str(caught.exception))
                self.assertFalse(path.exists())

    def test_a_module_is_left_as_it_was(self):
        class Clamped(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    self.weight.clamp_(-0.1, 0.1)
                return super().forward(x)

        for module in (Clamped(6, 3), Merged(), Counting(), Recomputed(), Padded(enable_nested_tensor=False)):
            before = copy.deepcopy(module.state_dict())
            with self.subTest(type(module).__name__), contextlib.suppress(genesis.ExportError):
                genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
            for name, tensor in module.state_dict().items():
                self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_the_page_trains_as_it_stands_there(self):
        page = (pathlib.Path(os.environ["GENESIS_SOURCE"]) / "docs" / "exported_modules.md").read_text()
        code, job = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "yaml"))
        subprocess.run([sys.executable, "-c", code], cwd=self.path, check=True)
        numpy.savez(self.path / "rows.npz", x=self.arrays["x"], target=self.arrays["label"])
        spec = self.path / "job.yaml"
        spec.write_text(job.replace(" net.pt2", f" {self.path}/net.pt2").replace(" rows.npz", f" {self.path}/rows.npz")
                        + "  batch_size: 12\n")
        records, last, _ = self.train(spec)
        self.assertEqual(len(records), 90)
        self.assertEqual(set(last["model_state_dict"]), {"0.weight", "0.bias", "2.weight", "2.bias"})

    def test_threads_may_export_at_once_and_after_others_have_ended(self):
        # In a process of its own, whose main thread traces nothing before.
        code = """
import multiprocessing, sys, threading, torch, genesis
def loss(module, batch):
    return module(batch["x"]).square().mean()
def export(name):
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Sigmoid())
    genesis.export(module, {"x": torch.randn(5, 6)}, f"{sys.argv[1]}/{name}.pt2", loss=loss, precisions=["FP32"])
def in_threads(*names):
    threads = [threading.Thread(target=export, args=(name,)) for name in names]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
in_threads("first")
in_threads("second", "third")
export("main")
child = multiprocessing.get_context("fork").Process(target=in_threads, args=("child",))
child.start()
child.join()
"""
        subprocess.run([sys.executable, "-c", code, self.path], check=True)
        self.assertEqual({path.stem for path in self.path.glob("*.pt2")}, {"first", "second", "third", "main", "child"})

    def test_a_size_that_an_operator_reads_as_a_number_does_not_tie_the_batch(self):
        """reshape_as reads sizes in C++; the trace that has the batch as its only symbol must keep it all the same."""
        class Like(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

            def forward(self, x):
                rows = self.layer(x.unsqueeze(1).expand(-1, 2, -1))
                return self.norm(rows.flatten(0, 1)).reshape_as(rows).mean(1)

        ways = []
        every_size = tracing.by_every_size
        with mock.patch.object(tracing, "by_every_size", lambda *a: ways.append(a) or every_size(*a)):
            genesis.export(Like(), self.batch("x"), self.path / "net.pt2", loss=loss_of)
        self.assertEqual(ways, [])

    def test_export_leaves_the_module_alone(self):
        torch.manual_seed(9)
        module = Normed().eval()
        module.layers[1].train()
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        state = torch.get_rng_state()
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of)
        self.assertEqual([part.training for part in module.layers], [False, True, *[False] * (len(module.layers) - 2)])
        self.assertFalse(module.training)
        self.assertTrue(torch.equal(state, torch.get_rng_state()))
        self.assertTrue(all(parameter.grad is None for parameter in module.parameters()))
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)


if __name__ == "__main__":
    unittest.main()
