"""Tests modules that are exported with one loss per example: the mean trains as usual, and prioritized sampling uses the losses."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import compiled_job
import numpy
import tiers
import torch
import twin
from replay_files import replay_segment, trajectories
from splitmix import SplitMix64
from torch import nn

import genesis

GATE = {"ENABLE_FP16_TRAINING": "true"}
ROWS, TRAINED, BATCH, STEPS, SEED = 120, 100, 8, 20, 11
FIELDS = {"observation": 3, "action": 2, "change": 3, "reward": 1, "done": 1}


class Rewards(nn.Module):
    """A module with a buffer that each step changes, and with random draws."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.1), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, observation, action):
        return self.layers(torch.cat([observation, action], 1))


def losses_of(module, batch):
    return (module(batch["observation"], batch["action"]) - batch["reward"]).square().mean(1)


def loss_of(module, batch):
    return losses_of(module, batch).mean()


class ExampleLosses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        torch.manual_seed(4)
        cls.module = Rewards()
        # These are all fields of a transition. The loss needs three of them.
        batch = {name: torch.randn(7, size) for name, size in FIELDS.items()}
        genesis.export(cls.module, batch, cls.root / "losses.pt2", loss=losses_of)
        genesis.export(cls.module, batch, cls.root / "mean.pt2", loss=loss_of)
        arrays = trajectories(ROWS)
        cls.priorities = numpy.random.default_rng(5).uniform(0.1, 4, ROWS).astype("float32")
        (cls.root / "buffer").mkdir()
        (cls.root / "buffer" / f"{0:020}.segment").write_bytes(replay_segment(arrays, cls.priorities, 50))
        cls.data = {"observation": torch.tensor(arrays["observations"]), "action": torch.tensor(arrays["actions"]),
                    "reward": torch.tensor(arrays["rewards"]).reshape(-1, 1)}

    def job(self, file, kind="PRIORITIZED", mode="FP32", **sections):
        job = {"model": {"exported": {"path": str(self.root / file)}},
               "dataset": {"replay": {"path": str(self.root / "buffer")}, "sampling": {"kind": kind}},
               "training": {"max_steps": STEPS, "batch_size": BATCH, "seed": SEED, "max_grad_norm": -1}, "precision": {"mode": mode}}
        for section, values in sections.items():
            job.setdefault(section, {}).update(values)
        path = self.root / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def train(self, job, *flags):
        with tempfile.TemporaryDirectory() as folder:
            records, output = twin.run_worker(job, folder, *flags, environment=GATE)
            files = [path.read_bytes() for path in sorted(pathlib.Path(folder).glob("*.pt"))]
            return records, torch.load(twin.newest_checkpoint(folder)), files

    def prioritized(self, known, draws):
        """Returns the rows of batch number `draws` and their weights, as documented in trainer/data/prioritized_sampler.h."""
        shares = known.astype("float64") ** 0.6
        ends, random = shares.cumsum(), SplitMix64(SEED, draws)
        chosen = [int(numpy.searchsorted(ends, (k + random.uniform()) / BATCH * ends[-1], "right")) for k in range(BATCH)]
        weights = (len(known) * shares[chosen] / shares.sum()) ** -0.4
        return chosen, (weights / ((len(known) * shares / shares.sum()) ** -0.4).max()).astype("float32")

    def loop(self, mode="FP32", accumulation=1):
        """Trains in Python. Returns the losses of the steps, the weights, and the final priorities."""
        module = Rewards()
        module.load_state_dict(self.module.state_dict())
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        known, draws, found = self.priorities[:TRAINED].copy(), 0, []
        torch.manual_seed(SEED)
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(accumulation):
                chosen, weights = self.prioritized(known, draws)
                draws += 1
                with torch.autocast("cpu", torch.bfloat16, enabled=mode == "MIXED_BF16"):
                    losses = losses_of(module, {name: values[chosen] for name, values in self.data.items()}).float()
                loss = (losses * torch.tensor(weights)).mean() / accumulation
                loss.backward()
                total += loss.item()
                known[chosen] = losses.detach().numpy()
            optimizer.step()
            found.append(total)
        return found, module.state_dict(), known

    def test_prioritized_sampling_goes_by_the_losses_of_the_examples(self):
        for mode, accumulation, most in (("FP32", 1, 1e-5), ("FP32", 2, 1e-5), ("MIXED_BF16", 1, 2e-3)):
            with self.subTest(mode, accumulation=accumulation):
                records, last, _ = self.train(self.job("losses.pt2", mode=mode, training={"gradient_accumulation_steps": accumulation}))
                wanted, state, known = self.loop(mode, accumulation)
                for record, loss in zip(records, wanted, strict=True):
                    self.assertLess(abs(record["loss"] - loss) / loss, most, record)
                for name, value in state.items():
                    torch.testing.assert_close(last["model_state_dict"][name], value, rtol=1e-2, atol=5e-3, msg=name)
                numpy.testing.assert_allclose(last["genesis"]["priorities"].numpy(), known, rtol=1e-3 if mode == "FP32" else 0.05, atol=1e-6)

    def test_resume_is_bit_identical(self):
        job = self.job("losses.pt2", checkpoint={"every_steps": 10, "keep_last": 10}, evaluation={"every_steps": 7})
        whole, last, files = self.train(job)
        (self.root / "middle.pt").write_bytes(files[0])
        rest, last_of_rest, _ = self.train(job, "--resume", self.root / "middle.pt")
        self.assertEqual(rest, whole[10:])
        for name, value in last["model_state_dict"].items():
            self.assertTrue(torch.equal(value, last_of_rest["model_state_dict"][name]), name)
        self.assertTrue(torch.equal(last["genesis"]["priorities"], last_of_rest["genesis"]["priorities"]))

    def test_uniform_sampling_trains_as_by_the_mean(self):
        for mode in ("FP32", "MIXED_BF16"):
            sections = {"kind": "UNIFORM", "mode": mode, "evaluation": {"every_steps": 5}}
            by_losses, last, _ = self.train(self.job("losses.pt2", **sections))
            by_mean, last_by_mean, _ = self.train(self.job("mean.pt2", **sections))
            self.assertEqual(by_losses, by_mean)
            for name, value in last["model_state_dict"].items():
                self.assertTrue(torch.equal(value, last_by_mean["model_state_dict"][name]), name)

    def test_a_step_without_finite_numbers_is_looked_into(self):
        # The module has no batch norm, whose statistics would keep the NaN, as in Python.
        module = nn.Linear(5, 1)
        losses = lambda module, batch: (module(torch.cat([batch["observation"], batch["action"]], 1)) - batch["reward"]).square().mean(1)
        genesis.export(module, {name: torch.randn(7, FIELDS[name]) for name in self.data}, self.root / "linear.pt2", loss=losses)
        job = self.job("linear.pt2")
        spec = json.loads(job.read_text())
        job.write_text(json.dumps({**spec, "rehearsals": [{"kind": "NAN", "at_step": 7}]}))
        with tempfile.TemporaryDirectory() as folder:
            records, output = twin.run_worker(job, folder, environment=GATE)
        self.assertEqual(len(records), STEPS)
        self.assertIn("the loss became nan at step 7 in FP32", output)

    @tiers.nightly
    def test_a_compiled_step_of_such_a_module(self):
        packages = self.root / "packages"
        job = self.job("losses.pt2", kind="UNIFORM")
        made = compiled_job.compile_job(job, packages)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        plain, _, _ = self.train(job)
        with tempfile.TemporaryDirectory() as folder:
            compiled = compiled_job.train_compiled(self, job, folder, packages)
        self.assertLess(compiled_job.worst(compiled, plain), 1e-4)

    def test_the_mean_alone_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([twin.WORKER, "--spec", self.job("mean.pt2"), "--checkpoint-dir", folder], capture_output=True, text=True,
                                  env={**os.environ, **GATE})
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "FAILURE_CAUSE_CONFIG: dataset.sampling.kind is PRIORITIZED, which weighs the loss of each example, and "
                                      ".*mean.pt2 has their mean alone; accepted: UNIFORM, or a module exported with a loss that returns one "
                                      "value for each example")


if __name__ == "__main__":
    unittest.main()
