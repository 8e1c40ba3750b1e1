"""Tests that each mode, optimizer and schedule, clipping and accumulation agree with Python step by step."""

import subprocess
import tempfile
import unittest

import safetensors.torch
import torch

import reference_loop
import twin

# Maximum relative difference of a loss over 50 steps. The operators are the same kernels. Only clipping, unscaling and the update round in
# another order.
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 5e-3, "MIXED_FP16": 2e-3, "BF16": 2e-2, "FP16": 5e-3}


class NumericsTest(twin.PendulumTest):
    def compare(self, mode="FP32", accumulation=1, max_norm=1.0, optimizer=None, precision=None,
                steps=50, ema_decay=None, environment=None):
        training = {"max_steps": steps, "gradient_accumulation_steps": accumulation,
                    "max_grad_norm": max_norm or -1}
        if ema_decay:
            training["ema_decay"] = ema_decay
        with tempfile.TemporaryDirectory() as folder:
            job = twin.job_file(folder, training=training, optimizer=optimizer or {},
                                precision={"mode": mode, "watchdog": {"overflow": {"action": "OFF"}},
                                           **(precision or {})})
            ours, output = twin.run_worker(job, folder, "--emulate-fp16",
                                           environment={"ENABLE_FP16_TRAINING": "true",
                                                        **(environment or {})})
            self.assertIn(f"precision: {mode}", output)
            checkpoint = torch.load(twin.newest_checkpoint(folder))
        theirs, masters, average = reference_loop.train(
            self.dataset, mode, steps, accumulation=accumulation, max_norm=max_norm,
            optimizer=optimizer, precision=precision, ema_decay=ema_decay)
        self.assertEqual(len(ours), len(theirs))
        for step, (a, b) in enumerate(zip(ours, theirs), 1):
            where = f"{mode} step {step}: {a} {b}"
            self.assertEqual(a["skipped"], b["skipped"], where)
            self.assertEqual(a["loss_scale"], b["loss_scale"], where)
            self.assertAlmostEqual(a["learning_rate"], b["learning_rate"], delta=1e-9, msg=where)
            self.assertLess(abs(a["loss"] - b["loss"]) / b["loss"], TOLERANCE[mode], where)
        if average:
            for ours_now, kept in zip(checkpoint["ema_state_dict"].values(), average):
                torch.testing.assert_close(ours_now, kept.detach(), rtol=1e-4, atol=1e-6)
        return ours

    def test_every_mode(self):
        for mode in TOLERANCE:
            with self.subTest(mode):
                self.compare(mode)

    def test_parameter_groups_and_a_table_of_rates(self):
        table = {"kind": "TABLE", "points": [{"step": 0, "factor": 0.125}, {"step": 9, "factor": 1.5},
                                             {"step": 31, "factor": 0.3}]}
        groups = [{"parameters": ["encoder.0.*", "reward*"], "learning_rate": 4e-3, "max_grad_norm": 0.05},
                  {"parameters": ["*.bias"], "weight_decay": -1, "max_grad_norm": -1},
                  {"parameters": ["*dynamics*"], "learning_rate": 2e-4, "weight_decay": 0.3}]
        for mode, kind in (("FP32", "ADAMW"), ("FP32", "SGD"), ("MIXED_FP16", "ADAM"), ("BF16", "ADAMW")):
            with self.subTest(mode=mode, kind=kind):
                momentum = {"momentum": 0.9} if kind == "SGD" else {}
                self.compare(mode, max_norm=0.2, accumulation=2, optimizer={
                    "kind": kind, "weight_decay": 0.1, "schedule": table, "parameter_groups": groups, **momentum})

    def test_with_every_trick_off(self):
        """Nothing depends on the optimizations in trainer/kernels/README.md."""
        plain = {"GENESIS_OWN_KERNELS": "false", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0",
                 "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
        for mode in ("FP32", "MIXED_BF16"):
            with self.subTest(mode):
                self.compare(mode, environment=plain)

    def test_every_mode_with_clipping_that_bites_and_two_micro_batches(self):
        for mode in TOLERANCE:
            with self.subTest(mode):
                self.compare(mode, accumulation=2, max_norm=0.1)

    def test_skipped_steps_while_the_scale_finds_its_place_and_after(self):
        for mode in ("MIXED_FP16", "FP16"):
            with self.subTest(mode):
                records = self.compare(mode, precision={"loss_scale": 2.0**28, "growth_interval": 5})
                skipped = [r["step"] for r in records if r["skipped"]]
                self.assertGreater(len(skipped), 5)
                self.assertGreater(skipped[-1], skipped[0] + len(skipped))

    def test_every_optimizer(self):
        for optimizer in (
                {"kind": "ADAM"}, {"kind": "ADAM", "weight_decay": 0.1},
                {"kind": "ADAMW", "weight_decay": 0.3, "no_decay_on_norms_and_biases": True},
                {"kind": "SGD", "learning_rate": 0.05},
                {"kind": "SGD", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01},
                {"kind": "SGD", "learning_rate": 0.05, "momentum": 0.9, "nesterov": True}):
            with self.subTest(str(optimizer)):
                self.compare(optimizer=optimizer)

    def test_every_schedule_with_warm_up(self):
        for kind in ("CONSTANT", "LINEAR", "COSINE"):
            with self.subTest(kind):
                schedule = {"kind": kind, "warmup_steps": 10, "final_fraction": 0.1}
                self.compare(optimizer={"schedule": schedule})

    def test_a_schedule_waits_for_skipped_steps(self):
        self.compare("MIXED_FP16", precision={"loss_scale": 2.0**28},
                     optimizer={"schedule": {"kind": "COSINE", "warmup_steps": 10}})

    def test_the_worker_verifies_and_exports_what_it_wrote(self):
        with tempfile.TemporaryDirectory() as folder:
            twin.run_worker(twin.job_file(folder, training={"ema_decay": 0.9}), folder)
            checkpoint = twin.newest_checkpoint(folder)
            for flags in (["--verify", checkpoint],
                          ["--export", checkpoint, "--to", folder + "/m.safetensors"],
                          ["--export", checkpoint, "--to", folder + "/a.safetensors", "--average"]):
                subprocess.run([twin.WORKER, *flags], check=True, capture_output=True)
            saved = torch.load(checkpoint)
            for name, key in (("m", "model_state_dict"), ("a", "ema_state_dict")):
                weights = safetensors.torch.load_file(f"{folder}/{name}.safetensors")
                self.assertEqual(weights.keys(), saved[key].keys())
                for entry, value in saved[key].items():
                    self.assertTrue(torch.equal(weights[entry], value), entry)
            damaged = bytearray(checkpoint.read_bytes())
            damaged[len(damaged) // 2] ^= 1
            checkpoint.write_bytes(damaged)
            refused = subprocess.run([twin.WORKER, "--verify", checkpoint], capture_output=True)
            self.assertEqual(refused.returncode, 1)

    def test_the_average_of_the_weights(self):
        self.compare(ema_decay=0.9)
        self.compare("MIXED_FP16", ema_decay=0.9, precision={"loss_scale": 2.0**28})


if __name__ == "__main__":
    unittest.main()
