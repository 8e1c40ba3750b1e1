"""Users' own modules train as they do in Python: an inspection leaves no trace, and errors of a module are reported in
its own words."""

import copy
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import typing
import unittest

import exported_jobs
import numpy
import processor
import scripted_kinds
import torch
import twin
from torch import nn

GATE = {"ENABLE_FP16_TRAINING": "true"}
EXAMPLES = 120
BATCH = 12


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Stateful(nn.Module):
    """Its output depends on the inputs seen before, in train and in eval mode."""

    history: typing.List[int]

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 3))
        self.register_buffer("seen", torch.zeros(1))
        self.calls = 0
        self.sharpness = 1.0
        self.drift = torch.zeros(3)
        self.history = []

    def forward(self, x):
        self.calls += 1
        self.sharpness = self.sharpness * 0.99
        self.seen = self.seen + 1.0
        self.drift = self.drift * 0.5 + 0.01
        self.history.append(self.calls)
        strength = 1.0 / (1.0 + 0.1 * self.calls) + 0.01 * self.seen + self.sharpness
        return self.layers(x) * strength.to(x.dtype) + self.drift.to(x.dtype)


class Selective(nn.Module):
    """One weight is never used, one only by some batches."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.never = nn.Linear(8, 8)
        self.sometimes = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        if bool(x.float().sum() > 0):
            hidden = hidden + self.sometimes(hidden)
        return self.last(hidden)


class FloatLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x).float(), y)


class OwnFormatLoss(FloatLoss):
    """Its loss needs the target in the format of the weights."""

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x), y)


class Folder:
    def __init__(self, name):
        self.path = pathlib.Path(name)
        generator = numpy.random.default_rng(11)
        self.arrays = {
            "x": generator.normal(size=(EXAMPLES, 6)).astype("float32"),
            "y": (100 + generator.normal(size=(EXAMPLES, 3))).astype("float32"),
            "label": generator.integers(0, 3, EXAMPLES),
            "word": generator.integers(0, 7, (EXAMPLES, 4)),
        }

    def job(self, net, model, fields, mode="FP32", **sections):
        numpy.savez(self.path / "rows.npz", **{name: self.arrays[name] for name in fields})
        torch.manual_seed(4)
        module = net()
        torch.jit.script(module).save(str(self.path / "net.pt"))
        job = {"model": {"torchscript": {"path": str(self.path / "net.pt"), **model}},
               "dataset": {"arrays": {"path": str(self.path / "rows.npz")}},
               "training": {"max_steps": 30, "batch_size": BATCH, "seed": 3, "max_grad_norm": -1},
               "precision": {"mode": mode}}
        for section, values in sections.items():
            job.setdefault(section, {}).update(values)
        path = self.path / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def classes(self, net, mode="FP32", **sections):
        return self.job(net, {"loss": "CROSS_ENTROPY", "target": "label"}, ["x", "label"], mode, **sections)


class ModulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Folder(folder.name)

    def train(self, job, *flags):
        """Returns records, the last checkpoint, and all of them by name."""
        with tempfile.TemporaryDirectory() as checkpoints:
            records, _ = twin.run_worker(job, checkpoints, "--emulate-fp16", *flags, environment=GATE)
            found = sorted(pathlib.Path(checkpoints).glob("*.pt"))
            files = [path.read_bytes() for path in found]
            return records, torch.load(found[-1]), files

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            self.assertTrue(torch.equal(value, other[name]), name)

    # Traces.

    def test_batch_norm_trains_in_every_mode(self):
        for mode in ("FP32", "MIXED_BF16", "MIXED_FP16", "BF16"):
            with self.subTest(mode):
                records, last, _ = self.train(self.folder.classes(Normed, mode))
                self.assertEqual(len(records), 30)
                if mode == "FP32" or mode == "MIXED_BF16":
                    self.assertEqual(last["model_state_dict"]["layers.1.num_batches_tracked"].item(), 30)

    def resume(self, kind, mode):
        """Checks that a job resumed at step 10 equals the undisturbed one: records, and the last checkpoints of both."""
        job = self.folder.classes(kind, mode, checkpoint={"every_steps": 10, "keep_last": 10})
        whole, last, files = self.train(job)
        middle = self.folder.path / "middle.pt"
        middle.write_bytes(files[0])
        self.assertEqual(torch.load(middle)["genesis"]["step"], 10)
        rest, last_of_rest, _ = self.train(job, "--resume", middle)
        self.assertEqual(rest, whole[10:])
        self.assert_same(last["model_state_dict"], last_of_rest["model_state_dict"])
        return whole, last, last_of_rest

    def test_resume_is_bit_identical(self):
        for mode in ("FP32", "MIXED_BF16"):
            with self.subTest(mode):
                _, last, last_of_rest = self.resume(Stateful, mode)
                self.assertEqual(last["genesis"]["attributes"]["calls"].item(), 30)
                self.assert_same(last["genesis"]["attributes"], last_of_rest["genesis"]["attributes"])

    def test_resume_keeps_what_shares_memory(self):
        for kind, mode in ((scripted_kinds.Views, "FP32"), (scripted_kinds.Follower, "FP32"), (scripted_kinds.Follower, "MIXED_BF16"),
                           (scripted_kinds.Follower, "BF16")):
            with self.subTest(kind.__name__, mode=mode):
                whole, _, _ = self.resume(kind, mode)
                watched, _, _ = self.train(self.folder.classes(kind, mode, evaluation={"every_steps": 4}))
                self.assertEqual(watched, whole)

    def test_targets_that_are_left_out_are_so_in_held_out_figures(self):
        self.folder.arrays["label"][::3] = -100
        _, last, _ = self.train(self.folder.classes(scripted_kinds.Ensemble, evaluation={"every_steps": 30}))
        module = scripted_kinds.Ensemble()
        module.load_state_dict(last["model_state_dict"])
        held_out = EXAMPLES - EXAMPLES // 10
        x, label = (torch.tensor(self.folder.arrays[name][held_out:]) for name in ("x", "label"))
        with torch.no_grad():
            wanted = nn.functional.cross_entropy(module(x), label).item()
        self.assertAlmostEqual(last["genesis"]["evaluation"]["best_loss"], wanted, places=5)

    def test_complex_numbers_are_told_before_the_job(self):
        self.assert_told(self.failure(self.folder.classes(exported_jobs.Turned)), "CONFIG", "net.pt", "holds turn in complex numbers, which a checkpoint "
                         "has not; keep torch.view_as_real of it")

    def test_evaluations_leave_no_trace(self):
        for mode in ("FP32", "MIXED_BF16", "BF16"):
            with self.subTest(mode):
                plain, last, _ = self.train(self.folder.classes(Stateful, mode))
                watched, last_watched, _ = self.train(
                    self.folder.classes(Stateful, mode, evaluation={"every_steps": 4}))
                self.assertEqual(plain, watched)
                self.assert_same(last["model_state_dict"], last_watched["model_state_dict"])
                self.assertEqual(last["model_state_dict"]["seen"].item(), 30)

    # Parameters without a gradient.

    def loop(self, net, kind, options, mode="FP32", accumulation=1, max_norm=None, decay=0.9, steps=30):
        """The plain Python loop: returns losses, masters by name, optimizer and average."""
        torch.manual_seed(4)
        module = net()
        names = [name for name, _ in module.named_parameters()]
        pure = mode == "BF16"
        masters = [p.detach().clone().requires_grad_() for p in module.parameters()] if pure \
            else list(module.parameters())
        if pure:
            module.to(torch.bfloat16)
        optimizer = getattr(torch.optim, kind)(masters, fused=True, **options)
        average = copy.deepcopy(masters)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        x, label = (torch.tensor(self.folder.arrays[name]) for name in ("x", "label"))
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(accumulation):
                now = next(rows)
                output = module(x[now].to(torch.bfloat16) if pure else x[now]).float()
                loss = nn.functional.cross_entropy(output, label[now]) / accumulation
                loss.backward()
                total += loss.item()
                if pure:
                    for master, parameter in zip(masters, module.parameters()):
                        if parameter.grad is not None:
                            gradient = parameter.grad.float()
                            master.grad = gradient if master.grad is None else master.grad + gradient
                        parameter.grad = None
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(masters, max_norm)
            optimizer.step()
            with torch.no_grad():
                for kept, master in zip(average, masters):
                    if master.is_floating_point():
                        kept.lerp_(master, 1 - decay)
                if pure:
                    for parameter, master in zip(module.parameters(), masters):
                        parameter.copy_(master)
            losses.append(total)
        return losses, dict(zip(names, masters)), optimizer, dict(zip(names, average))

    def test_parameters_without_a_gradient_are_left_alone(self):
        kinds = {"AdamW": {"lr": 0.01, "weight_decay": 0.1}, "Adam": {"lr": 0.01, "weight_decay": 0.1},
                 "SGD": {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9, "nesterov": True}}
        for kind, options in kinds.items():
            for mode in ("FP32", "BF16"):
                for extra in ({}, {"accumulation": 2, "max_norm": 0.5}):
                    with self.subTest(kind=kind, mode=mode, **extra):
                        self.compare_with_loop(kind, options, mode, **extra)

    def test_parameters_without_a_gradient_are_named_in_the_log(self):
        for net, end in ((Normed, ""), (Selective, "; in the trial before the job [24] of them did not receive a gradient: never.weight, never.bias.*")):
            with self.subTest(net.__name__), tempfile.TemporaryDirectory() as checkpoints:
                _, output = twin.run_worker(self.folder.classes(net, training={"max_steps": 1}), checkpoints)
                trained = list(net().parameters())
                self.assertRegex(output, f"(?m)^model: {sum(w.numel() for w in trained)} trainable parameters in {len(trained)} tensors{end}$")

    def compare_with_loop(self, kind, options, mode, accumulation=1, max_norm=None):
        wanted, masters, optimizer, average = self.loop(Selective, kind, options, mode, accumulation, max_norm)
        settings = {("learning_rate" if name == "lr" else name): value for name, value in options.items()}
        job = self.folder.classes(
            Selective, mode, optimizer={"kind": kind.upper(), **settings},
            training={"gradient_accumulation_steps": accumulation, "max_grad_norm": max_norm or -1,
                      "ema_decay": 0.9})
        records, last, _ = self.train(job)
        tolerance = {"rtol": 1e-5, "atol": 1e-6} if mode == "FP32" else {"rtol": 1e-3, "atol": 1e-4}
        torch.testing.assert_close(torch.tensor([r["loss"] for r in records]), torch.tensor(wanted), **tolerance)
        torch.manual_seed(4)
        untouched = Selective().state_dict()
        for number, (name, master) in enumerate(masters.items()):
            got = last["model_state_dict"][name]
            torch.testing.assert_close(got, master.detach(), msg=lambda text: f"{name}: {text}", **tolerance)
            torch.testing.assert_close(last["ema_state_dict"][name], average[name].detach(), **tolerance)
            entry = last["optimizer_state_dict"]["state"][number]
            state = optimizer.state.get(master, {})
            if name.startswith("never"):
                self.assertTrue(torch.equal(got, untouched[name]), name)
                self.assertTrue(all(not value.any() for value in entry.values()))
            if "step" in entry:
                self.assertEqual(entry["step"].item(), float(state.get("step", 0)), name)
        if kind != "SGD":
            steps = [last["optimizer_state_dict"]["state"][number]["step"].item() for number in range(8)]
            self.assertEqual(steps[0], 30)
            if accumulation == 1:
                self.assertTrue(0 < steps[4] < 30, steps)

    def test_modules_of_many_kinds_train_as_in_python(self):
        def traced(kind):
            return torch.jit.trace(kind(), torch.ones(4, 6), check_trace=False)

        for name, net in {**{kind.__name__: kind for kind in scripted_kinds.SCRIPTED},
                          **{f"{kind.__name__} traced": functools.partial(traced, kind) for kind in scripted_kinds.TRACED}}.items():
            with self.subTest(name):
                wanted, masters, _, _ = self.loop(net, "AdamW", {"lr": 0.01, "weight_decay": 0.1})
                records, last, _ = self.train(self.folder.classes(
                    net, optimizer={"kind": "ADAMW", "learning_rate": 0.01, "weight_decay": 0.1}, evaluation={"every_steps": 4}))
                self.assert_near(records, wanted, last, masters, 1e-5)

    def test_recurrent_layers_train_in_pure_bf16(self):
        for kind in scripted_kinds.BothWays, scripted_kinds.LastStates, scripted_kinds.Cells:
            with self.subTest(kind.__name__):
                wanted, masters, _, _ = self.loop(kind, "AdamW", {"lr": 0.01, "weight_decay": 0.1}, "BF16")
                records, last, _ = self.train(self.folder.classes(
                    kind, "BF16", optimizer={"kind": "ADAMW", "learning_rate": 0.01, "weight_decay": 0.1}))
                self.assert_near(records, wanted, last, masters, 1e-2)

    def assert_near(self, records, losses, last, masters, tolerance):
        tolerances = {"rtol": tolerance, "atol": tolerance / 10}
        torch.testing.assert_close(torch.tensor([r["loss"] for r in records]), torch.tensor(losses), **tolerances)
        for name, master in masters.items():
            torch.testing.assert_close(last["model_state_dict"][name], master.detach(), msg=lambda text, name=name: f"{name}: {text}",
                                       **tolerances)

    # Targets in pure precision.

    def test_own_loss_gets_its_target_as_it_is(self):
        for net, target in ((FloatLoss, torch.float32), (OwnFormatLoss, torch.bfloat16)):
            with self.subTest(net.__name__):
                job = self.folder.job(net, {"loss": "MODULE", "inputs": ["x", "y"]}, ["x", "y"], "BF16",
                                      optimizer={"learning_rate": 0.5})
                records, _, _ = self.train(job)
                torch.manual_seed(4)
                module = net().to(torch.bfloat16)
                now = next(twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3))
                x, y = (torch.tensor(self.folder.arrays[name])[now] for name in ("x", "y"))
                wanted = module(x.to(torch.bfloat16), y.to(target)).item()
                self.assertAlmostEqual(records[0]["loss"] / wanted, 1, delta=1e-6)
                self.assertLess(records[-1]["loss"], records[0]["loss"])

    # Errors.

    def failure(self, job):
        with tempfile.TemporaryDirectory() as checkpoints:
            done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", checkpoints, "--threads", "1"],
                                  capture_output=True, text=True, env={**os.environ, **GATE})
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def assert_told(self, text, cause, *words):
        self.assertIn("FAILURE_CAUSE_" + cause + ": ", text)
        for word in words:
            self.assertIn(word, text)

    def own_loss(self, forward):
        """Returns a job of a module with the given forward, as a function of it, x and y."""
        return self.folder.job(forward, {"loss": "MODULE", "inputs": ["x", "y"]}, ["x", "y"])

    def test_out_of_memory_in_the_trial(self):
        class Hungry(FloatLoss):
            def forward(self, x, y):
                return self.layer(x).sum() + torch.zeros([10000000, 10000000]).sum()
        self.assert_told(self.failure(self.own_loss(Hungry)), "OUT_OF_MEMORY", "batch_size",
                         "torch.zeros([10000000, 10000000])")

    def test_label_out_of_range(self):
        for example in (0, 41):
            with self.subTest(example):
                self.folder.arrays["label"][:] = 1
                self.folder.arrays["label"][example] = 3
                self.assert_told(self.failure(self.folder.classes(Normed)), "DATA", "rows.npz",
                                 f"the field label of example {example} ", " is 3; ",
                                 "from 0 to 2", "Target 3 is out of bounds")

    def test_index_out_of_range(self):
        class Embeds(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(7, 3)

            def forward(self, word):
                return self.table(word).mean(1)
        for example, value in ((1, -2), (77, 7)):
            with self.subTest(example):
                self.folder.arrays["word"][:] = 2
                self.folder.arrays["word"][example, 3] = value
                job = self.folder.job(Embeds, {"loss": "CROSS_ENTROPY", "target": "label"}, ["word", "label"])
                low, high = min(value, 2), max(value, 2)
                self.assert_told(self.failure(job), "DATA", "rows.npz",
                                 f"the field word of example {example} ", f"from {low} to {high}",
                                 "num_embeddings", "return self.table(word).mean(1)")

    def test_loss_that_cannot_be_trained(self):
        class Detached(FloatLoss):
            def forward(self, x, y):
                with torch.no_grad():
                    return nn.functional.mse_loss(self.layer(x), y)

        class Constant(FloatLoss):
            def forward(self, x, y):
                return (x.mean() - y.mean()).abs()

        class Several(FloatLoss):
            def forward(self, x, y):
                return (self.layer(x) - y).square().mean(1)

        class InPlace(FloatLoss):
            def forward(self, x, y):
                hidden = torch.sigmoid(self.layer(x))
                hidden.mul_(2)
                return nn.functional.mse_loss(hidden, y)
        for net in (Detached, Constant):
            with self.subTest(net.__name__):
                self.assert_told(self.failure(self.own_loss(net)), "CONFIG", "net.pt",
                                 "that no parameter has a gradient of", "torch.no_grad()")
        self.assert_told(self.failure(self.own_loss(Several)), "CONFIG", "net.pt", "the mean loss of the batch")
        self.assert_told(self.failure(self.own_loss(InPlace)), "CONFIG", "the backward pass of", "net.pt",
                         "inplace operation")

    def test_a_fault_of_a_later_step_is_told_as_one_of_the_trial(self):
        class LateBackward(FloatLoss):
            def __init__(self):
                super().__init__()
                self.calls: int = 0

            def forward(self, x, y):
                self.calls += 1
                hidden = torch.sigmoid(self.layer(x))
                if self.calls > 17:
                    hidden.mul_(0.5)  # Saved by autograd.
                return nn.functional.mse_loss(hidden, y)

        class LateForward(FloatLoss):
            def __init__(self):
                super().__init__()
                self.calls: int = 0

            def forward(self, x, y):
                self.calls += 1
                if self.calls > 11:
                    raise ValueError("the first line, é\nand the second")
                return nn.functional.mse_loss(self.layer(x), y)
        message = self.failure(self.own_loss(LateBackward))
        self.assert_told(message, "CONFIG", "the backward pass of", "net.pt", "y [12, 3] Float", "inplace operation")
        message = self.failure(self.own_loss(LateForward))
        self.assert_told(message, "CONFIG", "net.pt", "the first line, é\\nand the second", 'raise ValueError("the first')

    def test_an_lstm_that_the_processor_has_not_is_told_with_the_cure(self):
        net = scripted_kinds.BothWays
        self.train(self.folder.classes(net))
        if processor.has_bf16_lstm():
            self.skipTest("NOT RUN: oneDNN may have the LSTM for this processor")
        self.assert_told(self.failure(self.folder.classes(net, "MIXED_BF16")), "CONFIG", "net.pt fails on x [12, 6] Float",
                         "; oneDNN has no such layer in this precision for this processor: train in FP32, or give the module as "
                         "genesis.export writes it (model.exported)\n", "self.layers(halves(x))")

    def test_fields_in_another_order_than_forward_are_told_with_the_cure(self):
        class Labelled(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 3)

            def forward(self, x, label):
                return nn.functional.cross_entropy(self.layer(x), label)
        self.assert_told(self.failure(self.folder.job(Labelled, {"loss": "MODULE"}, ["x", "label"])), "CONFIG",
                         "label [12] Long, x [12, 6] Float", "model.torchscript.inputs sets another")

    def test_a_fault_keeps_the_users_own_lines(self):
        class Deep(FloatLoss):
            def innermost(self, x, depth: int):
                if depth > 0:
                    return self.inner(x, depth - 1)
                return torch.matmul(x, torch.ones(5, 5))  # The line to fix.

            def inner(self, x, depth: int):
                return self.layer(x) + depth

            def forward(self, x, y):
                outermost = self.innermost(x, 0)
                return nn.functional.mse_loss(outermost, y)
        self.assert_told(self.failure(self.own_loss(Deep)), "CONFIG", "net.pt fails on x [12, 6] Float",
                         "outermost = self.innermost(x, 0)", "torch.matmul(x, torch.ones(5, 5))",
                         "test_modules.py")


if __name__ == "__main__":
    unittest.main()
