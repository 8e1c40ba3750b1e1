"""Tests genesis.export: its graphs, its error messages, and that it does not change the module."""

import contextlib
import copy
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile
from unittest import mock

import exported_jobs
import numpy
import tiers
import torch
from exported_jobs import (Bags, Branching, Changed, Counting, ExportedJobs, Kept, LastState, Merged, Normed, Padded, Recomputed, Scaled, Sliced,
                           Turned, Unmoved, hooked, loss_of, packed)
from torch import nn

import genesis
from genesis.exporting import tracing

GENERATOR = torch.Generator()


def on_one_processor():
    """Makes an export trace all graphs in this process."""
    return mock.patch.object(os, "sched_getaffinity", lambda process: {0})


class Exporting(ExportedJobs):
    @tiers.nightly
    def test_a_gradient_that_is_rounding_alone_is_no_difference(self):
        torch.manual_seed(0)
        module, generator = Unmoved(), numpy.random.default_rng(7)
        x = torch.tensor(generator.normal(size=(16, 7)), dtype=torch.float32)
        target = torch.tensor(generator.normal(size=module(x).shape), dtype=torch.float32)
        for size in 4, 6, 8, 16:
            genesis.export(module, {"x": x[:size], "target": target[:size]}, self.path / f"{size}.pt2", loss="huber", precisions=["FP32"])

    def operators(self):
        """Returns the operators of the FP32 graph in the latest exported file in order, such as ("mul", "Tensor")."""
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            nodes = json.loads(archive.read("module/models/FP32.json"))["graph_module"]["graph"]["nodes"]
        return [tuple(node["target"].split(".")[3:]) for node in nodes if node["target"].startswith("torch.ops.aten.")]

    def test_numbers_that_multiply_are_tensors(self):
        self.job(Scaled)
        operators = self.operators()
        self.assertNotIn(("mul", "Scalar"), operators)
        # The numbers 0.5, 0.25 and 2 are used in forward and backward.
        self.assertEqual(operators.count(("full", "default")), 3, operators)

    def test_a_slice_of_all_is_no_operator(self):
        self.job(Sliced)
        targets = [name for name, *_ in self.operators()]
        # The slices are [:, :, 1:], [:, 2:, :] and [:, :4, :]. The first and the last have a gradient.
        self.assertLessEqual(targets.count("slice_backward"), 3, targets)
        self.assertGreater(targets.count("slice"), 0, targets)

    @tiers.nightly
    def test_what_cannot_be_exported_is_told(self):
        path, batch = self.path / "net.pt2", self.batch("x")
        frozen, spoilt = Normed().requires_grad_(False), Normed()
        with torch.no_grad():
            spoilt.layers[3].weight[2, 7] = torch.inf
        expanded, sparse = Normed(), Normed()
        expanded.layers[0].weight = nn.Parameter(expanded.layers[0].weight[:1].detach().expand_as(expanded.layers[0].weight))
        sparse.layers[0].weight = nn.Parameter(sparse.layers[0].weight.detach().to_sparse())
        cases = [
            (Branching(), batch, {"loss": loss_of},
             "decides by values of tensors, which no graph does; use torch.where, at " + exported_jobs.__file__),
            (Changed(lambda y: y.view(8, -1)), self.batch("x", 8), {"loss": loss_of}, "it takes batches of 8 alone; x.shape[0] stays a size"),
            (Changed(lambda y: y + 0 * torch.arange(len(y))[:, None]), batch, {"loss": loss_of}, "as in x.view(x.shape[0], -1), at " + __file__),
            (Changed(lambda y: y / len(y)), batch, {"loss": loss_of}, "with 6 examples: "),
            (Changed(lambda y: y / len(y)), batch, {"loss": loss_of}, "a size of the batch became a number: x.shape[0] stays a size"),
            (Changed(lambda y: y * 10 if y.shape[0] > 4 else y), batch, {"loss": loss_of}, "with 2 examples: "),
            (Changed(lambda y: y * 10 if y.shape[0] > 4 else y), batch, {"loss": loss_of}, "a graph goes one way: where batch > 4"),
            (Changed(lambda y: y * torch.sym_max(y.shape[0], 3)), batch, {"loss": loss_of}, "a size may be added, subtracted, multiplied, divided and compared"),
            (Changed(lambda y: torch.where(y > 0, y.sqrt(), y)), batch, {"loss": loss_of}, "the gradient of layer.weight is not finite"),
            (Kept("self.mean = 0.9 * self.mean + y.detach().mean(0)"), batch, {"loss": loss_of}, "weights and buffers: what forward keeps in mean is not "),
            (Kept("self.mean += 0.1 * y.detach().mean(0)"), batch, {"loss": loss_of}, "what forward keeps in mean is not part of a graph"),
            (Kept("y = y + sum(self.seen); self.seen.append(y.detach().mean(0))"), batch, {"loss": loss_of}, "what forward keeps in seen is not "),
            (Kept("self.calls += 1; y = y * min(1, self.calls / 1e6)"), batch, {"loss": loss_of}, "Kept changes the number calls in each step"),
            (Kept("self.calls = (self.calls + 1) % 4; y = y.tanh() if self.calls == 3 else y"), batch, {"loss": loss_of}, "the number calls in "),
            (Kept("self.memo = getattr(self, 'memo', {'n': [0]}); self.memo['n'][0] += 1; y = y * (1 if self.memo['n'][0] < 200 else 3)"), batch,
             {"loss": loss_of}, "forward of Kept changes memo['n'][0] in each step"),
            (Kept("self.t = getattr(self, 't', torch.zeros(())) + 1; y = torch.where(self.t > 200, 3 * y, y)"), batch, {"loss": loss_of},
             "forward of Kept changes t in each step"),
            (Kept("self.t = getattr(self, 't', torch.zeros(())); self.t += 1; y = torch.where(self.t > 200, 3 * y, y)"), batch, {"loss": loss_of},
             "forward of Kept changes t in each step"),
            (Kept("import random; y = 0 * y if random.random() < 0.001 else y"), batch, {"loss": loss_of}, "draws with random or numpy.random"),
            (Kept("import numpy; y = 0 * y if numpy.random.uniform(0, 9) > 8.99 else y"), batch, {"loss": loss_of}, "choose with torch.where"),
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
            (Changed(lambda y: nn.functional.interpolate(y.view(-1, 1, 1, 3), size=(1, 4), mode="bicubic", antialias=True).flatten(1)), batch,
             {"loss": loss_of}, "takes no size that depends on the batch; write it with others, at " + __file__),
            (Changed(lambda y: y + y.topk(3, dim=0).values.mean(0)), batch, {"loss": loss_of}, "where 3 <= batch"),
            (Normed(), {"x": batch["x"], "target": torch.full((5,), -100)}, {"loss": "cross_entropy"}, "and for labels that are all ignored"),
            (nn.Flatten(), batch, {"loss": loss_of}, "has no parameter with requires_grad"),
            (frozen, batch, {"loss": loss_of}, "has no parameter with requires_grad"),
            (loss_of, batch, {"loss": loss_of}, "module is a function; accepted: a torch.nn.Module"),
            (nn.LazyLinear(3), batch, {"loss": loss_of}, "module is lazy and has no shapes yet; run the module on a batch before"),
            (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None)), batch, {"loss": loss_of}, "1 has momentum=None"),
            (Normed(), {**batch, "x": batch["x"].double()}, {"loss": loss_of},
             "batch['x'] is of torch.float64 and the weights are of torch.float32: make the field float32"),
            (Normed().double(), batch, {"loss": loss_of}, "layers.0.weight is of torch.float64"),
            (expanded, batch, {"loss": loss_of}, "the parameter layers.0.weight is expanded: several of its elements are one number"),
            (sparse, batch, {"loss": loss_of}, "layers.0.weight is of the layout torch.sparse_coo; accepted: torch.strided"),
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
            (Bags(sparse=False), self.batch("word"), {"loss": loss_of},
             "Bags needs the operator aten._embedding_bag.default, at " + exported_jobs.__file__),
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

    def test_a_container_that_grows_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, r"changes len\(seen\) in each step, which its graph does not do"):
            genesis.export(Kept("self.seen.append(1.0); y = y * (1 if len(self.seen) < 40 else 2)"), self.batch("x"), self.path / "net.pt2",
                           loss=loss_of, precisions=["FP32"])

    def test_results_that_are_only_kept_are_no_state(self):
        for line in ("self.last = y.detach()", "self.log = {'output': [y.detach().mean(0)], 'rows': y.shape[0]}", "self.seen.append(y.detach())"):
            with self.subTest(line):
                genesis.export(Kept(line), self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])

    def test_class_probabilities_are_targets_of_any_batch(self):
        fields = {**self.batch("x"), "target": torch.rand(5, 3).softmax(1)}
        for options in ({}, {"label_smoothing": 0.1, "weight": torch.tensor([1.0, 2.0, 0.5])}, {"reduction": "sum"}):
            with self.subTest(str(options)):
                genesis.export(Normed(), fields, self.path / "net.pt2", precisions=["FP32", "MIXED_BF16"],
                               loss=lambda module, batch: nn.functional.cross_entropy(module(batch["x"]), batch["target"], **options))

    def test_an_extra_state_is_warned_of(self):
        class Extra(Normed):
            def get_extra_state(self):
                return {"version": 2}

        with self.assertWarnsRegex(UserWarning, r"module has get_extra_state\(\), .*strict=False"):
            genesis.export(Extra(), self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])

    def test_a_module_is_left_as_it_was(self):
        class Clamped(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    self.weight.clamp_(-0.1, 0.1)
                return super().forward(x)

        keeping = Kept("self.mean += 1; self.seen.append(y); self.calls += 1")
        for module in (Clamped(6, 3), Merged(), Counting(), Recomputed(), Padded(enable_nested_tensor=False), keeping):
            before = copy.deepcopy(module.state_dict())
            with self.subTest(type(module).__name__), contextlib.suppress(genesis.ExportError):
                genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
            for name, tensor in module.state_dict().items():
                self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertEqual((keeping.mean.tolist(), keeping.seen, keeping.calls), ([0.0] * 3, [], 0))

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

    @tiers.nightly
    def test_threads_may_export_at_once_and_after_others_have_ended(self):
        # Runs in another process, whose main thread has not traced anything before.
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
        """reshape_as reads sizes in C++. The trace with the batch size as its only symbol must keep it symbolic."""
        class Like(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

            def forward(self, x):
                rows = self.layer(x.unsqueeze(1).expand(-1, 2, -1))
                return self.norm(rows.flatten(0, 1)).reshape_as(rows).mean(1)

        ways = []
        every_size = tracing.by_every_size
        with mock.patch.object(tracing, "by_every_size", lambda *a: ways.append(a) or every_size(*a)), on_one_processor():
            genesis.export(Like(), self.batch("x"), self.path / "net.pt2", loss=loss_of)
        self.assertEqual(ways, [])

    def test_each_graph_is_traced_once(self):
        images = {"x": torch.randn(5, 3, 8, 8), "target": torch.randint(0, 3, (5,))}
        convolutional = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
        with mock.patch.object(torch.export, "export", side_effect=AssertionError("traced again")):
            rows = {"x": torch.randn(5, 6), "target": images["target"]}
            for module, batch in ((Normed(), rows), (convolutional, images), (LastState(), rows)):
                genesis.export(module, batch, self.path / "net.pt2", loss="cross_entropy")

    def test_what_is_done_is_said(self):
        def export():
            with on_one_processor():
                genesis.export(Normed(), self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32", "MIXED_BF16"])

        with mock.patch.object(sys, "stderr", io.StringIO()) as errors, self.assertLogs("genesis", "INFO") as logs:
            export()
        said = [re.sub(r" \([0-9.]+ s\)$", "", record.getMessage()) for record in logs.records]
        self.assertEqual(said, [f"exporting Normed: {what}" for what in (
            "running it in Python", "tracing FP32", "comparing FP32 with Python", "tracing MIXED_BF16", "comparing MIXED_BF16 with Python",
            "tracing the held-out loss", "comparing the held-out loss with Python", "writing the file", "done")])
        self.assertNotIn("exporting", errors.getvalue())
        with mock.patch.object(sys, "stderr", io.StringIO()) as errors, self.assertNoLogs("genesis"):
            errors.isatty = lambda: True
            export()
        lines = errors.getvalue().split("\r\033[K")
        self.assertTrue(lines[2].startswith("exporting Normed: tracing FP32 ("), lines)
        self.assertEqual(lines[-1], "")  # The line is cleared at the end.

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
