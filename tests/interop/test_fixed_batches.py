"""Tests that modules that support only one batch size (dynamic_batch=False) train with exactly that size, as in Python."""

import json
import tempfile
import unittest
import zipfile

import exported_jobs
import numpy
import torch
import twin
from exported_jobs import FORMATS, GATE, PURE, Changed, Dropped, ExportedJobs, Loop, Normed, loss_of
from torch import nn

import genesis

SIZE, ROWS = 8, 103  # 93 rows for training and 10 held out.


class Contrastive(nn.Module):
    """A module with a contrastive loss, in which a row of one input matches the same row of the other, as in CLIP."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x, z):
        first, second = (nn.functional.normalize(each, dim=1) for each in (self.first(x), self.second(z)))
        logits = first @ second.T * self.scale.exp()
        matches = torch.arange(len(logits))
        return (nn.functional.cross_entropy(logits, matches) + nn.functional.cross_entropy(logits.T, matches)) / 2


class FixedBatches(ExportedJobs):
    def setUp(self):
        super().setUp()
        generator = numpy.random.default_rng(5)
        self.rows = {"x": generator.normal(size=(ROWS, 6)).astype("float32"), "z": generator.normal(size=(ROWS, 4)).astype("float32")}

    def contrastive(self, mode="FP32", size=SIZE, rows=None, job=None, **training):
        torch.manual_seed(4)
        module = Contrastive()
        genesis.export(module, {name: torch.tensor(each[:size]) for name, each in self.rows.items()}, self.path / "net.pt2",
                       precisions=sorted({"FP32", mode}), dynamic_batch=False)
        numpy.savez(self.path / "rows.npz", **(rows or self.rows))
        path = self.path / "job.yaml"
        path.write_text(json.dumps({
            "model": {"exported": {"path": str(self.path / "net.pt2")}}, "dataset": {"arrays": {"path": str(self.path / "rows.npz")}},
            "training": {"max_steps": 25, "seed": 3, "max_grad_norm": -1, **training}, "precision": {"mode": mode}, **(job or {})}))
        return path, module

    def output(self, job):
        with tempfile.TemporaryDirectory() as checkpoints:
            records, output = twin.run_worker(job, checkpoints, environment=GATE)
            return records, output, torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"]

    def compare(self, mode, accumulation):
        job, module = self.contrastive(mode, gradient_accumulation_steps=accumulation)
        records, output, state = self.output(job)
        loop, order = Loop(module, mode), twin.batches(93, SIZE, 3)
        data = {name: torch.tensor(each).to(PURE.get(mode, torch.float32)) for name, each in self.rows.items()}

        def losses():
            for _ in range(accumulation):
                now = next(order)
                with torch.autocast("cpu", torch.bfloat16, enabled=mode == "MIXED_BF16"):
                    loss = module(**{name: each[now] for name, each in data.items()}).float() / accumulation
                yield loss

        self.assertEqual(len(records), 25)
        for record in records:
            total = loop.step(losses())
            self.assertLess(abs(record["loss"] - total), (1e-5 if mode == "FP32" else 1e-2) * total, record)
        module.float().load_state_dict(state)
        held_out = module.eval()(**{name: torch.tensor(each[93:93 + SIZE]) for name, each in self.rows.items()}).item()
        self.assertAlmostEqual(float(output.rsplit("held-out loss ", 1)[1].split()[0]) / held_out, 1, delta=1e-4)
        self.assertIn(f"batches: of {SIZE} examples alone, as the module was exported (dynamic_batch=False); a shorter last batch is left out: 5 of 93 "
                      "examples of each epoch, and 2 of 10 held-out examples\n", output)

    def test_a_contrastive_loss_trains_as_in_python(self):
        for mode in (*FORMATS, "BF16"):
            for accumulation in (1, 2):
                with self.subTest(mode, accumulation=accumulation):
                    self.compare(mode, accumulation)

    def test_the_file_says_so_and_others_say_nothing(self):
        def manifest():
            with zipfile.ZipFile(self.path / "net.pt2") as archive:
                return json.loads(archive.read("module/extra/genesis.json"))

        self.contrastive(size=5)
        self.assertEqual((manifest()["format"], manifest()["batch_size"]), (3, 5))
        genesis.export(Normed(), self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32"])
        self.assertNotIn("batch_size", manifest())

    def test_a_job_that_does_not_fit_is_told(self):
        few = {name: each[:60] for name, each in self.rows.items()}
        for options, message in (
                ({"batch_size": 12}, "training.batch_size is 12; accepted: 8, the size of the batches that "),
                ({"batch_size": 4}, "which was exported with dynamic_batch=False; remove training.batch_size"),
                ({"rows": few}, "takes batches of 8 examples alone (dynamic_batch=False), and the dataset has 54 to train on and 6 held out; accepted: 8 "),
                ({"batch_size": 8, "job": {"scheduling": {"shrink_on_out_of_memory": True}}}, "scheduling.shrink_on_out_of_memory is true, which ")):
            with self.subTest(message):
                said = self.refused(self.contrastive(**options)[0])
                self.assertIn("FAILURE_CAUSE_CONFIG: ", said)
                self.assertIn(message, said)

    def test_a_job_may_name_the_size(self):
        records, _, _ = self.output(self.contrastive(batch_size=SIZE)[0])
        self.assertEqual({record["samples"] for record in records}, {SIZE * step for step in range(1, 26)})

    def test_a_batch_of_another_module_has_the_default_size(self):
        job, _ = self.job(Dropped, training={"max_steps": 2})
        document = json.loads(job.read_text())
        del document["training"]["batch_size"]
        self.arrays = {name: numpy.concatenate([each] * 3) for name, each in self.arrays.items()}
        numpy.savez(self.path / "rows.npz", x=self.arrays["x"], label=self.arrays["label"])
        job.write_text(json.dumps(document))
        records, output, _ = self.output(job)
        self.assertEqual([record["samples"] for record in records], [128, 256])
        self.assertNotIn("batches: of", output)

    def test_a_bad_row_is_found(self):
        """The diagnosis normally halves the batch, which these graphs do not support."""
        generator = numpy.random.default_rng(5)
        rows = {"word": generator.integers(0, 7, (ROWS, 4)), "label": generator.integers(0, 3, ROWS)}
        module = nn.Sequential(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(24, 3))

        def loss(module, batch):
            return nn.functional.cross_entropy(module(batch["word"]).view(6, 3), batch["label"])

        genesis.export(module, {name: torch.tensor(each[:6]) for name, each in rows.items()}, self.path / "net.pt2", loss=loss, precisions=["FP32"],
                       dynamic_batch=False)
        rows["word"][4, 1] = 9
        numpy.savez(self.path / "rows.npz", **rows)
        job = self.path / "job.yaml"
        job.write_text(json.dumps({"model": {"exported": {"path": str(self.path / "net.pt2")}},
                                   "dataset": {"arrays": {"path": str(self.path / "rows.npz")}}, "training": {"max_steps": 3}}))
        self.assertIn("the field word of example 4 (row 4 of its batch) is from ", self.refused(job))

    def test_what_takes_one_size_alone_is_told_of_dynamic_batch(self):
        batch = self.batch("x", 8)
        named = {"loss": loss_of}
        for module, options in (
                (Changed(lambda y: y.view(8, -1)), named), (Changed(lambda y: y + 0 * torch.arange(len(y))[:, None]), named),
                (Changed(lambda y: y / len(y)), named), (Changed(lambda y: y * 10 if y.shape[0] > 4 else y), named),
                (Changed(lambda y: y + y.topk(3, dim=0).values.mean(0)), named), (Changed(lambda y: y + torch.zeros(8, 1)), named),
                # The export tries only the first 7 examples, because one of the module's sizes is 8.
                (Changed(lambda y: nn.functional.pad(y, (0, 5)) @ torch.ones(8, 3) + torch.ones(8, 3)),
                 {"loss": lambda module, fields: loss_of(module, fields) + 0 * module.layer.weight.sum()})):
            with self.subTest(type(module.change).__name__):
                with self.assertRaises(genesis.ExportError) as caught:
                    genesis.export(module, batch, self.path / "net.pt2", **options)
                self.assertIn("a module that takes batches of one size alone is exported with dynamic_batch=False", str(caught.exception))
                genesis.export(module, batch, self.path / "net.pt2", dynamic_batch=False, precisions=["FP32"], **options)

    def test_what_decides_by_values_is_refused_all_the_same(self):
        for module, message in ((exported_jobs.Branching(), "it decides by values of tensors, which no graph does"),
                                (Changed(lambda y: y * y.detach().max().item()), "no graph reads a number out of a tensor"),
                                (Changed(lambda y: y * sum(each.detach().norm() for each in KEPT)), "once weights have changed: ")):
            KEPT[:] = [module.layer.weight]
            with self.subTest(message), self.assertRaises(genesis.ExportError) as caught:
                genesis.export(module, self.batch("x", 8), self.path / "net.pt2", loss=loss_of, dynamic_batch=False)
            self.assertIn(message, str(caught.exception))
            self.assertNotIn("dynamic_batch", str(caught.exception))

    def test_a_batch_may_be_one_example(self):
        genesis.export(nn.Linear(6, 3), self.batch("x", 1), self.path / "net.pt2", loss=loss_of, dynamic_batch=False, precisions=["FP32"])
        with self.assertRaisesRegex(genesis.ExportError, "has 0 examples; accepted: 1 or more"):
            genesis.export(nn.Linear(6, 3), self.batch("x", 0), self.path / "net.pt2", loss=loss_of, dynamic_batch=False)


KEPT = []

if __name__ == "__main__":
    unittest.main()
