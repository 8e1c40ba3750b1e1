"""Tests ranks that are started by real srun and mpirun and configured only by environment variables."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import slurm_cluster
import tiers
import twin

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
TOLERANCE = 1e-5
LONG = 300
# The node names of the private cluster cannot be resolved.
HERE = {"MASTER_ADDR": "127.0.0.1"}


class Launchers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, **training):
        return twin.job_file(self.folder, training={"use_ddp": True, "batch_size": 32, **training})

    def worker(self, job, *flags):
        return [twin.WORKER, "--spec", job, "--checkpoint-dir", self.folder, "--telemetry",
                self.folder / "telemetry.jsonl", "--threads", "1", *flags]

    def check_losses(self):
        """Checks that the losses equal those of a single process that trains with the batches of both ranks."""
        lines = (self.folder / "telemetry.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        with tempfile.TemporaryDirectory() as folder:
            alone, _ = twin.run_worker(twin.job_file(folder), folder)
        self.assertEqual(len(losses), len(alone))
        for ours, one in zip(losses, alone):
            self.assertAlmostEqual(ours, one["loss"], delta=TOLERANCE * one["loss"])


class Slurm(Launchers):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = slurm_cluster.Cluster(folder.name)
        cls.addClassCleanup(cls.cluster.stop)

    def test_srun_starts_a_rank_on_each_node(self):
        done = self.cluster.run("srun", "-N2", "-n2", *self.worker(self.job()), **HERE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("ranks: 2, each with batches of 32"), 1, done.stdout)
        self.check_losses()

    def test_two_steps_of_one_job_do_not_meet(self):
        with tempfile.TemporaryDirectory() as other:
            twin.job_file(other, training={"use_ddp": True, "batch_size": 32, "max_steps": 5})
            script = self.folder / "both.sh"
            words = " ".join(map(str, self.worker(self.job(max_steps=5))))
            second = words.replace(str(self.folder), other)
            script.write_text(f"#!/bin/sh\nsrun --overlap -n2 {words} &\n"
                              f"MASTER_PORT={slurm_cluster.free_ports(1)[0]} srun --overlap -n2 {second}\nwait\n")
            script.chmod(0o755)
            done = self.cluster.run("salloc", "-N2", "-n2", script, **HERE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("training complete"), 2, done.stdout + done.stderr)

    def test_a_job_without_use_ddp_is_refused(self):
        job = twin.job_file(self.folder)
        done = self.cluster.run("srun", "-n2", *self.worker(job), **HERE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SLURM_STEP_NUM_TASKS is 2 and training.use_ddp is false", done.stderr)

    @tiers.nightly
    def test_a_warning_signal_checkpoints_and_the_requeued_job_resumes(self):
        """The signal is sent through examples/slurm.sh, like Slurm's own warning before the time limit or a preemption."""
        job = self.job(max_steps=10**7)
        log = self.folder / "log"
        done = self.cluster.run(
            "sbatch", "--parsable", "-o", log, SOURCE / "examples" / "slurm.sh", job, CHECKPOINT_DIR=str(self.folder),
            PATH=f"{pathlib.Path(twin.WORKER).parent}:{os.environ['PATH']}", **HERE)
        self.assertEqual(done.returncode, 0, done.stderr)
        number = done.stdout.strip()
        self.wait(lambda: log.exists() and "started: " in log.read_text(), log)
        self.assertEqual(self.cluster.run("scancel", "--signal=TERM", number).returncode, 0)
        self.wait(lambda: list(self.folder.glob("*.pt")), log)
        made = int(next(self.folder.glob("*.pt")).stem.rsplit("-", 1)[1])
        # Leaves 50 more steps, so that the second attempt ends soon.
        settings = json.loads(job.read_text())
        settings["training"]["max_steps"] = made + 50
        job.write_text(json.dumps(settings))
        self.assertEqual(self.cluster.wait_for_job(number), "COMPLETED", log.read_text())
        text = log.read_text()
        self.assertEqual(text.count(f"stopped at step {made} of 10000000"), 1, text)
        self.assertEqual(text.count("training complete: job"), 1, text)
        self.assertTrue(list(self.folder.glob(f"*-step-{made + 50:012}.pt")), text)

    def test_a_cancelled_job_is_not_requeued(self):
        job = self.job(max_steps=10**7)
        log = self.folder / "log"
        done = self.cluster.run(
            "sbatch", "--parsable", "-o", log, SOURCE / "examples" / "slurm.sh", job, CHECKPOINT_DIR=str(self.folder),
            PATH=f"{pathlib.Path(twin.WORKER).parent}:{os.environ['PATH']}", **HERE)
        self.wait(lambda: log.exists() and "ranks: 2, each" in log.read_text(), log)
        self.cluster.run("scancel", done.stdout.strip())
        self.assertEqual(self.cluster.wait_for_job(done.stdout.strip()), "CANCELLED", log.read_text())

    def wait(self, reached, log):
        deadline = time.monotonic() + LONG
        while not reached():
            self.assertLess(time.monotonic(), deadline, log.read_text() if log.exists() else "no log")
            time.sleep(0.1)


class OpenMpi(Launchers):
    def mpirun(self, job, *words):
        return subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", *words, *map(str, self.worker(job))],
            capture_output=True, text=True, timeout=LONG)

    def test_mpirun_starts_ranks(self):
        port = slurm_cluster.free_ports(1)[0]
        done = self.mpirun(self.job(), "-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check_losses()

    def test_what_is_missing_is_named(self):
        done = self.mpirun(self.job(), "-x", "MASTER_ADDR=127.0.0.1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("MASTER_PORT is not set; accepted: 1 to 65535. mpirun hands on what", done.stderr)


if __name__ == "__main__":
    unittest.main()
