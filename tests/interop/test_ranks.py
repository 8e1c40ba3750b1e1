"""Tests that ranks train like one process with their batches combined and like DistributedDataParallel, and that they end, stop and resume
together, by real torchrun where it has a part in it."""

import os
import re
import shutil
import signal
import subprocess
import unittest

import torch

import compiled_job
import tiers
import twin
from rank_jobs import CANNOT, GLOO, LONG, TOLERANCE, RankJobs, ranks_of, weights


class RanksTest(RankJobs):
    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        together, records = self.compare(training={"max_grad_norm": 0.1})
        for ours, alone in zip(together, records):
            self.assertAlmostEqual(ours["grad_norm"], alone["grad_norm"], delta=1e-4 * alone["grad_norm"])
            self.assertEqual(ours["samples"], alone["samples"])

    def test_so_do_ranks_that_share_no_memory(self):
        self.compare(training={"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}, environment=GLOO)

    def test_they_are_as_pytorchs_own(self):
        output = self.check_beside_pytorch(TOLERANCE)
        self.assertRegex(output, r"\ngradients: 1 bucket, \S+ MiB, by shared memory; one copy of weights and optimizer\n")
        output = self.check_beside_pytorch(TOLERANCE, environment=GLOO)
        self.assertRegex(output, r"\ngradients: 1 bucket, \S+ MiB, by Gloo, because GENESIS_SHARED_MEMORY is false\n")

    def test_one_writes_and_tells(self):
        job = self.job()
        _, output = self.train(job, by_torchrun=True)
        self.assertEqual(output.count("training complete"), 1)
        self.assertEqual(output.count("\nranks: 2, each with batches of 32\n"), 1)
        self.assertEqual(len(list(job.parent.glob("*.pt"))), 1)

    @tiers.nightly
    def test_such_a_job_resumes_with_any_number_of_ranks(self):
        settings = {"training": {"max_steps": 40}, "distributed": {"shard_optimizer_state": True}}
        wanted = self.undisturbed(**settings)
        self.train(self.job("begun", **{**settings, "training": {"max_steps": 20}}))
        # Each combination has the same examples per step, so the jobs differ only in the order of sums.
        for count, batch in (1, 64), (2, 32), (4, 16):
            with self.subTest(count):
                shutil.copytree(self.folder / "begun", self.folder / f"ranks{count}")
                job = self.job(f"ranks{count}", **{**settings, "training": {"max_steps": 40, "batch_size": batch}})
                if count == 1:
                    twin.run_worker(job, job.parent, "--resume", "latest")
                else:
                    _, output = self.train(job, "--resume", "latest", count=count)
                    self.assertIn("at step 20\n", output)
                for name, tensor in weights(job.parent).items():
                    self.assertTrue(torch.allclose(tensor, wanted[name], rtol=1e-3, atol=1e-5), name)

    def test_a_killed_rank_is_started_again_and_no_step_is_lost(self):
        settings = {"training": {"max_steps": 2000}, "checkpoint": {"every_steps": 100}}
        wanted = self.undisturbed(**settings)
        process, log = self.start(self.job(**settings), "--resume", "latest", restarts=1)
        self.wait_for(log, "step-000000000200.pt")
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        self.assertEqual(process.wait(LONG), 0, log.read_text())
        self.assertRegex(log.read_text(), r"resumed from \S+ at step \d+00\n")
        self.assertRegex(log.read_text(), f"rank 0 of 2 {CANNOT}: rank 1 (has ended|does not answer)")
        self.check_same(log.parent, wanted)

    @tiers.nightly
    def test_all_stop_after_the_same_step_and_resume(self):
        # The model draws random numbers in each step.
        settings = {"training": {"max_steps": 60, "batch_size": 4},
                    "model": {"world_model": None, "radio_unet": {
                        "part": "DIFFUSION", "base_channels": 8, "channel_multipliers": [1, 2]}},
                    "dataset": {"trajectories": None, "synthetic": {"maps": {"maps": 64, "size": 16}}}}
        wanted = self.undisturbed(**settings)
        job = self.job(**settings)
        process, log = self.start(job)
        self.wait_for(log, "\nstep 1")
        process.send_signal(signal.SIGTERM)
        process.wait(LONG)
        stopped = re.search(r"\nstopped at step (\d+) of 60\n", log.read_text())
        self.assertTrue(stopped, log.read_text())
        self.assertLess(int(stopped[1]), 60)
        _, output = self.train(job, "--resume", "latest")
        self.assertIn(f"at step {stopped[1]}\n", output)
        self.check_same(job.parent, wanted)

    def test_they_fall_back_together(self):
        fp32 = self.job("fp32", training={"max_steps": 120})
        wanted, _ = self.train(fp32)
        job = self.job(training={"max_steps": 120}, checkpoint={"every_steps": 50},
                       precision={"mode": "MIXED_BF16", "fallbacks": ["FP32"],
                                  "baseline_file": str(fp32.parent / "telemetry.jsonl")},
                       rehearsals=[{"kind": "SPIKE", "at_step": 60, "steps": 60}])
        records, output = self.train(job, environment=compiled_job.ALLOWED)
        self.assertRegex(output, r"precision changes from MIXED_BF16 to FP32 .*; continues from step 50\n")
        self.assertEqual((records[-1]["step"], records[-1]["mode"]), (120, "FP32"))
        self.assertAlmostEqual(records[-1]["loss"], wanted[-1]["loss"], delta=0.1 * wanted[-1]["loss"])

    def test_a_no_of_one_host_is_a_no_for_all(self):
        job = self.job(precision={"mode": "MIXED_BF16"})
        # Only rank 0 may use reduced precision, as if the other rank's host had been rolled back.
        done = self.train_by('test "$RANK" = 0 && export ENABLE_FP16_TRAINING=true; exec "$@"', job)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"precision: FP32: .*ENABLE_FP16_TRAINING.* \(rank 1\)\n")
        self.assertEqual(done.stdout.count("precision: "), 1, done.stdout)
        self.assertEqual({record["mode"] for record in self.records(job)}, {"FP32"})

    def test_another_job_is_refused_with_what_differs(self):
        job, other = self.job(), self.job("other", training={"batch_size": 16})
        done = self.train_by(f'test "$RANK" = 1 && set -- "$1" --spec {other} --checkpoint-dir {other.parent}; exec "$@"', job)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 was given another job than rank 0 (modified: training.batch_size: 32 -> 16); give all "
                      "ranks the same job file", done.stderr)

    def test_what_cannot_be_is_said(self):
        rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}

        def refused(job, variables, code=2):
            done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent],
                                  capture_output=True, text=True, env={**os.environ, **variables}, timeout=LONG)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stderr

        self.assertIn("WORLD_SIZE is 2 and training.use_ddp is false: each rank would train the whole job",
                      refused(self.job(training={"use_ddp": False}), rank))
        self.assertIn("MASTER_PORT is \"x\"; accepted: 1 to 65535",
                      refused(self.job(), {**rank, "MASTER_PORT": "x"}))
        for switch in ("GENESIS_SHARED_MEMORY", "GENESIS_NCCL"):
            # The job ends long before the half hour for which a rank may be silent.
            done = self.train_by(f"""test "$RANK" = 1 && export {switch}=$'off\\n'; exec "$@" """, self.job())
            self.assertNotEqual(done.returncode, 0)
            fault = f'{switch} is "off\\n"; accepted: exactly true or false'
            self.assertIn(f"FAILURE_CAUSE_CONFIG: {fault}\n", done.stderr)
            self.assertIn(f": rank 1 failed: {fault} (", done.stderr)
        job = self.job(training={"batch_size": 10000})
        done = subprocess.run(self.command(job), capture_output=True, text=True, timeout=LONG)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("training.batch_size is 10000; accepted for this dataset: 1 to 9000, the examples that it "
                      "trains on, shared by 2 ranks", done.stderr)

    def test_one_process_may_train_such_a_job(self):
        job = self.job()
        records, _ = twin.run_worker(job, job.parent)
        self.assertEqual(len(records), 50)


if __name__ == "__main__":
    unittest.main()
