"""Modules of many kinds train as they do in Python, with any optimizer, and errors name what their user wrote."""

import copy
import tempfile
import unittest
from unittest import mock

import exported_jobs
import module_kinds
import numpy
import tiers
import torch
import twin
from exported_jobs import BATCH, EXAMPLES, GATE, PURE, STEPS, ExportedJobs
from torch import nn

OPTIMIZERS = {"AdamW": {"lr": 0.01, "weight_decay": 0.1}, "Adam": {"lr": 0.01, "weight_decay": 0.1},
              "SGD": {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True}}


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3)

    def forward(self, word):
        return self.table(word).mean(1)


class Modules(ExportedJobs):
    exports_few = True

    def loop(self, net, kind, mode="FP32", accumulation=1, max_norm=None, decay=0.9):
        """Trains in plain Python. Returns the losses, the masters by name, the optimizer, and the average of the masters."""
        torch.manual_seed(4)
        module = net()
        trained = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
        pure = mode in PURE
        masters = {name: tensor.detach().clone().requires_grad_() for name, tensor in trained.items()} if pure else trained
        if pure:
            module.to(PURE[mode])
        optimizer = getattr(torch.optim, kind)(masters.values(), fused=True, **OPTIMIZERS[kind])
        average = copy.deepcopy(masters)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        x, label = (torch.tensor(self.arrays[name]) for name in ("x", "label"))
        torch.manual_seed(3)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(accumulation):
                now = next(rows)
                # In a pure format, torch would use oneDNN's LSTM, but a graph uses ATen's.
                with torch.backends.mkldnn.flags(enabled=not pure):
                    output = module(x[now].to(PURE[mode]) if pure else x[now]).float()
                loss = nn.functional.cross_entropy(output, label[now]) / accumulation
                loss.backward()
                total += loss.item()
                for name, tensor in trained.items() if pure else ():
                    if tensor.grad is not None:
                        gradient = tensor.grad.float()
                        masters[name].grad = gradient if masters[name].grad is None else masters[name].grad + gradient
                    tensor.grad = None
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(masters.values(), max_norm)
            optimizer.step()
            with torch.no_grad():
                for name, master in masters.items():
                    average[name].lerp_(master, 1 - decay)
                    if pure:
                        trained[name].copy_(master)
            losses.append(total)
        return losses, masters, optimizer, average

    def assert_near(self, records, losses, last, masters, tolerance):
        tolerances = {"rtol": tolerance, "atol": tolerance / 10}
        torch.testing.assert_close(torch.tensor([record["loss"] for record in records]), torch.tensor(losses), **tolerances)
        for name, master in masters.items():
            torch.testing.assert_close(last["model_state_dict"][name], master.detach(), msg=lambda text, name=name: f"{name}: {text}",
                                       **tolerances)

    @tiers.nightly
    def test_modules_of_many_kinds_train_as_in_python(self):
        for net in module_kinds.KINDS:
            with self.subTest(net.__name__):
                job, _ = self.job(net, optimizer={"kind": "ADAMW", "learning_rate": 0.01, "weight_decay": 0.1}, evaluation={"every_steps": 4})
                records, last, _ = self.train(job)
                wanted, masters, _, _ = self.loop(net, "AdamW")
                self.assert_near(records, wanted, last, masters, 1e-5)

    @tiers.nightly
    def test_recurrent_layers_train_in_pure_bf16(self):
        for net in module_kinds.RECURRENT:
            with self.subTest(net.__name__):
                job, _ = self.job(net, "BF16", optimizer={"kind": "ADAMW", "learning_rate": 0.01, "weight_decay": 0.1})
                records, last, _ = self.train(job)
                wanted, masters, _, _ = self.loop(net, "AdamW", "BF16")
                self.assert_near(records, wanted, last, masters, 1e-2)

    def test_a_frozen_part_that_follows_resumes_to_the_bit(self):
        for mode in ("FP32", "MIXED_BF16", "BF16"):
            with self.subTest(mode):
                job, _ = self.job(module_kinds.Follower, mode, checkpoint={"every_steps": 10, "keep_last": 10})
                whole, last, files = self.train(job)
                (self.path / "middle.pt").write_bytes(files[0])
                rest, last_of_rest, _ = self.train(job, "--resume", self.path / "middle.pt")
                self.assertEqual(rest, whole[10:])
                for name, value in last["model_state_dict"].items():
                    self.assertTrue(torch.equal(value, last_of_rest["model_state_dict"][name]), name)
                watched, _, _ = self.train(self.job(module_kinds.Follower, mode, evaluation={"every_steps": 4})[0])
                self.assertEqual(watched, whole)

    def test_parameters_without_a_gradient_are_left_alone(self):
        for kind in OPTIMIZERS:
            for mode in ("FP32", "BF16"):
                for extra in ({}, {"accumulation": 2, "max_norm": 0.5}):
                    with self.subTest(kind=kind, mode=mode, **extra):
                        self.compare_with_loop(kind, mode, **extra)

    def compare_with_loop(self, kind, mode, accumulation=1, max_norm=None):
        net = module_kinds.Selective
        wanted, masters, optimizer, average = self.loop(net, kind, mode, accumulation, max_norm)
        settings = {("learning_rate" if name == "lr" else name): value for name, value in OPTIMIZERS[kind].items()}
        job, module = self.job(net, mode, optimizer={"kind": kind.upper(), **settings},
                               training={"gradient_accumulation_steps": accumulation, "max_grad_norm": max_norm or -1, "ema_decay": 0.9})
        untouched = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        records, last, _ = self.train(job)
        tolerance = 1e-5 if mode == "FP32" else 1e-3
        self.assert_near(records, wanted, last, masters, tolerance)
        for number, (name, master) in enumerate(masters.items()):
            torch.testing.assert_close(last["ema_state_dict"][name], average[name].detach(), rtol=tolerance, atol=tolerance / 10)
            entry = last["optimizer_state_dict"]["state"][number]
            if name.startswith("never"):
                self.assertTrue(torch.equal(last["model_state_dict"][name], untouched[name]), name)
                self.assertTrue(all(not value.any() for value in entry.values()))
            if "step" in entry:
                self.assertEqual(entry["step"].item(), float(optimizer.state.get(master, {}).get("step", 0)), name)

    def test_parameters_without_a_gradient_are_named_in_the_log(self):
        for net, end in ((exported_jobs.Normed, ""), (module_kinds.Selective, "; in the trial before the job 2 of them did not receive a gradient: "
                                                                              "never.weight, never.bias")):
            with self.subTest(net.__name__), tempfile.TemporaryDirectory() as checkpoints:
                _, output = twin.run_worker(self.job(net, training={"max_steps": 1})[0], checkpoints, environment=GATE)
                trained = list(net().parameters())
                self.assertRegex(output, f"(?m)^model: {sum(w.numel() for w in trained)} trainable parameters in {len(trained)} tensors{end}$")

    def test_an_index_out_of_range_is_told(self):
        for example, value in ((1, -2), (77, 7)):
            with self.subTest(example):
                words = numpy.full_like(self.arrays["word"], 2)
                words[example, 3] = value
                with mock.patch.dict(exported_jobs.MODULES, {Embeds: "word"}):
                    job, _ = self.job(Embeds, arrays={"word": words, "label": self.arrays["label"]})
                self.assertRegex(self.refused(job), rf"FAILURE_CAUSE_DATA: .*rows.npz: the field word of example {example} .*from {min(value, 2)} to "
                                                    rf"{max(value, 2)}; ")


if __name__ == "__main__":
    unittest.main()
