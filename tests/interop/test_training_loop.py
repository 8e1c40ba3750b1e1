"""Tests that genesis-worker trains like a Python loop, and that Python loads its checkpoints."""

import re
import tempfile
import unittest

import torch

import twin


def python_losses(dataset, steps, batch_size=64, accumulation=1, max_norm=1.0, seed=3):
    torch.manual_seed(seed)
    model = twin.WorldModel(dataset.observation.shape[1], dataset.action.shape[1], 32, 16)
    model.take_statistics(dataset)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    rows = twin.batches(dataset.training_size, batch_size, seed)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(accumulation):
            loss = model.loss(dataset, next(rows)) / accumulation
            loss.backward()
            total += loss.item()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        losses.append(total)
    return losses, model


class TrainingLoopTest(twin.PendulumTest):
    def compare(self, tolerance, settings, **loop):
        records, _ = twin.run_worker(
            twin.job_file(self.folder, training=settings), self.folder)
        losses, _ = python_losses(self.dataset, 50, **loop)
        worst = max(abs(r["loss"] - want) / want for r, want in zip(records, losses))
        self.assertEqual(len(records), 50)
        self.assertLess(worst, tolerance)

    def test_fifty_steps_in_fp32(self):
        self.compare(1e-5, {"max_grad_norm": -1}, max_norm=None)

    def test_fifty_steps_with_two_micro_batches(self):
        self.compare(1e-5, {"max_grad_norm": -1, "gradient_accumulation_steps": 2},
                     max_norm=None, accumulation=2)

    def test_fifty_steps_with_clipping_that_bites(self):
        self.compare(1e-5, {"max_grad_norm": 0.1}, max_norm=0.1)

    def test_checkpoint_rebuilds_the_model_and_its_held_out_error(self):
        _, output = twin.run_worker(twin.job_file(self.folder), self.folder)
        checkpoint = torch.load(twin.newest_checkpoint(self.folder))
        self.assertTrue(all(t.dtype == torch.float32
                            for t in checkpoint["model_state_dict"].values()))
        model = twin.WorldModel(3, 1, 32, 16)
        model.load_state_dict(checkpoint["model_state_dict"])
        held_out = slice(self.dataset.training_size, None)
        _, deviation = self.dataset.statistics("observation")
        with torch.no_grad():
            predicted, _, _ = model(self.dataset.observation[held_out],
                                    self.dataset.action[held_out])
        error = (predicted - self.dataset.next_observation[held_out]) / deviation
        printed = float(output.split("held-out error on")[1].split("model ")[1].split(",")[0])
        self.assertAlmostEqual(error.double().square().mean().item() / printed, 1, delta=1e-4)

    def test_checkpoint_continues_in_python(self):
        twin.run_worker(twin.job_file(self.folder, training={"max_grad_norm": -1}), self.folder)
        checkpoint = torch.load(twin.newest_checkpoint(self.folder))
        model = twin.WorldModel(3, 1, 32, 16)
        model.load_state_dict(checkpoint["model_state_dict"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, fused=True)
        optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        self.assertEqual(optimizer.param_groups[0]["lr"], 1e-3)
        rows = twin.batches(self.dataset.training_size, 64, 3)
        for _ in range(50):
            next(rows)
        for _ in range(3):
            optimizer.zero_grad()
            model.loss(self.dataset, next(rows)).backward()
            optimizer.step()
        _, wanted = python_losses(self.dataset, 53, max_norm=None)
        for name, value in wanted.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-6)

    def test_resume_from_a_checkpoint_that_python_saved_again(self):
        job = twin.job_file(self.folder, checkpoint={"every_steps": 25})
        whole, _ = twin.run_worker(job, self.folder)
        middle = min(self.folder.glob("*.pt"))
        saved_again = self.folder / "again.pt"
        torch.save(torch.load(middle), saved_again)
        rest, _ = twin.run_worker(job, self.folder, "--resume", saved_again)
        self.assertEqual(rest, whole[25:])

    def test_resume_is_bit_identical(self):
        job = twin.job_file(self.folder, checkpoint={"every_steps": 25},
                            training={"max_steps": 100, "gradient_accumulation_steps": 3})
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            all_steps, _ = twin.run_worker(job, whole)
            last_whole = torch.load(twin.newest_checkpoint(whole))
            half = sorted(twin.pathlib.Path(whole).glob("*.pt"))[0]
            rest, _ = twin.run_worker(job, parts, "--resume", half)
            last_parts = torch.load(twin.newest_checkpoint(parts))
        self.assertEqual(rest, all_steps[50:])
        for name, value in last_whole["model_state_dict"].items():
            self.assertTrue(torch.equal(value, last_parts["model_state_dict"][name]), name)
        for index, entry in last_whole["optimizer_state_dict"]["state"].items():
            for name, value in entry.items():
                other = last_parts["optimizer_state_dict"]["state"][index][name]
                self.assertTrue(torch.equal(value, other), (index, name))
        for name in ("step", "samples", "epoch", "batch_in_epoch"):
            self.assertEqual(last_whole["genesis"][name], last_parts["genesis"][name])

    def test_a_plateau_lowers_the_rate_as_pytorch_does(self):
        job = twin.job_file(self.folder, training={"max_steps": 120}, evaluation={"every_steps": 5, "min_improvement": 0.6}, checkpoint={"every_steps": 40},
                            optimizer={"schedule": {"kind": "PLATEAU", "plateau_factor": 0.5, "plateau_patience": 3, "final_fraction": 0.2, "warmup_steps": 4}})
        records, output = twin.run_worker(job, self.folder)
        losses = {int(step): float(loss) for step, loss in re.findall(r"evaluation: step (\d+), held-out loss ([\d.e+-]+)", output)}
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-3)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, threshold=0.6, threshold_mode="abs", min_lr=2e-4, eps=0)
        rates = []
        for step in range(1, 121):
            rates.append(optimizer.param_groups[0]["lr"])
            if step in losses:
                plateau.step(losses[step])
        self.assertGreaterEqual(len(set(rates)), 3, "the losses reach plateaus")
        for step, (record, rate) in enumerate(zip(records, rates), 1):
            self.assertAlmostEqual(record["learning_rate"], rate * min(step / 4, 1), places=12, msg=step)
        for path in sorted(self.folder.glob("*.pt")):
            step = torch.load(path)["genesis"]["step"]
            following = rates[step] if step < 120 else optimizer.param_groups[0]["lr"]
            self.assertAlmostEqual(torch.load(path)["optimizer_state_dict"]["param_groups"][0]["lr"], following, places=12)
            if step < 120:
                rest, _ = twin.run_worker(job, self.folder, "--resume", path)
                self.assertEqual(rest, records[step:])

    def test_bf16_trains_when_the_gate_is_open(self):
        job = twin.job_file(self.folder, precision={"mode": "MIXED_BF16"})
        records, output = twin.run_worker(job, self.folder,
                                          environment={"ENABLE_FP16_TRAINING": "true"})
        self.assertIn("precision: MIXED_BF16", output)
        self.assertLess(records[-1]["loss"], 0.5 * records[0]["loss"])
        checkpoint = torch.load(twin.newest_checkpoint(self.folder))
        self.assertEqual(checkpoint["genesis"]["mode"], "MIXED_BF16")
        self.assertTrue(all(t.dtype == torch.float32
                            for t in checkpoint["model_state_dict"].values()))


if __name__ == "__main__":
    unittest.main()
