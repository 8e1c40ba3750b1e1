"""Tests workers that the daemon did not start and that attach over the network, as from another host. Here they share the daemon's host
name and disk."""

import os
import pathlib
import signal
import socket
import subprocess
import unittest
import unittest.mock

import harness
import tiers
import secure
from harness import BIN, spec

ALONE = ("--workers-remote", "true", "--workers-devices", "none")
SHORTEST = ("--workers-reattach-timeout-seconds", "21")
# Long enough that the job can be interrupted on a fast machine.
STEPS = 20000


class RemoteWorker:
    """A genesis-worker whose output goes to a file."""

    def __init__(self, daemon, folder, *flags, name="worker"):
        self.path = pathlib.Path(folder) / f"{name}.log"
        with open(self.path, "wb") as log:
            self.process = subprocess.Popen(
                [BIN / "genesis-worker", "--daemon", daemon.grpc, "--device", "cpu",
                 "--checkpoint-dir", daemon.data_dir / "checkpoints", *flags],
                stdout=log, stderr=log, env=harness.clean_environment())

    def log(self):
        return self.path.read_text()

    def wait(self):
        return self.process.wait(harness.LONG)


class RemoteWorkers(harness.DaemonTest):
    def worker(self, daemon, *flags, name="worker"):
        worker = RemoteWorker(daemon, self.data_dir, *flags, name=name)

        def end():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()

        self.addCleanup(end)
        return worker

    def wait_for_warm(self, daemon):
        return harness.wait_for("a warm worker", lambda: next(
            (each for each in daemon.ctl("workers").get("workers", [])
             if each["state"] == "WORKER_STATE_WARM"), None))

    def test_one_trains_a_job_as_a_worker_of_the_daemon_does(self):
        daemon = self.start("--workers-remote", "true")
        daemon.train("near", spec())
        near = daemon.wait_for_end("near")
        daemon.stop()
        daemon = self.start(*ALONE)
        self.assertIn("no worker of another host is attached", daemon.get("/readyz?verbose"))
        worker = self.worker(daemon)
        warm = self.wait_for_warm(daemon)
        self.assertEqual(warm["device"], f"{socket.gethostname()}/cpu")
        self.assertEqual(int(warm["pid"]), worker.process.pid)
        daemon.train("far", spec())
        far = daemon.wait_for_end("far")
        self.assertEqual(far["state"], "JOB_STATE_SUCCEEDED", far)
        self.assertEqual(far["progress"]["loss"], near["progress"]["loss"])
        self.assertEqual(worker.wait(), 0, worker.log())
        self.assertTrue(pathlib.Path(far["latest_checkpoint"]["path"]).exists())
        harness.wait_for("the end of the worker",
                         lambda: not daemon.ctl("workers").get("workers"))

    def test_one_trains_on_while_the_daemon_is_dead(self):
        daemon = self.start(*ALONE)
        worker = self.worker(daemon)
        daemon.train("survivor", spec(max_steps=STEPS))
        daemon.wait_for_step("survivor", 50)
        daemon.kill()
        again = self.start(*ALONE, "--grpc-listen", daemon.grpc)
        harness.wait_for("the worker", lambda: "is back with job survivor" in again.log())
        again.wait_for_step("survivor", 200)
        # The daemon drains: the job is checkpointed, and the worker exits.
        self.assertEqual(again.stop(), 0)
        self.assertEqual(worker.wait(), 0, worker.log())
        last = self.start(*ALONE)
        job = last.job("survivor")
        self.assertEqual(job["state"], "JOB_STATE_QUEUED")
        self.assertEqual(int(job["claim"]), 1)
        self.assertGreaterEqual(int(job["latest_checkpoint"]["step"]), 200)

    def test_one_that_has_lost_its_daemon_stops_before_the_job_is_anothers(self):
        daemon = self.start(*ALONE, *SHORTEST)
        worker = self.worker(daemon)
        job = spec(max_steps=10_000_000)
        job["checkpoint"] = {}
        daemon.train("lost", job)
        daemon.wait_for_step("lost", 50)
        daemon.kill()
        self.assertEqual(worker.wait(), 1, worker.log())
        self.assertEqual(list((pathlib.Path(self.data_dir) / "checkpoints").rglob("*.pt")), [])

    @tiers.nightly
    def test_one_that_comes_back_too_late_is_refused(self):
        daemon = self.start(*ALONE, *SHORTEST)
        first = self.worker(daemon, name="first")
        job = spec(max_steps=1000)
        job["checkpoint"] = {"every_steps": 20}
        daemon.train("taken", job)
        harness.wait_for("a checkpoint", lambda: "latest_checkpoint" in daemon.job("taken"))
        first.process.send_signal(signal.SIGSTOP)
        daemon.kill()
        again = self.start(*ALONE, *SHORTEST, "--grpc-listen", daemon.grpc)
        second = self.worker(again, name="second")
        ended = again.wait_for_end("taken")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(int(ended["claim"]), 2)
        self.assertEqual(second.wait(), 0, second.log())
        first.process.send_signal(signal.SIGCONT)
        self.assertEqual(first.wait(), 1, first.log())

    def test_one_that_does_not_fit_is_told_why(self):
        daemon = self.start(*ALONE)

        def refusal(*flags, code=1):
            worker = self.worker(daemon, *flags)
            self.assertEqual(worker.wait(), code)
            return worker.log()

        other = pathlib.Path(self.data_dir) / "other"
        other.mkdir()
        self.assertIn("sees the checkpoint folder", refusal("--checkpoint-dir", other))
        self.assertIn("an absolute path", refusal("--checkpoint-dir", "checkpoints", code=2))
        self.assertIn("--tls-ca: /nowhere", refusal("--tls-ca", "/nowhere", code=2))
        daemon.stop()
        self.assertIn("cannot be reached", refusal())
        daemon = self.start()
        told = refusal()
        self.assertIn("refused this worker", told)
        self.assertIn("set workers.remote: true", told)

    def test_one_is_let_in_by_its_role(self):
        authority = secure.Authority(pathlib.Path(self.data_dir) / "authority")
        certificate, key = authority.issue("localhost")
        tokens = {role: secure.new_token(role, role) for role in ("worker", "viewer", "admin")}
        folder = pathlib.Path(self.data_dir)
        secure.write_secret(folder / "tokens", "\n".join(line for _, line in tokens.values()) + "\n")
        for role, (token, _) in tokens.items():
            secure.write_secret(folder / f"{role}.token", token + "\n")
        daemon = self.start(*ALONE, "--tls-certificate-file", str(certificate), "--tls-key-file",
                            str(key), "--auth-tokens-file", str(folder / "tokens"))
        with unittest.mock.patch.dict(os.environ, GENESIS_TLS_CA=str(authority.certificate)):
            def flags(role):
                return "--tls-ca", authority.certificate, "--token-file", folder / f"{role}.token"

            viewer = self.worker(daemon, *flags("viewer"), name="viewer")
            self.assertEqual(viewer.wait(), 1)
            self.assertIn("Attach needs the role worker", viewer.log())
            stranger = self.worker(daemon, "--tls-ca", authority.certificate, name="stranger")
            self.assertEqual(stranger.wait(), 1)
            self.assertIn("no token", stranger.log())
            worker = self.worker(daemon, *flags("worker"))
            with unittest.mock.patch.dict(os.environ, GENESIS_TOKEN=tokens["admin"][0]):
                daemon.train("guarded", spec())
                self.assertEqual(daemon.wait_for_end("guarded")["state"], "JOB_STATE_SUCCEEDED")
            self.assertEqual(worker.wait(), 0, worker.log())
            with unittest.mock.patch.dict(os.environ, GENESIS_TOKEN=tokens["worker"][0]):
                refused = daemon.ctl("jobs", check=False)
                self.assertIn("ListJobs needs the role viewer", refused.stderr)
        audit = (folder / "log" / "audit.log").read_text()
        self.assertIn('"method":"Attach"', audit.replace(": ", ":"))


if __name__ == "__main__":
    unittest.main()
