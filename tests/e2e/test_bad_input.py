"""Tests the exact message and exit code for each kind of bad input, and that nothing is lost."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

import numpy

import harness
from harness import BIN, LONG, clean_environment, spec


def run_genesisd(*flags, environment=None, prefix=()):
    return subprocess.run([*prefix, BIN / "genesisd", *flags], capture_output=True, text=True,
                          timeout=LONG, env=clean_environment(environment))


class StartUp(unittest.TestCase):
    """genesisd does not start, and prints one line per error."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="genesis-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def assert_refused(self, done, code, *messages):
        self.assertEqual(done.stderr.splitlines()[-len(messages):],
                         [f"error: {message}" for message in messages])
        self.assertEqual(done.returncode, code)

    def write(self, name, text):
        path = pathlib.Path(self.dir) / name
        path.write_text(text)
        return str(path)

    def test_unknown_yaml_key(self):
        config = self.write("genesis.yaml", "workers:\n  slot: 2\n")
        done = run_genesisd("--config", config, "--check-config")
        self.assert_refused(done, 2, f'{config}:2:3: workers.slot: unknown key; '
                                     'did you mean workers.slots?')

    def test_every_fault_is_listed_at_once(self):
        config = self.write("genesis.yaml", "workers:\n  slots: 0\ngrcp:\n  listen: x\n")
        done = run_genesisd("--config", config, "--check-config")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.splitlines()), 2, done.stderr)

    def test_missing_config_file(self):
        done = run_genesisd("--config", "/nonexistent/genesis.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nonexistent/genesis.yaml", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_unreadable_scale_with_the_gate_open(self):
        done = run_genesisd("--data-dir", self.dir, environment={
            "ENABLE_FP16_TRAINING": "true", "FP16_BACKOFF_FACTOR": "1.5"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("FP16_BACKOFF_FACTOR", done.stderr)
        self.assertIn("1.5", done.stderr)

    def test_no_disk_space(self):
        harness.mount_disk(self.dir, "256k", self.addCleanup)
        done = run_genesisd("--data-dir", f"{self.dir}/data", "--grpc-listen", "127.0.0.1:0",
                            "--http-listen", "127.0.0.1:0")
        self.assert_refused(
            done, 5, f"data folder {self.dir}/data: cannot write: No space left on device; genesisd "
                     "needs at least 1 MiB to start: free some space, or choose another folder with "
                     "--data-dir")


class Running(harness.DaemonTest):
    """A running daemon rejects the input, and continues."""

    def setUp(self):
        super().setUp()
        self.daemon = self.start()

    def test_second_daemon_on_the_same_data_folder(self):
        done = run_genesisd("--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
                            "--http-listen", "127.0.0.1:0")
        self.assertEqual(done.stderr.splitlines()[-1],
                         f"error: data folder {self.data_dir} is in use by another genesisd "
                         f"(process {self.daemon.process.pid}); stop it, or choose another folder "
                         "with --data-dir")
        self.assertEqual(done.returncode, 3)

    def test_ports_in_use(self):
        with tempfile.TemporaryDirectory(prefix="genesis-") as other:
            done = run_genesisd("--data-dir", other, "--grpc-listen", self.daemon.grpc,
                                "--http-listen", "127.0.0.1:0")
            self.assertEqual(done.stderr.splitlines()[-1],
                             f"error: cannot listen on {self.daemon.grpc}: Address already in "
                             "use; stop what uses it, or choose another with --grpc-listen")
            self.assertEqual(done.returncode, 4)
            done = run_genesisd("--data-dir", other, "--grpc-listen", "127.0.0.1:0",
                                "--http-listen", self.daemon.http)
            self.assertIn(f"cannot listen on {self.daemon.http}: Address already in use",
                          done.stderr.splitlines()[-1])
            self.assertEqual(done.returncode, 4)

    def assert_train_refused(self, job_spec, code, *messages):
        done = self.daemon.train("refused", job_spec, check=False)
        for message in messages:
            self.assertIn(message, done.stderr)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(self.daemon.ctl("jobs").get("jobs", []), [])

    def test_negative_batch_size(self):
        self.assert_train_refused(
            spec(batch_size=-4), 2, "training.batch_size is -4; accepted: 1 to 1048576")

    def test_missing_dataset(self):
        job_spec = spec()
        job_spec["dataset"]["trajectories"]["path"] = "absent.npz"
        self.assert_train_refused(
            job_spec, 1, "INVALID_ARGUMENT",
            f"dataset.trajectories.path is \"absent.npz\"; accepted: a file beneath the dataset root "
            f"{self.data_dir}/datasets; there is no such file: copy it there, or set datasets.root")

    def test_unknown_key_in_a_job_file(self):
        job_spec = spec()
        job_spec["training"]["batchsize"] = 4
        self.assert_train_refused(job_spec, 2, "batchsize", "training.batch_size")

    def test_missing_job_file(self):
        done = self.daemon.ctl("train", "-f", "/nonexistent/job.yaml", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nonexistent/job.yaml", done.stderr)

    def test_nan_in_a_trajectory(self):
        datasets = pathlib.Path(self.data_dir) / "datasets"
        arrays = dict(numpy.load(datasets / "pendulum.npz"))
        arrays["observations"] = arrays["observations"].copy()
        arrays["observations"][123, 1] = numpy.nan
        numpy.savez(datasets / "broken.npz", **arrays)
        job_spec = spec()
        job_spec["dataset"]["trajectories"]["path"] = "broken.npz"
        self.daemon.train("broken", job_spec)
        job = self.daemon.wait_for_end("broken")
        self.assertEqual(job["state"], "JOB_STATE_FAILED")
        self.assertEqual(job["failure"]["cause"], "FAILURE_CAUSE_DATA")
        self.assertIn("observations[123, 1] is nan", job["failure"]["message"])
        self.assertEqual(int(job.get("restarts", 0)), 0)
        self.assertIn("training failed", job["failure"]["log_tail"][-1])
        # The daemon and its next job are not affected.
        self.daemon.train("after", spec(max_steps=5))
        self.assertEqual(self.daemon.wait_for_end("after")["state"], "JOB_STATE_SUCCEEDED")

    def test_a_dataset_that_became_a_link_out_of_the_root(self):
        datasets = pathlib.Path(self.data_dir) / "datasets"
        secret = pathlib.Path(self.data_dir) / "secret.npz"
        shutil.copy(datasets / "pendulum.npz", secret)
        shutil.copy(datasets / "pendulum.npz", datasets / "swapped.npz")
        swapped = spec(max_steps=5)
        swapped["dataset"]["trajectories"]["path"] = "swapped.npz"
        self.daemon.train("before", spec(max_steps=100000))
        self.daemon.wait_for_step("before", 1)
        self.daemon.train("swapped", swapped)
        (datasets / "swapped.npz").unlink()
        (datasets / "swapped.npz").symlink_to(secret)
        self.daemon.ctl("cancel", "before")
        job = self.daemon.wait_for_end("swapped")
        self.assertEqual(job["failure"]["cause"], "FAILURE_CAUSE_DATA", job)
        self.assertIn(f'dataset.trajectories.path is "{datasets}/swapped.npz", which leads to "{secret}"; '
                      f"accepted: what lies beneath the dataset root {datasets}", job["failure"]["message"])
        # A link to another place under the root is followed.
        (datasets / "swapped.npz").unlink()
        (datasets / "swapped.npz").symlink_to("pendulum.npz")
        self.daemon.train("within", swapped)
        self.assertEqual(self.daemon.wait_for_end("within")["state"], "JOB_STATE_SUCCEEDED")

    def test_no_daemon(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            done = subprocess.run([BIN / "genesisctl", "--server", address, "jobs"],
                                  capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.returncode, 7)
        self.assertIn(f"no daemon answers at {address}", done.stderr)


if __name__ == "__main__":
    unittest.main()
