"""Tests exported modules that several ranks train, against a Python loop that works like DistributedDataParallel."""

import json
import os
import subprocess
import tempfile
import unittest
from unittest import mock

import compiled_job
import module_kinds
import tiers
import torch
import twin
from exported_jobs import BATCH, EXAMPLES, GATE, MODULES, PURE, STEPS, Attentive, Compilable, ExportedJobs, Loop, Normed, Partial, learnt
from rank_jobs import GLOO, LONG, launched

RANKS = 2
# Gradients are summed in another order, and trainer/kernels may compute products and attention of BF16 in FP32.
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 5e-3, "BF16": 2e-2}


class RanksOfModules(ExportedJobs):
    def ranks_job(self, net, mode="FP32", **training):
        return self.job(net, mode, training={"use_ddp": True, "batch_size": BATCH // RANKS, **training})

    def train(self, job, *flags, environment=None):
        """Runs a job with two ranks. Returns the records of the steps, the last checkpoint, and the output."""
        with tempfile.TemporaryDirectory() as folder:
            command = launched(twin.WORKER, "--spec", job, "--checkpoint-dir", folder, "--telemetry", f"{folder}/telemetry.jsonl",
                               "--threads", "1", *flags, count=RANKS)
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **GATE, **(environment or {})},
                                  timeout=LONG)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(f"{folder}/telemetry.jsonl") as lines:
                records = [json.loads(line) for line in lines]
            return records, torch.load(twin.newest_checkpoint(folder)), done.stdout

    def loop(self, module, field, mode, accumulation):
        """Trains in Python. Each part of a batch goes through the module by itself, and buffers keep the changes of the first part."""
        loop, rows = Loop(module, mode), twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        data = {name: torch.tensor(self.arrays[name]) for name in (field, "label")}
        given = data[field].to(PURE[mode]) if mode in PURE and field == "x" else data[field]

        def losses():
            for _ in range(accumulation):
                for rank, now in enumerate(next(rows).chunk(RANKS)):
                    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
                    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "MIXED_BF16"):
                        output = module(given[now])
                    yield torch.nn.functional.cross_entropy(output.float(), data["label"][now]) / accumulation / RANKS
                    for name, buffer in module.named_buffers() if rank > 0 else ():
                        buffer.copy_(kept[name])

        return [loop.step(losses()) for _ in range(STEPS)]

    def test_losses_and_weights_are_those_of_the_python_loop(self):
        self.compare(Normed)

    @tiers.nightly
    def test_losses_and_weights_of_other_modules_are_too(self):
        for net in Attentive, Partial:
            self.compare(net)

    def compare(self, net):
        for mode, accumulation, environment in (("FP32", 1, {}), ("FP32", 2, GLOO), ("MIXED_BF16", 1, {}),
                                                *([("BF16", 2, {})] if net is Normed else [])):
            with self.subTest(net.__name__, mode=mode, accumulation=accumulation):
                job, module = self.ranks_job(net, mode, gradient_accumulation_steps=accumulation)
                records, last, _ = self.train(job, environment=environment)
                losses = self.loop(module, MODULES[net], mode, accumulation)
                for record, loss in zip(records, losses, strict=True):
                    self.assertLess(abs(record["loss"] - loss) / abs(loss), TOLERANCE[mode], record)
                state = last["model_state_dict"]
                self.assertEqual(set(state), set(module.state_dict()))
                for name, tensor in module.state_dict().items():
                    torch.testing.assert_close(learnt(name, state[name], mode), learnt(name, tensor.to(state[name].dtype), mode), rtol=1e-2,
                                               atol=5e-3, msg=name)

    @tiers.nightly
    @mock.patch.object(ExportedJobs, "exports_few", True)
    def test_recurrent_layers_and_parts_that_follow_train_as_one_process_does(self):
        for net in module_kinds.BothWays, module_kinds.Follower:
            wanted, _, _ = ExportedJobs.train(self, self.job(net)[0])
            for environment, distributed in ({}, {}), (GLOO, {}), ({}, {"shard_optimizer_state": True}):
                with self.subTest(net.__name__, environment=environment, distributed=distributed):
                    job, _ = self.job(net, training={"use_ddp": True, "batch_size": BATCH // RANKS}, distributed=distributed)
                    records, _, _ = self.train(job, environment=environment)
                    for ours, theirs in zip(records, wanted, strict=True):
                        self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-5 * theirs["loss"])

    def test_a_skipped_step_spoils_no_buffer_of_a_rank(self):
        self.arrays["x"][23] = 3e38  # Overflows in the first product.
        for environment in ({}, GLOO):
            records, last, _ = self.train(self.ranks_job(Normed)[0], environment=environment)
            skipped = sum(record["skipped"] for record in records)
            self.assertGreater(skipped, 0)
            state = last["model_state_dict"]
            self.assertEqual(state["layers.1.num_batches_tracked"].item(), STEPS - skipped)
            self.assertTrue(all(torch.isfinite(tensor).all() for tensor in state.values()))

    @tiers.nightly
    def test_compiled_steps_train_as_the_graph_does(self):
        packages = self.path / "packages"
        made = compiled_job.compile_job(self.ranks_job(Compilable)[0], packages)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        plain, _, _ = self.train(self.ranks_job(Compilable)[0])
        compiled, _, output = self.train(self.ranks_job(Compilable)[0], "--compiled-dir", packages)
        self.assertRegex(output, r"\nstep: compiled \(package [0-9a-f]{12}\)\n")
        self.assertLess(compiled_job.worst(compiled, plain), 1e-4)


if __name__ == "__main__":
    unittest.main()
