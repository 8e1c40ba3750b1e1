"""Tests modules whose traced graphs have other memory layouts than the worker's runtime. They train as in Python, or the export reports why
they cannot."""

import tempfile
import unittest
from unittest import mock

import torch
import tiers
import twin
from exported_jobs import BATCH, EXAMPLES, FORMATS, GATE, STEPS, Changed, ExportedJobs
from torch import nn

import genesis
from genesis.exporting import for_nativert, packed, runtime

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


class Formatted(nn.Module):
    """A module that convolves maps in a memory format set by ``change``, and then views them as rows."""

    def __init__(self, change, dimensions=2):
        super().__init__()
        self.change, self.dimensions = change, dimensions
        self.first, self.head = (nn.Conv2d if dimensions == 2 else nn.Conv3d)(1, 4, 2), nn.LazyLinear(3)
        self(torch.zeros(2, 6))

    def forward(self, x):
        maps = x.view(-1, 1, 2, 3) if self.dimensions == 2 else x.view(-1, 1, 2, 3, 1).expand(-1, -1, -1, -1, 2)
        maps = self.change(torch.relu(self.first(self.change(maps))))
        return self.head(maps.flatten(1))


class Attending(nn.Module):
    """An attention layer with a mask whose heads are innermost in memory. Its output is viewed as words without a copy, as in
    ModernBERT."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out, self.head = nn.Embedding(7, 8), nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, word):
        hidden = self.words(word)
        qkv = self.qkv(hidden).view(*word.shape, 3, 2, 4)
        query, key, value = qkv.transpose(3, 1).unbind(dim=2)
        mask = (torch.arange(4)[:, None] - torch.arange(4)).abs() <= 2
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.head(self.out(attended.transpose(1, 2).reshape(*word.shape, -1)).view(-1, 4, 8).mean(1))


class Experts(nn.Module):
    """A mixture of experts: rows are sorted by the expert that each selects, and multiplied in groups."""

    def __init__(self, width=12):
        super().__init__()
        self.spread, self.gate, self.head = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(width, 3)
        self.weight = nn.Parameter(torch.randn(4, 8, width) * 0.4)

    def forward(self, x):
        x = torch.tanh(self.spread(x)).float()
        share, chosen = self.gate(x).float().softmax(1).max(1)
        chosen, order = torch.sort(chosen)
        ends = torch.histc(chosen.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        grouped = torch.nn.functional.grouped_mm(x[order], self.weight, offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return self.head(grouped[back] * share[:, None])


class Gaps(nn.Module):
    """A module that multiplies a copy of a strided tensor by the batch size, and fills and draws in the layout of a transposed tensor."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(4, 3)

    def forward(self, x):
        hidden = self.layer(x)
        kept = hidden[:, ::2].clone() * (x.shape[0] / 12)
        turned = hidden.view(-1, 2, 4).transpose(1, 2)
        noise = torch.full_like(turned, 0.5).bernoulli_(0.5)
        return self.head(kept + (turned * noise).sum(2))


class Written(nn.Module):
    """A module that writes to a view and then reads the viewed tensor."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.layer(x).clone()
        hidden.view(-1, 2, 4)[:, 0].mul_(0.5)
        return self.head(hidden)


class Leaning(nn.Module):
    """A module with a transposed buffer, to which it writes through a view, and a transposed weight that it views."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(6, 3).t())
        self.weight = nn.Parameter(torch.randn(6, 3).t())

    def forward(self, x):
        with torch.no_grad():
            self.mean.t().view(-1).mul_(0.9)
        return x @ (self.mean.t() + self.weight.t().view(-1).view(6, 3))


class Strided(nn.Module):
    """A module that writes to a view of maps, whose layout in memory may be another one in the worker."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4)), nn.Linear(24, 3)

    def forward(self, x):
        maps = self.layers(x.view(-1, 1, 2, 3).to(memory_format=LAST)) * 2
        rows = maps.permute(0, 2, 3, 1).view(-1, 24)
        rows.mul_(0.5).unflatten(1, (2, 12))[:, 1].add_(1)
        return self.head(maps.flatten(1)) + self.head(rows)


def targets(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


class Layouts(ExportedJobs):
    def losses(self, module, field, mode):
        """Returns the losses of the same steps in Python."""
        data = {name: torch.tensor(self.arrays[name]) for name in (field, "label")}
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows, losses = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3), []
        torch.manual_seed(3)
        for _ in range(STEPS):
            now = next(rows)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=FORMATS[mode] is not None):
                loss = nn.functional.cross_entropy(module(data[field][now]).float(), data["label"][now])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def check(self, make, field="x", modes=FORMATS):
        def net():
            return make()

        with mock.patch.dict("exported_jobs.MODULES", {net: field}):
            for mode in modes:
                job, module = self.job(net, mode)
                records, _, _ = self.train(job)
                for record, loss in zip(records, self.losses(module, field, mode), strict=True):
                    self.assertLess(abs(record["loss"] - loss), (1e-5 if mode == "FP32" else 1e-2) * abs(loss), (mode, record))

    @tiers.nightly
    def test_memory_formats(self):
        def each(y):
            y = y.contiguous(memory_format=LAST).to(memory_format=torch.contiguous_format).clone(memory_format=LAST)
            y = y.to("cpu", torch.float32, memory_format=LAST, copy=True) + torch.zeros_like(y, memory_format=LAST)
            return y.to(torch.float64, memory_format=torch.preserve_format).float() + torch.full_like(y, 0.1, memory_format=LAST)

        for name, change, dimensions in (("to", lambda y: y.to(memory_format=LAST), 2), ("3d", lambda y: y.to(memory_format=LAST_3D), 3),
                                         ("type", lambda y: y.to(torch.float64, memory_format=LAST).to(torch.float32, memory_format=LAST), 2),
                                         ("each", each, 2)):
            with self.subTest(name):
                self.check(lambda change=change, dimensions=dimensions: Formatted(change, dimensions))

    def test_views_of_what_attention_gives(self):
        self.check(Attending, "word")

    def test_grouped_products(self):
        self.check(Experts)

    def test_a_loop_over_the_experts_that_have_rows_is_told_of_them(self):
        class Looped(Experts):
            def forward(self, x):
                x = torch.tanh(self.spread(x))
                chosen = self.gate(x).argmax(1)
                y = x.new_zeros(x.shape[0], 12)
                for expert in nn.functional.one_hot(chosen, 4).sum(0).nonzero():
                    y = torch.where((chosen == expert)[:, None], x @ self.weight[expert[0]], y)
                return self.head(y)

        with self.assertRaisesRegex(genesis.ExportError, "a loop over the experts that have rows .*grouped_mm; in transformers, .*, at .*test_layouts.py"):
            genesis.export(Looped(), {"x": torch.tensor(self.arrays["x"][:5]), "target": torch.tensor(self.arrays["label"][:5])},
                           self.path / "net.pt2", loss="cross_entropy")

    def test_a_width_that_grouped_products_lack_is_told(self):
        with self.assertRaisesRegex(genesis.ExportError, "multiple of 16 bytes.?; grouped_mm takes rows of 4, .*'batched_mm', at .*test_layouts.py"):
            genesis.export(Experts(10), {"x": torch.tensor(self.arrays["x"][:5]), "target": torch.tensor(self.arrays["label"][:5])},
                           self.path / "net.pt2", loss="cross_entropy")

    def test_copies_of_what_has_gaps_and_what_is_drawn_in_a_layout(self):
        self.check(Gaps, modes=["FP32"])

    def test_a_last_batch_of_one_example(self):
        for make, field in ((Attending, "word"), (lambda: Formatted(lambda y: y.to(memory_format=LAST)), "x"), (Experts, "x")):
            with mock.patch.dict("exported_jobs.MODULES", {make: field}), tempfile.TemporaryDirectory() as checkpoints:
                job, module = self.job(make, dataset={"arrays": {"path": str(self.path / "rows.npz"), "holdout_fraction": 0.11}})
                _, output = twin.run_worker(job, checkpoints, environment=GATE)
                module.load_state_dict(torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"])
                held_out = {name: torch.tensor(self.arrays[name][-BATCH - 1:]) for name in (field, "label")}
                wanted = nn.functional.cross_entropy(module.eval()(held_out[field]), held_out["label"]).item()
                self.assertAlmostEqual(float(output.rsplit("held-out loss ", 1)[1].split()[0]) / wanted, 1, delta=1e-5)

    @tiers.nightly
    def test_a_view_that_is_written_to(self):
        for net in (Written, Leaning, Strided):
            with self.subTest(net.__name__):
                self.check(net)

    def test_views_become_reshapes_where_nothing_is_written(self):
        class Views(nn.Module):
            def forward(self, x):
                rows, kept = x.view(-1, 2), (x + 1).view(3, 4)
                written = x * 2
                written.view(6, 2).mul_(3)
                kept.add_(1)
                return rows.sum() + kept.sum() + written.sum()

        program = torch.export.export(Views(), (torch.ones(2, 6),), strict=False)
        for_nativert.reshape_views(program)
        found = targets(program.graph)
        self.assertEqual(found.count(torch.ops.aten.reshape.default), 1, found)
        self.assertEqual(found.count(torch.ops.aten.view.default), 2, found)
        self.assertEqual(runtime.Graph("views", packed.pack("views", program))(torch.ones(2, 6)), [torch.tensor(12.0 + 36 + 72)])

    def test_each_graph_is_run_as_a_worker_runs_it(self):
        """Without the passes that adapt graphs to the runtime, the export fails with the runtime's own message."""
        field = {"x": torch.tensor(self.arrays["x"][:5]), "label": torch.tensor(self.arrays["label"][:5])}

        def loss(module, batch):
            return nn.functional.cross_entropy(module(batch["x"]), batch["label"])

        cases = [("copy_in_two_steps", Formatted(lambda y: y.to(memory_format=LAST)), "in FP32 cannot be loaded as a worker loads it: "),
                 ("reshape_views", Formatted(lambda y: y * torch.full_like(y.contiguous(memory_format=LAST), 2)), None)]
        for function, module, message in cases:
            with self.subTest(function), mock.patch.object(for_nativert, function, lambda graph: None):
                if message is None:
                    genesis.export(module, field, self.path / "net.pt2", loss=loss, precisions=["FP32"])
                    continue
                with self.assertRaises(genesis.ExportError) as caught:
                    genesis.export(module, field, self.path / "net.pt2", loss=loss)
                self.assertIn(message, str(caught.exception))

    def test_a_loss_in_bf16_that_is_another_is_told(self):
        class Wrong(runtime.Graph):
            def __init__(self, name, records):
                super().__init__(name, records)
                self.factor = 1.2 if name == "MIXED_BF16" else 1.0

            def __call__(self, *tensors):
                loss, *rest = super().__call__(*tensors)
                return [loss * self.factor, *rest]

        field = {"x": torch.tensor(self.arrays["x"][:5]), "target": torch.tensor(self.arrays["label"][:5])}
        with mock.patch.object(runtime, "Graph", Wrong), self.assertRaisesRegex(
                genesis.ExportError, "differ in the loss in MIXED_BF16, with 5 examples: .*; leave MIXED_BF16 out of precisions"):
            genesis.export(nn.Linear(6, 3), field, self.path / "net.pt2", loss="cross_entropy")

    def test_an_operator_that_a_precision_lacks_is_told(self):
        """The precisions include FP16, in which a worker tries each graph on a CPU before the job."""
        field = {"x": torch.tensor(self.arrays["x"][:5]), "label": torch.tensor(self.arrays["label"][:5])}

        def loss(module, batch):
            return nn.functional.cross_entropy(module(batch["x"]).float(), batch["label"])

        with self.assertRaisesRegex(genesis.ExportError, "in MIXED_FP16 does not run: .*Half.*it can be exported with MIXED_FP16 left out of precisions"):
            genesis.export(Changed(nn.RReLU()), field, self.path / "net.pt2", loss=loss)
        genesis.export(Changed(nn.RReLU()), field, self.path / "net.pt2", loss=loss, precisions=["FP32", "MIXED_BF16"])


if __name__ == "__main__":
    unittest.main()
