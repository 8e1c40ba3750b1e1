"""A step that is skipped, because its gradients were not finite, leaves buffers as they were before it."""

import tempfile
import unittest

import compiled_job
import numpy
import tiers
import torch
import twin
from exported_jobs import BATCH, EXAMPLES, ExportedJobs, loss_of
from torch import nn

STEPS = 40
BAD_ROW = 17


class Wide(nn.Module):
    """A module that overflows in FP16 on a large row, so that its batch norm statistics are not finite."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        with torch.no_grad():
            self.layers[0].weight *= 4

    def forward(self, x):
        return self.layers(x)


class Smooth(nn.Module):
    """A similar module with layer norm instead of batch norm, and so without state."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 3))
        with torch.no_grad():
            self.layers[0].weight *= 4

    def forward(self, x):
        return self.layers(x)


class Remembering(nn.Module):
    """Keeps what it saw in buffers that it changes in place or assigns, and in some that no state_dict() has."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Linear(12, 3)
        self.register_buffer("largest", torch.zeros(()))
        self.register_buffer("assigned", torch.zeros(6))
        self.register_buffer("drift", torch.zeros(6), persistent=False)
        self.register_buffer("calls", torch.tensor(0), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
            self.largest.copy_(torch.maximum(self.largest, x.detach().float().abs().max()))
            self.assigned = self.assigned * 0.5 + x.detach().float().mean(0)
            self.drift = self.drift * 0.5 + x.detach().float().mean(0)
        return self.head(torch.tanh(self.norm(self.layer(x))))


class SkippedSteps(ExportedJobs):
    def spoil(self, value, rows=(BAD_ROW,)):
        """Replaces rows by numbers of this size. 3e38 overflows in FP32 too. Infinities would be rejected when the dataset is read."""
        for row in rows:
            self.arrays["x"][row] = value * numpy.where(numpy.arange(6) % 2, 1, -1)

    def skipping(self, net, mode="FP32", **sections):
        sections.setdefault("training", {})["max_steps"] = STEPS
        sections.setdefault("checkpoint", {"every_steps": 10})
        return self.job(net, mode, **sections)

    def assert_unspoilt(self, records, state, accumulation=1):
        """Checks that some steps were skipped, and that the buffers are finite and result from the other steps only."""
        skipped = sum(record["skipped"] for record in records)
        self.assertGreater(skipped, 0)
        for name, tensor in state.items():
            self.assertTrue(torch.isfinite(tensor).all(), name)
            if name.endswith("num_batches_tracked"):
                self.assertEqual(tensor.item(), (len(records) - skipped) * accumulation, name)

    def test_an_overflow_spoils_no_buffer(self):
        self.spoil(2.7e4)
        for mode in ("MIXED_FP16", "FP16"):
            with self.subTest(mode):
                records, last, _ = self.train(self.skipping(Wide, mode)[0], "--emulate-fp16")
                self.assertEqual(len(records), STEPS)
                self.assert_unspoilt(records, last["model_state_dict"])

    def test_the_job_ends_as_one_without_buffers(self):
        """If values too large for FP16 occur again and again, the job falls back to FP32 and ends with finite weights."""
        for value in (2.7e4, 2e5):
            self.spoil(value, range(5, EXAMPLES - EXAMPLES // 10, 9))
            for net in (Wide, Smooth):
                with self.subTest(net.__name__, value=value):
                    records, last, _ = self.train(self.skipping(net, "MIXED_FP16")[0], "--emulate-fp16")
                    self.assertEqual(records[-1]["step"], STEPS)
                    self.assertTrue(all(torch.isfinite(tensor).all() for tensor in last["model_state_dict"].values()))

    def loop(self, module, accumulation):
        """Trains in Python. Skips steps whose gradients are not finite, like GradScaler, and restores the buffers that forward changed."""
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        data = {name: torch.tensor(self.arrays[name]) for name in ("x", "label")}
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            before = {name: buffer.clone() for name, buffer in module.named_buffers()}
            total = 0.0
            for _ in range(accumulation):
                now = next(rows)
                loss = loss_of(module, {name: values[now] for name, values in data.items()}) / accumulation
                loss.backward()
                total += loss.item()
            if all(torch.isfinite(parameter.grad).all() for parameter in module.parameters()):
                optimizer.step()
            else:
                for name, buffer in module.named_buffers():
                    buffer.copy_(before[name])
            losses.append(total)
        return losses

    def test_fp32_does_as_the_python_loop(self):
        self.spoil(3e38)
        for accumulation in (1, 3):
            with self.subTest(accumulation=accumulation):
                job, module = self.skipping(Wide, training={"gradient_accumulation_steps": accumulation, "max_grad_norm": -1})
                records, last, _ = self.train(job)
                losses = self.loop(module, accumulation)
                for record, loss in zip(records, losses, strict=True):
                    self.assertEqual(record["skipped"], not numpy.isfinite(loss), record)
                    if not record["skipped"]:
                        self.assertLess(abs(record["loss"] - loss), 1e-4 * loss, record)
                self.assert_unspoilt(records, last["model_state_dict"], accumulation)
                for name, tensor in module.state_dict().items():
                    torch.testing.assert_close(last["model_state_dict"][name], tensor, rtol=1e-3, atol=1e-4, msg=name)

    def test_buffers_that_state_dict_leaves_out_are_put_back_too(self):
        self.spoil(3e38)
        records, last, _ = self.train(self.skipping(Remembering)[0])
        self.assert_unspoilt(records, {**last["model_state_dict"], **last["genesis"]["attributes"]})
        applied = STEPS - sum(record["skipped"] for record in records)
        self.assertEqual(last["genesis"]["attributes"]["calls"].item(), applied)
        self.assertLess(last["model_state_dict"]["largest"].item(), 10)

    def test_a_job_without_skipped_steps_is_the_same_run(self):
        """State that is kept for a skipped step changes no other step."""
        job, module = self.skipping(Wide)
        records, last, _ = self.train(job)
        self.assertEqual(sum(record["skipped"] for record in records), 0)
        losses = self.loop(module, 1)
        for record, loss in zip(records, losses, strict=True):
            self.assertLess(abs(record["loss"] - loss), 1e-5 * loss, record)
        self.assertEqual(last["model_state_dict"]["layers.1.num_batches_tracked"].item(), STEPS)

    @tiers.nightly
    def test_compiled_steps(self):
        self.spoil(3e38)
        packages = self.path / "packages"
        with tempfile.TemporaryDirectory() as folder:
            job, _ = self.skipping(Wide)
            made = compiled_job.compile_job(job, packages)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            records = compiled_job.train_compiled(self, job, folder, packages)
            self.assert_unspoilt(records, torch.load(twin.newest_checkpoint(folder))["model_state_dict"])


if __name__ == "__main__":
    unittest.main()
