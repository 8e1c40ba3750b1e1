"""Tests that graphs of recurrent layers compute what eager Python does, with few operators."""

import collections
import json
import unittest
import zipfile

import torch
from exported_jobs import ExportedJobs
from torch import nn

import genesis
from genesis.exporting import runtime

STEPS = 6


class Layers(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(3, 4, batch_first=True, **options)
        self.head = nn.LazyLinear(3)
        self(torch.zeros(2, STEPS, 3))

    def forward(self, x):
        out, last = self.layers(x)
        states = last if isinstance(last, tuple) else (last,)
        return self.head(torch.cat([out.mean(1), *(state.transpose(0, 1).flatten(1) for state in states)], 1))


class Recurrent(ExportedJobs):
    def exported(self, module, steps=STEPS):
        """Returns the manifest of the module's file, its FP32 graph, and the constants of the graph."""
        path = self.path / "net.pt2"
        genesis.export(module, {"x": torch.randn(5, steps, 3), "target": torch.randint(0, 3, (5,))}, path, loss="cross_entropy", precisions=["FP32"])
        with zipfile.ZipFile(path) as archive:
            records = {name.removeprefix("module/"): archive.read(name) for name in archive.namelist()}
        manifest = json.loads(records["extra/genesis.json"])
        constants = [torch.frombuffer(bytearray(records[f"extra/tensors/{number}"]), dtype=getattr(torch, each["type"])).reshape(each["shape"])
                     for number, each in enumerate(manifest["tensors"]) if each["name"] in manifest["constants"]["FP32"]]
        graph = {name: content for name, content in records.items() if not name.startswith("extra/") and "evaluation" not in name}
        return manifest, graph, constants

    def test_losses_and_gradients_are_those_of_eager_mode(self):
        for kind, options in ((nn.GRU, {"num_layers": 2, "bidirectional": True}), (nn.GRU, {"bias": False}),
                              (nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.LSTM, {"proj_size": 2}),
                              (nn.LSTM, {"proj_size": 2, "bias": False, "bidirectional": True}),
                              (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}), (nn.RNN, {"bias": False})):
            with self.subTest(kind.__name__, **options):
                torch.manual_seed(7)
                module = Layers(kind, **options)
                manifest, graph, constants = self.exported(module)
                x, target = torch.randn(8, STEPS, 3), torch.randint(0, 3, (8,))
                with torch.backends.mkldnn.flags(enabled=False):
                    wanted = nn.functional.cross_entropy(module(x), target)
                wanted.backward()
                named = dict(module.named_parameters())
                loss, *gradients = runtime.Graph("FP32", graph)(torch.tensor(1.0), x, target, *(each.detach().clone() for each in named.values()),
                                                                *constants)
                self.assertEqual(loss.item(), wanted.item())
                for name, gradient in zip(manifest["gradients"], gradients, strict=True):
                    # A GRU's eager kernels may add the gradients of a weight in another order.
                    tolerance = 1e-6 if kind is nn.GRU else 0.0
                    torch.testing.assert_close(gradient, named[name].grad, rtol=0.0, atol=tolerance, msg=name)

    def test_a_step_neither_broadcasts_nor_changes_shapes(self):
        def counts(steps):
            _, graph, _ = self.exported(Layers(nn.GRU), steps)
            return collections.Counter(node["target"].split(".")[-2] for node in json.loads(graph["models/FP32.json"])["graph_module"]["graph"]["nodes"])

        more = counts(12)
        more.subtract(counts(6))
        # For each step: the sum of the gradient of the bias, which keeps its dimension, and a view without it.
        self.assertEqual({name: more[name] for name in ("sum", "reshape", "view", "unsqueeze", "squeeze", "expand", "detach")},
                         {"sum": 6, "reshape": 6, "view": 0, "unsqueeze": 0, "squeeze": 0, "expand": 0, "detach": 0})


if __name__ == "__main__":
    unittest.main()
