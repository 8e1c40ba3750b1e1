"""Modules that map six numbers to three classes, with states, attention or norms, and with weights in lists, shared, viewed or frozen."""

import torch
from torch import nn


def halves(x):
    """Views six numbers as a sequence of two steps."""
    return x.view(-1, 2, 3)


class BothWays(nn.Module):
    """A bidirectional LSTM, which keeps its weights in a list."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True), nn.Linear(10, 3)

    def forward(self, x):
        return self.head(self.layers(halves(x))[0][:, -1])


class LastStates(nn.Module):
    def __init__(self):
        super().__init__()
        self.long, self.gated, self.head = nn.LSTM(3, 5, proj_size=4, batch_first=True), nn.GRU(3, 2, batch_first=True), nn.Linear(11, 3)

    def forward(self, x):
        _, (hidden, cell) = self.long(halves(x))
        return self.head(torch.cat([hidden[0], cell[0], self.gated(halves(x))[1][0]], 1))


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.long, self.gated, self.plain, self.head = nn.LSTMCell(3, 5), nn.GRUCell(5, 4), nn.RNNCell(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        hidden, cell = self.long(x[:, :3])
        hidden, cell = self.long(x[:, 3:], (hidden, cell))
        return self.head(self.plain(self.gated(hidden)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Linear(3, 8), nn.Linear(8, 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        hidden = self.layer(self.embedding(halves(x)))
        return self.head(self.attention(hidden, hidden, hidden)[0].mean(1))


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 3) for _ in range(3)])
        self.free = nn.ParameterList([nn.Parameter(torch.randn(6, 3)) for _ in range(2)])
        self.named = nn.ModuleDict({"scale": nn.Linear(6, 3)})

    def forward(self, x):
        total = self.named["scale"](x)
        for layer in self.layers:
            total = total + torch.tanh(layer(x))
        for matrix in self.free:
            total = total + x @ matrix
        return total


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(2, 4, 2, padding=1), nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
                                    nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.PReLU(4), nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(halves(x))


class Follower(nn.Module):
    """A frozen part that follows a trained one."""

    def __init__(self):
        super().__init__()
        self.online, self.target, self.head = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)
        for parameter in self.target.parameters():
            parameter.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            # Runs in eval mode too, where it must not change the state.
            self.target.weight.mul_(0.9).add_(0.1 * self.online.weight)
            self.target.bias.mul_(0.9).add_(0.1 * self.online.bias)
            aim = torch.tanh(self.target(x))
        return self.head(torch.tanh(self.online(x)) - 0.5 * aim)


class Part(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight, self.bias = weight, nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


class Shared(nn.Module):
    """A weight that two parts share, one that is a view, and one that is frozen."""

    def __init__(self):
        super().__init__()
        weight, both = nn.Parameter(0.1 * torch.randn(3, 6)), torch.randn(6, 6)
        self.first, self.second = Part(weight), Part(weight)
        self.view, self.frozen = nn.Parameter(both[3:].t()), nn.Parameter(both[:3], requires_grad=False)

    def forward(self, x):
        return self.first(x) + self.second(x * x) + x @ self.view + x @ self.frozen.t()


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs, self.norm, self.head = nn.Bilinear(3, 3, 5), nn.LayerNorm(5), nn.Linear(5 + 8, 3)
        self.words, self.others = nn.Embedding(7, 4), nn.Embedding(7, 4, padding_idx=0)

    def forward(self, x):
        word = (3 * x.abs()).long().clamp(0, 6)
        return self.head(torch.cat([self.norm(self.pairs(x[:, :3], x[:, 3:])), self.words(word).mean(1), self.others(word).sum(1)], 1))


class Normalized(nn.Module):
    """A weight that forward computes."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.GRU(3, 5, 2, batch_first=True), nn.utils.parametrizations.weight_norm(nn.Linear(5, 3))

    def forward(self, x):
        return self.head(self.layers(halves(x))[0][:, -1])


class Selective(nn.Module):
    """One weight is never used."""

    def __init__(self):
        super().__init__()
        self.first, self.never, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


KINDS = (BothWays, LastStates, Cells, Attention, Ensemble, Norms, Follower, Shared, Pairs, Normalized)
RECURRENT = (BothWays, LastStates, Cells)
