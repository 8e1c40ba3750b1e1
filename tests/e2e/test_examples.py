"""Tests the examples as their users run them, with fewer steps."""

import pathlib
import shutil
import subprocess
import sys
import unittest

import numpy
import torch

import genesis
import harness

EXAMPLES = harness.SOURCE / "examples"
# The field that shortens each job file.
SHORTER = {"cartpole": "training.epochs=2", "distributed": "training.max_steps=60", "module": "training.epochs=2", "pendulum": "training.max_steps=60",
           "radio_unet": "training.max_steps=4", "transformer": "training.max_steps=60"}


class JobFiles(harness.DaemonTest):
    def test_every_job_file_trains(self):
        self.assertEqual({path.stem for path in EXAMPLES.glob("*.yaml")}, set(SHORTER))
        daemon = self.start("--workers-slots", "2")
        folder = pathlib.Path(self.data_dir) / "jobs"
        folder.mkdir()
        for path in EXAMPLES.glob("*.yaml"):
            shutil.copy(path, folder)
        generator = numpy.random.default_rng(0)
        x = generator.normal(size=(512, 6)).astype("float32")
        numpy.savez(folder / "rows.npz", x=x, target=x[:, :3].argmax(1))
        module = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        genesis.export(module, {"x": torch.randn(8, 6), "target": torch.randint(0, 3, (8,))}, folder / "net.pt2", loss="cross_entropy")
        for name, shorter in SHORTER.items():
            with self.subTest(name):
                job_id = name.replace("_", "-")
                daemon.ctl("train", "-f", folder / f"{name}.yaml", "--job-id", job_id, "--upload", "--set", shorter)
                job = daemon.wait_for_end(job_id)
                self.assertEqual((job["state"], job["progress"]["step"]), ("JOB_STATE_SUCCEEDED", job["progress"]["total_steps"]), job)
                first = daemon.get_json(f"/v1/jobs/{job_id}/curves?points=10000&metrics=loss")["curves"][0]["mean"][0]
                # Four steps at a rate of 1e-5 learn nothing of maps.
                if name != "radio_unet":
                    self.assertLess(job["progress"]["loss"], float(first), "the loss did not fall")


class Agents(harness.DaemonTest):
    def test_agents_act_with_what_the_job_learns_from_them(self):
        daemon = self.start()
        done = subprocess.run([sys.executable, EXAMPLES / "agents.py", "--episodes", "6"], capture_output=True, text=True, timeout=harness.LONG,
                              env=harness.clean_environment({"GENESIS_SERVER": daemon.grpc}), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        returns = [float(line.split()[-1]) for line in done.stdout.splitlines()]
        self.assertEqual(len(returns), 12)
        # Random actions earn -1,200 on average, and hardly ever -400.
        self.assertGreater(sorted(returns)[-2], -400, returns)
        job = daemon.wait_for_end(daemon.get_json("/v1/jobs")["jobs"][0]["id"])
        self.assertEqual(job["state"], "JOB_STATE_CANCELLED")
        self.assertEqual([each["name"] for each in job["reported_metrics"]], ["return"])
        # The job is cancelled before it has to have seen the last episode of each agent.
        self.assertGreaterEqual(int(job["progress"]["next_transition"]), 12 * 200)


class LanguageModel(harness.DaemonTest):
    def test_a_model_of_local_text_learns_its_bytes(self):
        daemon = self.start()
        text = [harness.SOURCE / "docs" / name for name in ("architecture.md", "checkpoints.md", "job_file.md")]
        done = subprocess.run([sys.executable, harness.SOURCE / "examples" / "language_model.py", *text, "--steps", "80"], capture_output=True,
                              text=True, timeout=harness.LONG, env=harness.clean_environment({"GENESIS_SERVER": daemon.grpc}), check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        job, held_out, continued = done.stdout.split("\n", 2)
        self.assertEqual(daemon.job(job.removeprefix("job "))["state"], "JOB_STATE_SUCCEEDED")
        self.assertLess(float(held_out.split()[2].rstrip(";")), 4, "uniform bytes have 5.545")
        self.assertTrue(continued.startswith("The "), continued)


if __name__ == "__main__":
    unittest.main()
