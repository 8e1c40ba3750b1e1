"""Kills daemon and workers at random moments while an orchestrator keeps working. No acknowledged job may be lost or duplicated, no
checkpoint damaged, and each restart must be ready in time.

GENESIS_KILLS sets the number of kills of each (default: 5 in the gate, 20 more at night; 1000 for the long run), GENESIS_SEED their
order."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
import tiers  # noqa: E402
from harness import BIN, spec  # noqa: E402

KILLS = int(os.environ.get("GENESIS_KILLS", "5"))
NIGHTLY_KILLS = 20
SEED = int(os.environ.get("GENESIS_SEED", "1"))
FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class Kills(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.acknowledged = []
        self.ready_seconds = []
        self.daemon = self.start_timed()

    def start_timed(self):
        begin = time.monotonic()
        daemon = self.start("--workers-slots", "2")
        self.ready_seconds.append(time.monotonic() - begin)
        return daemon

    def submit(self):
        job_id = f"job-{len(self.acknowledged)}"
        job = spec(max_steps=self.random.randint(50, 400))
        job["checkpoint"] = {"every_steps": 25}
        job["max_restarts"] = 1000
        self.daemon.train(job_id, job)
        self.acknowledged.append(job_id)

    def submit_when_few_are_left(self):
        jobs = self.daemon.ctl("jobs")["jobs"]
        if sum(job["state"] not in FINAL for job in jobs) < 3:
            self.submit()

    def kill_a_worker(self):
        busy = [int(job["worker"]["pid"]) for job in self.daemon.ctl("jobs")["jobs"]
                if "worker" in job]
        if not busy:
            return False
        try:
            os.kill(self.random.choice(busy), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_the_daemon(self):
        self.daemon.kill()
        self.daemon = self.start_timed()

    def run_kills(self, kill, kills=KILLS):
        done = 0
        while done < kills:
            self.submit_when_few_are_left()
            # Sleeps instead of waiting for an event, so that the kill comes at a random moment.
            time.sleep(self.random.uniform(0, 0.3))
            if kill():
                done += 1

    def verify(self):
        for job_id in self.acknowledged:
            job = self.daemon.wait_for_end(job_id)
            self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
            self.assertEqual(int(job["progress"]["step"]),
                             int(job["spec"]["training"]["max_steps"]))
        listed = [job["id"] for job in self.daemon.ctl("jobs")["jobs"]]
        self.assertEqual(sorted(listed), sorted(self.acknowledged), "none lost, none doubled")
        self.verify_checkpoints()
        print(f"{len(self.acknowledged)} jobs, ready after "
              f"{max(self.ready_seconds):.2f} s at most", file=sys.stderr)

    def verify_checkpoints(self):
        """Verifies each checkpoint file completely, and checks that the daemon has a record of each and that no partial file is left."""
        folder = pathlib.Path(self.data_dir) / "checkpoints"
        found = sorted(path.name for path in folder.iterdir())
        known = {pathlib.Path(each["path"]).name: each for each in self.daemon.ctl("checkpoints")["checkpoints"]}
        self.assertEqual([name for name in found if name.endswith(".pt")], sorted(known))
        for name, told in known.items():
            done = subprocess.run([BIN / "genesis-worker", "--verify", folder / name], capture_output=True,
                                  text=True, timeout=harness.LONG)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertEqual((folder / name).stat().st_size, int(told["size_bytes"]), name)
        for job_id in self.acknowledged:
            steps = {int(each["step"]) for each in known.values() if each["job_id"] == job_id}
            self.assertIn(int(self.daemon.job(job_id)["progress"]["step"]), steps, job_id)

    def kill_daemons(self, kills):
        def kill():
            self.kill_the_daemon()
            return True

        self.run_kills(kill, kills)
        self.verify()

    def test_workers_killed_at_random_moments(self):
        self.run_kills(self.kill_a_worker)
        self.verify()

    def test_daemons_killed_at_random_moments(self):
        self.kill_daemons(KILLS)

    @tiers.nightly
    def test_many_workers_killed_at_random_moments(self):
        self.run_kills(self.kill_a_worker, NIGHTLY_KILLS)
        self.verify()

    @tiers.nightly
    def test_many_daemons_killed_at_random_moments(self):
        self.kill_daemons(NIGHTLY_KILLS)


if __name__ == "__main__":
    unittest.main()
