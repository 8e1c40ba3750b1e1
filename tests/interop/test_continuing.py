"""Tests jobs that continue from the checkpoint of another against Python loops that do the same."""

import copy
import json
import subprocess
import tempfile
import unittest

import torch

import reference_loop
import twin


class ContinuingTest(twin.PendulumTest):
    def first(self, **settings):
        """Trains fifty steps. Returns the ID and the content of the checkpoint."""
        twin.run_worker(twin.job_file(self.folder, **settings), self.folder)
        path = twin.newest_checkpoint(self.folder)
        return path.stem, torch.load(path)

    def next_job(self, source, **settings):
        """Writes a job that continues from the checkpoint `source`: other length, batches and order of the data."""
        training = {"max_steps": 30, "batch_size": 32, "seed": 8, "max_grad_norm": -1, **settings.pop("training", {})}
        with tempfile.TemporaryDirectory() as folder:
            job = json.loads(twin.job_file(folder, training=training, **settings).read_text())
        path = self.folder / "next.yaml"
        path.write_text(json.dumps({**job, "continue_from_checkpoint": source}))
        return path

    def python_records(self, checkpoint, rate, steps=30):
        model = twin.WorldModel(3, 1, 32, 16)
        model.load_state_dict(checkpoint["model_state_dict"])
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer_state_dict"]))
        rows = twin.batches(self.dataset.training_size, 32, 8)
        records = []
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.zero_grad()
            loss = model.loss(self.dataset, next(rows))
            loss.backward()
            optimizer.step()
            records.append((loss.item(), rate(step)))
        return records

    def expect(self, records, wanted):
        self.assertEqual([each["step"] for each in records], list(range(1, 31)))
        for record, (loss, rate) in zip(records, wanted):
            self.assertLess(abs(record["loss"] - loss), 1e-5 * loss, record["step"])
            self.assertLess(abs(record["learning_rate"] - rate), 1e-6 * rate)

    def test_the_optimizer_goes_on_with_other_batches_and_another_rate(self):
        checkpoint, state = self.first()
        records, output = twin.run_worker(self.next_job(checkpoint, optimizer={"learning_rate": 4e-4}), self.folder)
        self.expect(records, self.python_records(state, lambda step: 4e-4))
        self.assertIn(f"{checkpoint}.pt, step 50", output)
        anew = self.next_job(checkpoint, optimizer={"learning_rate": 4e-4})
        job = json.loads(anew.read_text())
        job["model"]["initial_weights"] = str(self.folder / f"{job.pop('continue_from_checkpoint')}.pt")
        anew.write_text(json.dumps(job))
        weights_alone, _ = twin.run_worker(anew, self.folder)
        self.assertEqual(weights_alone[0]["loss"], records[0]["loss"])
        self.assertGreater(abs(weights_alone[5]["loss"] / records[5]["loss"] - 1), 1e-3, "moments make a difference")

    def test_a_schedule_goes_on_or_starts_anew(self):
        shape = {"kind": "COSINE", "warmup_steps": 5, "final_fraction": 0.1}
        checkpoint, state = self.first(optimizer={"schedule": shape})
        for goes_on, before in ((True, 50), (False, 0)):
            with self.subTest(goes_on=goes_on):
                job = self.next_job(checkpoint, optimizer={"schedule": {**shape, "goes_on": goes_on}}, checkpoint={"every_steps": 10})
                records, _ = twin.run_worker(job, self.folder)
                factor = reference_loop.factor(shape, before + 30)
                self.expect(records, self.python_records(state, lambda step, b=before: 1e-3 * factor(b + step)))
                # A resumed attempt knows where the schedule began.
                middle = self.folder / "next-step-000000000010.pt"
                rest, _ = twin.run_worker(job, self.folder, "--resume", middle)
                self.assertEqual(rest, records[10:])

    def test_average_and_scale_go_on(self):
        checkpoint, state = self.first(training={"ema_decay": 0.9})
        twin.run_worker(self.next_job(checkpoint, training={"max_steps": 1, "ema_decay": 0.9}), self.folder)
        after = torch.load(self.folder / "next-step-000000000001.pt")
        for name, average in state["ema_state_dict"].items():
            wanted = average + (after["model_state_dict"][name] - average) * 0.1
            torch.testing.assert_close(after["ema_state_dict"][name], wanted, rtol=1e-6, atol=1e-7)

    def refusal(self, job):
        done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", self.folder, "--threads", "1"], capture_output=True, text=True,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        return done.stdout + done.stderr

    def test_what_does_not_fit_is_named(self):
        checkpoint, _ = self.first()
        for settings, text in (
                ({"model": {"world_model": {"hidden_size": 64, "latent_size": 16}}}, "has shape"),
                ({"optimizer": {"kind": "SGD"}}, "it was made with ADAMW; the job has SGD; start_from_checkpoint takes the weights alone"),
                ({"training": {"ema_decay": 0.9}}, "has no average of the weights; the job has training.ema_decay")):
            with self.subTest(text):
                told = self.refusal(self.next_job(checkpoint, **settings))
                self.assertIn(f"continue_from_checkpoint {checkpoint} does not fit the job: it", told)
                self.assertIn(text, told)
        self.assertIn('continue_from_checkpoint: there is no checkpoint "none"', self.refusal(self.next_job("none")))
        (self.folder / f"{checkpoint}.pt").write_bytes(b"PK")
        self.assertIn(f"continue_from_checkpoint {checkpoint}: ", self.refusal(self.next_job(checkpoint)))


if __name__ == "__main__":
    unittest.main()
