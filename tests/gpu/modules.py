"""Modules for genesis.export, and the loop that trains them in Python on the device."""

import copy

import numpy
import torch
from torch import nn
from torch.nn import functional

from machine import DEVICE, ON_CUDA

EXAMPLES, SEED = 80, 3
BATCH, STEPS = (32, 40) if ON_CUDA else (8, 10)
FORMATS = {"MIXED_FP16": torch.float16, "MIXED_BF16": torch.bfloat16}


class Block(nn.Module):
    """A transformer block with layer norms, whose query heads share keys and values."""

    def __init__(self, width, heads, shared):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm, self.before = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.others = nn.Linear(width, 2 * width // shared)
        self.out = nn.Linear(width, width)
        self.rest = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        normal = self.norm(x)
        query = self.query(normal).view(batch, length, self.heads, self.size).transpose(1, 2)
        key, value = self.others(normal).view(batch, length, 2, self.heads // self.shared, self.size).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None, enable_gqa=self.shared > 1)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.rest(self.before(x))


class Language(nn.Module):
    """A causal language model whose output layer is tied to its embedding."""

    def __init__(self, words=64, width=64, heads=4, shared=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, shared) for _ in range(2))
        # Not in state_dict(), like the tables of rotary embeddings.
        self.register_buffer("places", torch.linspace(0, 1, 1024).unsqueeze(1), persistent=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.places[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(x, self.embedding.weight)


class Masked(nn.Module):
    """Attention with a mask, heads of 12 elements and sequences of 21, sizes for which no kernel is optimized."""

    def __init__(self):
        super().__init__()
        self.first, self.block, self.head = nn.Linear(5, 24), Block(24, 2, 1), nn.Linear(24, 3)

    def forward(self, x, seen):
        return self.head(self.block(self.first(x), seen[:, None, None, :])).mean(1)


class Vision(nn.Module):
    """A convolutional network with batch norm and group norm, and a mean over a transposed tensor."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32), nn.GroupNorm(8, 32),
            nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, stride=2))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, image):
        x = self.layers(image)
        return self.head(self.norm(x.flatten(2).transpose(1, 2)).mean(1))


def language(model, batch):
    return functional.cross_entropy(model(batch["ids"])[:, :-1].flatten(0, 1).float(), batch["ids"][:, 1:].flatten())


def masked(model, batch):
    return functional.mse_loss(model(batch["x"], batch["seen"]).float(), batch["y"])


def vision(model, batch):
    return functional.cross_entropy(model(batch["image"]).float(), batch["label"])


def all_of_them():
    """Returns {name: (module, arrays, loss)}, with the same weights and data in each process."""
    chooser = numpy.random.default_rng(0)
    torch.manual_seed(0)
    length = 128 if ON_CUDA else 16
    seen = chooser.random((EXAMPLES, 21)) < 0.7
    seen[:, 0] = True
    return {
        "language": (Language(), {"ids": chooser.integers(0, 64, (EXAMPLES, length))}, language),
        "masked": (Masked(), {"x": chooser.normal(size=(EXAMPLES, 21, 5)).astype("float32"), "seen": seen,
                              "y": chooser.normal(size=(EXAMPLES, 3)).astype("float32")}, masked),
        "vision": (Vision(), {"image": chooser.normal(size=(EXAMPLES, 3, 24, 24)).astype("float32"),
                              "label": chooser.integers(0, 10, EXAMPLES)}, vision)}


def train(module, arrays, loss, mode):
    """Trains in Python. Returns the losses of the steps."""
    import twin

    torch.backends.cudnn.allow_tf32 = False  # On by default for convolutions, but off in genesis-worker.
    module = copy.deepcopy(module).train().to(DEVICE)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler(DEVICE, enabled=mode == "MIXED_FP16")
    data = {name: torch.tensor(array).to(DEVICE) for name, array in arrays.items()}
    order = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, SEED)
    losses = []
    for _ in range(STEPS):
        rows = next(order).to(DEVICE)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, FORMATS.get(mode, torch.bfloat16), enabled=mode != "FP32"):
            now = loss(module, {name: tensor[rows] for name, tensor in data.items()}).float()
        scaler.scale(now).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(now.detach())
    return [each.item() for each in losses]
