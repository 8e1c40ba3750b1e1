"""Tests precisions, samplers, optimizers and compressed gradients of ranks against one process and DistributedDataParallel."""

import unittest

import torch

import compiled_job
import processor
import tiers
from rank_jobs import BF16_TOLERANCE, COMPRESSED_TOLERANCE, GLOO, TOLERANCE, WITHOUT_READING, RankJobs


@tiers.nightly
class RankNumerics(RankJobs):
    def test_so_do_micro_batches(self):
        # Each micro-batch of 64 examples is split between the two ranks. One process trains on the same micro-batches.
        self.compare(training={"gradient_accumulation_steps": 2})

    def test_so_do_steps_in_bf16(self):
        for mode in "MIXED_BF16", "BF16":
            with self.subTest(mode):
                together, _ = self.compare(BF16_TOLERANCE, compiled_job.ALLOWED, precision={"mode": mode},
                                           training={"gradient_accumulation_steps": 2})
                self.assertEqual(together[-1]["mode"], mode)

    def test_so_do_steps_in_fp16(self):
        for mode in "MIXED_FP16", "FP16":
            for training in {}, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}:
                with self.subTest(mode, training=training):
                    # The first steps overflow. All ranks skip them and halve the scale together.
                    together, records = self.compare(1e-3, compiled_job.ALLOWED, ["--emulate-fp16"], training=training,
                                                     precision={"mode": mode, "loss_scale": 2.0**24})
                    self.assertEqual({record["mode"] for record in together}, {mode})
                    self.assertGreater(sum(record["skipped"] for record in together), 2)
                    for key in "skipped", "loss_scale":
                        self.assertEqual([record[key] for record in together], [record[key] for record in records])

    def test_so_does_sampling_by_priorities(self):
        for environment, training in ({}, {}), (GLOO, {"gradient_accumulation_steps": 2}):
            with self.subTest(training, environment=environment):
                together, _ = self.compare(environment=environment, **self.replay(**training))
                uniform = self.replay(**training)
                uniform["dataset"]["sampling"] = {"kind": "UNIFORM"}
                other, _ = self.train(self.job("uniform", **uniform), environment=environment)
                self.assertNotAlmostEqual(together[0]["loss"], other[0]["loss"], delta=1e-4)

    def test_compressed_gradients_are_as_pytorchs_hooks(self):
        for kind in "FP16", "BF16":
            for environment in {}, GLOO:
                with self.subTest(kind, environment=environment):
                    output = self.check_beside_pytorch(COMPRESSED_TOLERANCE, f"{kind.lower()}_compress_hook", environment,
                                                       distributed={"gradient_compression": kind})
                    self.assertIn(" MiB compressed, by ", output)

    def test_error_feedback_is_as_pytorch_with_such_a_hook(self):
        for environment in {}, GLOO:
            with self.subTest(environment=environment):
                # Without feedback, the losses differ by twice the tolerance.
                self.check_beside_pytorch(TOLERANCE, "error_feedback", environment,
                                          distributed={"gradient_compression": "BF16", "use_error_feedback": True})

    def test_an_optimizer_that_is_shared_out_is_the_same_to_the_bit(self):
        for optimizer, environment in (({"kind": "ADAMW"}, {}), ({"kind": "SGD", "momentum": 0.9, "learning_rate": 0.01}, GLOO)):
            with self.subTest(optimizer["kind"], environment=environment):
                settings = {"optimizer": optimizer, "training": {"max_steps": 60, "ema_decay": 0.9},
                            "checkpoint": {"every_steps": 20}}
                whole = self.job("whole" + optimizer["kind"], distributed={"shard_optimizer_state": False}, **settings)
                shared = self.job("shared" + optimizer["kind"], distributed={"shard_optimizer_state": True}, **settings)
                self.assertEqual([record["loss"] for record in self.train(shared, environment=environment)[0]],
                                 [record["loss"] for record in self.train(whole, environment=environment)[0]])
                for first, second in zip(sorted(whole.parent.glob("*.pt")), sorted(shared.parent.glob("*.pt")), strict=True):
                    first, second = torch.load(first), torch.load(second)
                    for section in "model_state_dict", "ema_state_dict":
                        for name, tensor in first[section].items():
                            self.assertTrue(torch.equal(tensor, second[section][name]), name)
                    for number, entry in first["optimizer_state_dict"]["state"].items():
                        for name, tensor in entry.items():
                            self.assertTrue(torch.equal(tensor, second["optimizer_state_dict"]["state"][number][name]),
                                            (number, name))

    def test_ranks_keep_one_copy_where_that_costs_nothing(self):
        one = "by shared memory; one copy of weights and optimizer\n"
        for number, (settings, environment, expected) in enumerate((
                ({}, {}, one), ({"shard_optimizer_state": True}, {}, one),
                ({"shard_optimizer_state": False}, {}, "by shared memory\n"),
                # The check compares the ranks' copies of the weights.
                ({"weight_check_every_steps": 4}, {}, "by shared memory\n"),
                ({"weight_check_every_steps": 4, "shard_optimizer_state": True}, {},
                 one[:-1] + ", so that weight_check_every_steps has nothing to compare\n"),
                ({}, GLOO, "because GENESIS_SHARED_MEMORY is false\n"),
                ({"shard_optimizer_state": True}, GLOO, "is false; optimizer in shards\n"))):
            with self.subTest(**settings, **environment):
                job = self.job(f"copies{number}", distributed=settings, training={"max_steps": 8})
                _, output = self.train(job, environment=environment)
                self.assertIn(expected, output)

    def test_large_gradients_are_the_same_to_the_bit_read_or_copied(self):
        settings = {"model": {"world_model": {"hidden_size": 512, "latent_size": 256}},
                    "training": {"max_steps": 12, "gradient_accumulation_steps": 2, "max_grad_norm": 0.1}}
        one = "; one copy of weights and optimizer\n"
        for mode in "FP32", "BF16":
            with self.subTest(mode):
                losses = []
                for name, distributed, launcher, expected in (
                        ("whole", {"shard_optimizer_state": False}, (), "by shared memory\n"),
                        ("read", {}, (), f"by shared memory{one}"),
                        ("copied", {}, WITHOUT_READING, "by shared memory, copied, because rank 0 cannot read memory of rank 1 "
                         f"(process_vm_readv: Operation not permitted){one}")):
                    job = self.job(mode + name, distributed=distributed, precision={"mode": mode}, **settings)
                    records, output = self.train(job, launcher=launcher)
                    self.assertIn(expected, output)
                    losses.append([record["loss"] for record in records])
                self.assertEqual(losses[0], losses[1])
                self.assertEqual(losses[0], losses[2])

    def test_auto_measures_and_all_take_what_rank_0_found(self):
        records, output = self.train(self.job(precision={"mode": "AUTO"}), environment=compiled_job.ALLOWED)
        if processor.multiplies_bf16():
            self.assertRegex(output, r"precision: (FP32|BF16|MIXED_BF16): measured over 12 steps")
        else:
            self.assertIn("precision: FP32: nothing to choose from: ", output)
        self.assertEqual(len(records), 50)

    def test_their_steps_may_be_compiled(self):
        job = self.job(precision={"mode": "FP32"})
        made = compiled_job.compile_job(job, self.folder / "compiled")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        compiled, output = self.train(job, "--compiled-dir", self.folder / "compiled")
        self.assertRegex(output, r"\nstep: compiled \(package [0-9a-f]{12}\)\n")
        eager = self.job("eager", precision={"mode": "FP32"})
        self.assertLess(compiled_job.worst(compiled, self.train(eager)[0]), 1e-4)

    def test_weights_are_compared(self):
        _, output = self.train(self.job(distributed={"weight_check_every_steps": 7}))
        self.assertIn("training complete", output)

    def test_time_limit_and_held_out_loss_end_all(self):
        _, output = self.train(self.job(training={"max_steps": 10**9, "time_limit_seconds": 1}))
        self.assertIn("; ended early: ", output)
        _, output = self.train(self.job("target", training={"max_steps": 10**6, "target_loss": 1.5},
                                        evaluation={"every_steps": 20}))
        self.assertIn("; ended early: the held-out loss reached", output)

    def test_one_trace_is_written(self):
        job = self.job(trace={"at_step": 5, "steps": 2})
        self.train(job)
        trace, = job.parent.glob("*trace*.json")
        self.assertIn("average", trace.read_text())


if __name__ == "__main__":
    unittest.main()
