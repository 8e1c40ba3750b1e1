"""Tests that modules written by genesis.export train in pure FP16 and BF16 like a Python loop with module.to(dtype) and FP32 masters."""

import json
import tempfile
import unittest
import zipfile

import compiled_job
import exported_jobs
import tiers
import torch
import twin
from exported_jobs import (BATCH, EXAMPLES, GATE, MODULES, PURE, STEPS, Arithmetic, Attentive, Convolutional, Dropped, ExportedJobs, Loop,
                           Normed, Recomputed, Sliced, Transposed, learnt, loss_of)
from torch import nn

import genesis

# trainer/kernels computes products and attention in FP32 and rounds them, so the last bits differ.
TOLERANCE = {"BF16": 2e-2, "FP16": 5e-3}


class FloatLoss(nn.Module):
    """A module that computes its own loss, with the target in FP32."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x).float(), y)


class OwnFormatLoss(FloatLoss):
    """A module that computes its own loss, which requires the target in the format of the weights."""

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x), y)


class Follower(nn.Module):
    """A module with a frozen layer that follows a trained layer, and another that does not change."""

    def __init__(self):
        super().__init__()
        self.online, self.target, self.still, self.head = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)
        for part in (self.target, self.still):
            part.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            self.target.weight.mul_(0.9).add_(0.1 * self.online.weight)
            aim = torch.tanh(self.target(x) + self.still(x))
        return self.head(torch.tanh(self.online(x)) - 0.5 * aim)


class Fading(nn.Module):
    """A module that multiplies buffers and activations in place by numbers that 16-bit formats do not represent exactly."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("gain", torch.tensor(0.5))
        self.register_buffer("gains", torch.full((3,), 0.5))

    def forward(self, x):
        if self.training:
            self.gain.mul_(0.99)
            self.gains.mul_(0.99)
        output = self.layer(x) * 1.0
        for _ in range(8):
            output *= 0.97
        return output * (self.gain + self.gains)


class PureFormats(ExportedJobs):
    def train(self, job, *flags):
        return super().train(job, "--emulate-fp16", *flags)

    def manifest(self):
        with zipfile.ZipFile(self.path / "net.pt2") as archive:
            return json.loads(archive.read("module/extra/genesis.json"))

    def loop(self, module, field, mode, accumulation, max_norm):
        loop, rows = Loop(module, mode), twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        torch.manual_seed(3)

        def losses():
            for _ in range(accumulation):
                now = next(rows)
                given = torch.tensor(self.arrays[field])[now]
                output = module(given.to(PURE[mode]) if given.is_floating_point() else given).float()
                yield nn.functional.cross_entropy(output, torch.tensor(self.arrays["label"])[now]) / accumulation

        return [loop.step(losses(), max_norm) for _ in range(STEPS)], loop.masters

    def compare(self, net, mode, accumulation=1, max_norm=None):
        job, module = self.job(net, mode, training={"gradient_accumulation_steps": accumulation, "max_grad_norm": max_norm or -1})
        begin = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        records, last, _ = self.train(job)
        wanted, masters = self.loop(module, MODULES.get(net, "x"), mode, accumulation, max_norm)
        self.assertEqual({record["mode"] for record in records}, {mode})
        self.assertEqual(len(records), STEPS)
        for record, loss in zip(records, wanted):
            self.assertLess(abs(record["loss"] - loss) / abs(loss), TOLERANCE[mode], record)
        state = last["model_state_dict"]
        for name, tensor in {**module.state_dict(), **masters}.items():
            self.assertTrue(torch.allclose(learnt(name, state[name], mode).double(), learnt(name, tensor, mode).detach().double(), rtol=1e-2,
                                           atol=5e-3), name)
            self.assertEqual(state[name].dtype, begin[name].dtype, name)
        net().load_state_dict(state)
        return begin, state

    def test_losses_and_weights_are_those_of_the_python_loop(self):
        for net in (Normed, Convolutional, Attentive, Sliced, Recomputed, Transposed, Dropped):
            for mode in PURE if net in (Normed, Attentive) else ["BF16"]:
                with self.subTest(net.__name__, mode=mode):
                    self.compare(net, mode)

    def test_numbers_that_multiply_in_place_are_not_rounded(self):
        _, state = self.compare(Fading, "BF16")
        wanted = torch.tensor(0.5).bfloat16()
        for _ in range(STEPS):
            wanted.mul_(0.99)
        self.assertEqual(state["gain"].item(), wanted.item())
        self.assertTrue(torch.equal(state["gains"], wanted.float().expand(3)))

    def test_accumulation_and_clipping(self):
        for mode in PURE:
            with self.subTest(mode):
                self.compare(Normed, mode, accumulation=2, max_norm=0.5)

    def test_frozen_parts_are_kept_in_fp32(self):
        begin, state = self.compare(Follower, "BF16")
        self.assertTrue(torch.equal(state["still.weight"], begin["still.weight"]))
        self.assertFalse(torch.equal(begin["still.weight"].bfloat16().float(), begin["still.weight"]))

    def test_resume_is_bit_identical(self):
        for net, mode in ((Normed, "BF16"), (Dropped, "BF16"), (Normed, "FP16")):
            with self.subTest(net.__name__, mode=mode):
                job, _ = self.job(net, mode, checkpoint={"every_steps": 10, "keep_last": 10}, evaluation={"every_steps": 7})
                whole, last, files = self.train(job)
                (self.path / "middle.pt").write_bytes(files[0])
                rest, last_of_rest, _ = self.train(job, "--resume", self.path / "middle.pt")
                self.assertEqual(rest, whole[10:])
                for name, value in last["model_state_dict"].items():
                    self.assertTrue(torch.equal(value, last_of_rest["model_state_dict"][name]), name)
                plain, _, _ = self.train(self.job(net, mode)[0])
                self.assertEqual(plain, whole)

    def test_the_held_out_loss_is_in_fp32(self):
        job, module = self.job(Normed, "BF16", evaluation={"every_steps": 7})
        with tempfile.TemporaryDirectory() as checkpoints:
            _, output = twin.run_worker(job, checkpoints, environment=GATE)
            module.load_state_dict(torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"])
        held_out = {name: torch.tensor(self.arrays[name][-(EXAMPLES // 10):]) for name in ("x", "label")}
        printed = float(output.rsplit("held-out loss ", 1)[1].split()[0])
        self.assertAlmostEqual(loss_of(module.eval(), held_out).item() / printed, 1, delta=1e-5)

    def test_a_job_that_falls_back_goes_on_in_fp32(self):
        job, _ = self.job(Normed, "FP16", precision={"fallbacks": ["FP32"], "watchdog": {"overflow": {"window_steps": 10}}})
        spec = json.loads(job.read_text())
        job.write_text(json.dumps({**spec, "rehearsals": [{"kind": "INF", "at_step": 5, "steps": 9}, {"kind": "NAN", "at_step": 25}]}))
        with tempfile.TemporaryDirectory() as checkpoints:
            records, output = twin.run_worker(job, checkpoints, "--emulate-fp16", environment=GATE)
        self.assertEqual(len(records), STEPS)
        self.assertEqual((records[0]["mode"], records[-1]["mode"]), ("FP16", "FP32"), output)

    def test_a_batch_that_is_not_finite_is_diagnosed(self):
        job, _ = self.job(Normed, "BF16")
        job.write_text(json.dumps({**json.loads(job.read_text()), "rehearsals": [{"kind": "NAN", "at_step": 7}]}))
        with tempfile.TemporaryDirectory() as checkpoints:
            records, output = twin.run_worker(job, checkpoints, environment=GATE)
        self.assertEqual(len(records), STEPS)
        self.assertIn("the loss became nan at step 7 in BF16", output)
        self.assertIn("verdict: data", output)

    def test_a_module_gets_as_few_fields_cast_as_its_loss_needs(self):
        generator = torch.Generator().manual_seed(5)
        rows = {"x": torch.randn(EXAMPLES, 6, generator=generator), "y": 100 + torch.randn(EXAMPLES, 3, generator=generator)}
        first = next(twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3))

        def outside(module, batch):
            return nn.functional.mse_loss(module(batch["x"]), batch["y"])

        def by_parts(module, batch):
            return nn.functional.mse_loss(module[1](module[0](batch["x"])).float(), batch["y"])

        def sequence():
            return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))

        for module, loss, target in ((FloatLoss(), None, torch.float32), (OwnFormatLoss(), None, torch.bfloat16), (sequence(), outside, torch.float32),
                                     (sequence(), by_parts, torch.float32)):
            with self.subTest(type(module).__name__, loss=loss):
                job, _ = self.job(Normed, "BF16", arrays={name: tensor.numpy() for name, tensor in rows.items()}, training={"max_steps": 2})
                genesis.export(module, {name: tensor[:5] for name, tensor in rows.items()}, self.path / "net.pt2", loss=loss, precisions=["FP32", "BF16"])
                records, _, _ = self.train(job)
                module.to(torch.bfloat16)
                x, y = rows["x"][first].bfloat16(), rows["y"][first].to(target)
                wanted = nn.functional.mse_loss(module(x).float(), y) if loss else module(x, y)
                self.assertAlmostEqual(records[0]["loss"] / wanted.item(), 1, delta=1e-4)

    def test_what_does_not_run_in_a_format_is_exported_without_it(self):
        job, module = self.job(Arithmetic, "FP32")
        self.assertNotIn("without", self.manifest())
        genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of)
        manifest = self.manifest()
        self.assertEqual(manifest["precisions"], ["FP32", "MIXED_BF16", "MIXED_FP16"])
        self.assertEqual(list(manifest["without"]), ["BF16", "FP16"])
        reason = "Arithmetic does not run with weights in BF16, as after module.to(torch.bfloat16): RuntimeError: mat1 and mat2 must have the same dtype"
        self.assertTrue(manifest["without"]["BF16"].startswith(reason), manifest["without"])
        self.assertIn(exported_jobs.__file__, manifest["without"]["BF16"])
        self.train(job)
        job.write_text(json.dumps({**json.loads(job.read_text()), "precision": {"mode": "BF16"}}))
        self.assertIn(f"has no graph; accepted: FP32, MIXED_BF16, MIXED_FP16; when it was exported, {reason}", self.refused(job))
        with self.assertRaisesRegex(genesis.ExportError, "with weights in BF16, .*; MIXED_BF16 keeps them in FP32"):
            genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=["FP32", "BF16"])

    def test_a_file_has_all_precisions_and_its_weights_once(self):
        sizes = []
        module = nn.Sequential(nn.Linear(6, 4096), nn.Linear(4096, 3))
        for precisions in (None, ["FP32", "MIXED_BF16", "MIXED_FP16"]):
            genesis.export(module, self.batch("x"), self.path / "net.pt2", loss=loss_of, precisions=precisions)
            sizes.append((self.path / "net.pt2").stat().st_size)
            if precisions is None:
                self.assertEqual(self.manifest()["precisions"], ["FP32", "MIXED_BF16", "MIXED_FP16", "BF16", "FP16"])
                self.assertNotIn("without", self.manifest())
        self.assertLess(sizes[0] - sizes[1], sum(tensor.nbytes for tensor in module.parameters()) / 2)

    @tiers.nightly
    def test_a_compiled_step_trains_as_the_graph_does(self):
        packages = self.path / "packages"
        job, _ = self.job(Normed, "BF16", precision={"fallbacks": ["FP32"]})
        made = compiled_job.compile_job(job, packages)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(len(list(packages.glob("*.pt2"))), 2, made.stdout)
        plain, last, _ = super().train(job)
        with tempfile.TemporaryDirectory() as folder:
            compiled = compiled_job.train_compiled(self, job, folder, packages)
            state = torch.load(twin.newest_checkpoint(folder))["model_state_dict"]
        self.assertLess(compiled_job.worst(compiled, plain), 3e-2)
        for name, value in last["model_state_dict"].items():
            # The gradient of a bias before a norm consists of rounding errors. Running averages are rounded to BF16 in each step, which a
            # package does less often.
            if name not in ("layers.0.bias", "layers.1.running_mean"):
                torch.testing.assert_close(state[name], value, rtol=5e-2, atol=1e-2, msg=lambda text, name=name: f"{name}: {text}")


if __name__ == "__main__":
    unittest.main()
