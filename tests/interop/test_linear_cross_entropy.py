"""Tests that models with a large vocabulary, whose logits the worker never holds as a whole, train as in Python, in less memory."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import compiled_job  # noqa: F401 - says where the twins are.
import numpy
import tiers
import torch
import twin
from twins import transformer

import genesis

VOCABULARY, WIDTH, CONTEXT, BATCH, SEED = 50261, 32, 64, 6, 3  # No multiple of 8.
FORMATS = {"MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}
# As in test_numerics.py; the sums of chunks are rounded in another order.
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 5e-3, "MIXED_FP16": 2e-3, "BF16": 2e-2}
BUILT_IN = {"transformer": {"vocabulary_size": VOCABULARY, "context_length": CONTEXT, "layers": 1, "heads": 2, "embedding_size": WIDTH}}
PLAIN = {"GENESIS_OWN_KERNELS": "false"}


def losses_in_python(module, loss, tokens, mode, steps):
    """Trains as genesis-worker does. `loss` is a function of the module and a batch."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=mode == "MIXED_FP16")
    rows = twin.batches(len(tokens) - round(len(tokens) / 10), BATCH, SEED)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", FORMATS.get(mode, torch.bfloat16), enabled=mode in FORMATS):
            now = loss(module, {"tokens": tokens[next(rows)]})
        scaler.scale(now).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(now.item())
    return losses


class Ignoring(transformer.Transformer):
    """A transformer with an output layer of its own, which has a bias, and tokens without a target."""

    def __init__(self, per_example):
        super().__init__(VOCABULARY, CONTEXT, 1, 2, WIDTH, True, SEED)
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.per_example = per_example
        self.register_buffer("frequency", torch.linspace(0.5, 1.5, VOCABULARY))


def own_loss(module, batch):
    tokens = batch["tokens"]
    logits = module(tokens[:, :-1]).float().flatten(0, 1)
    target = torch.where(tokens % 3 == 0, -100, tokens)[:, 1:].flatten()
    if module.per_example:
        losses = torch.nn.functional.cross_entropy(logits, target, reduction="none")
        return losses.view(len(tokens), -1).mean(1)
    return torch.nn.functional.cross_entropy(logits, target, module.frequency)


def mean_loss(module, batch):
    return own_loss(module, batch).mean()


def tied_loss(module, batch):
    tokens = batch["tokens"]
    return torch.nn.functional.cross_entropy(module(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class LinearCrossEntropyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        # Few of the classes are used, so that the loss falls.
        flat = numpy.random.default_rng(5).integers(0, 40, 66 * CONTEXT + 1) * 1256
        cls.flat = flat.astype("<u4")
        cls.tokens = torch.from_numpy(flat).unfold(0, CONTEXT + 1, CONTEXT).contiguous()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, model, dataset, mode, steps, batch=BATCH):
        path = self.folder / "job.yaml"
        path.write_text(json.dumps({
            "model": model, "dataset": dataset, "optimizer": {"learning_rate": 1e-3},
            "training": {"max_steps": steps, "batch_size": batch, "seed": SEED, "max_grad_norm": -1},
            "precision": {"mode": mode, "watchdog": {"overflow": {"action": "OFF"}}}}))
        return path

    def losses(self, model, dataset, mode, steps, environment=None):
        records, output = twin.run_worker(self.job(model, dataset, mode, steps), self.folder, "--emulate-fp16", environment={
            "ENABLE_FP16_TRAINING": "true", **(environment or {})})
        self.assertIn(f"precision: {mode}", output)
        self.assertLess(records[-1]["loss"], records[0]["loss"])
        return [record["loss"] for record in records]

    def peak_bytes(self, model, dataset, batch, environment):
        """Returns the maximum resident memory of a job of two steps, with its evaluation."""
        process = subprocess.Popen([twin.WORKER, "--spec", self.job(model, dataset, "FP32", 2, batch), "--checkpoint-dir", self.folder,
                                    "--threads", "1"], stdout=subprocess.DEVNULL, env={**os.environ, **environment})
        # The resource usage of a child begins with the memory of this process.
        peak = 0
        while process.poll() is None:
            with contextlib.suppress(OSError):
                found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())
                peak = max(peak, int(found[1]) * 1024 if found else 0)
            time.sleep(0.01)
        self.assertEqual(process.returncode, 0)
        return peak

    def text(self):
        (self.folder / "text.tokens").write_bytes(self.flat.tobytes())
        return {"tokens": {"path": str(self.folder / "text.tokens"), "type": "UINT32"}}

    def rows(self, tokens, **settings):
        numpy.savez(self.folder / "rows.npz", tokens=tokens.numpy())
        return {"arrays": {"path": str(self.folder / "rows.npz"), **settings}}

    def export(self, module, loss, mode="FP32", batch=BATCH):
        genesis.export(module, {"tokens": self.tokens[:batch]}, self.folder / "net.pt2", loss=loss, dynamic_batch=False,
                       precisions=sorted({"FP32", mode}))
        return {"exported": {"path": str(self.folder / "net.pt2")}}

    def compare(self, ours, theirs, mode):
        self.assertEqual(len(ours), len(theirs))
        for step, (a, b) in enumerate(zip(ours, theirs), 1):
            self.assertLess(abs(a - b) / b, TOLERANCE[mode], f"{mode} step {step}: {a} {b}")

    def twin(self):
        return transformer.Transformer(VOCABULARY, CONTEXT, 1, 2, WIDTH, False, SEED)

    def test_the_built_in_transformer_trains_as_in_python(self):
        self.train_built_in(FP32=30, MIXED_BF16=12, MIXED_FP16=6)

    @tiers.nightly
    def test_the_built_in_transformer_trains_as_in_python_for_long(self):
        self.train_built_in(FP32=100, MIXED_BF16=40, MIXED_FP16=12)

    def train_built_in(self, **steps_of):
        for mode, steps in steps_of.items():
            with self.subTest(mode):
                self.compare(self.losses(BUILT_IN, self.text(), mode, steps),
                             losses_in_python(self.twin(), tied_loss, self.tokens, mode, steps), mode)

    def test_a_tied_exported_module_trains_as_in_python(self):
        for mode, steps in (("FP32", 30), ("MIXED_BF16", 12)):
            with self.subTest(mode):
                self.compare(self.losses(self.export(self.twin(), tied_loss, mode), self.rows(self.tokens), mode, steps),
                             losses_in_python(self.twin(), tied_loss, self.tokens, mode, steps), mode)

    @tiers.nightly
    def test_a_module_with_bias_class_weights_and_ignored_targets_trains_as_in_python(self):
        for per_example in (False, True):
            with self.subTest(per_example=per_example):
                model, dataset = self.export(Ignoring(per_example), own_loss), self.rows(self.tokens)
                ours = self.losses(model, dataset, "FP32", 10)
                self.compare(ours, losses_in_python(Ignoring(per_example), mean_loss, self.tokens, "FP32", 10), "FP32")
                self.compare(ours, self.losses(model, dataset, "FP32", 10, PLAIN), "FP32")

    @tiers.nightly
    def test_a_job_takes_half_the_memory_of_torchs_operators(self):
        """The logits of a batch are 295 MiB, and torch's operators hold up to three copies."""
        batch = 24
        for model, dataset in ((BUILT_IN, self.text()),
                               (self.export(self.twin(), tied_loss, batch=batch), self.rows(self.tokens[:60], holdout_fraction=0.4))):
            with self.subTest(str(model)):
                ours, plain = (self.peak_bytes(model, dataset, batch, environment) for environment in ({}, PLAIN))
                self.assertLess(ours, 0.5 * plain, f"{ours} {plain}")


if __name__ == "__main__":
    unittest.main()
