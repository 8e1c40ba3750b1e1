"""Tests that an unusable store prevents the start, with exit code 5 and a cure, and that a backup made by a running daemon can replace a
damaged store."""

import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

import harness

FAKE_WORKER = harness.BIN.parent / "tests" / "fake_worker"
STORE_FAILURE = 5


class TestStore(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data_dir = pathlib.Path(self.folder.name)
        self.database = self.data_dir / "jobs.db"

    def start(self):
        daemon = harness.Daemon(self.data_dir, "--workers-program", FAKE_WORKER)
        self.addCleanup(daemon.kill)
        return daemon

    def run_one_job(self):
        daemon = self.start()
        daemon.train("ok-1", harness.spec())
        self.assertEqual(daemon.wait_for_end("ok-1")["state"], "JOB_STATE_SUCCEEDED")
        return daemon

    def refusal(self):
        """Runs a daemon, which must not start. Returns its error."""
        done = subprocess.run(
            [harness.BIN / "genesisd", "--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--workers-program", FAKE_WORKER],
            capture_output=True, text=True, timeout=harness.LONG,
            env=harness.clean_environment())
        self.assertEqual(done.returncode, STORE_FAILURE, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        return errors[0]

    def test_a_damaged_store_is_refused_and_replaced_by_a_backup(self):
        daemon = self.run_one_job()
        backup = daemon.ctl("backup")
        daemon.stop()
        size = self.database.stat().st_size
        with open(self.database, "r+b") as file:
            for page in range(4096, size, 4096):
                file.seek(page)
                file.write(b"\x7f" * 64)
        message = self.refusal()
        self.assertIn("is damaged", message)
        self.assertIn("restore it from the newest file in backups beside it", message)
        shutil.copy(backup["path"], self.database)
        for rest in ("jobs.db-wal", "jobs.db-shm"):
            (self.data_dir / rest).unlink(missing_ok=True)
        daemon = self.start()
        self.assertEqual(daemon.job("ok-1")["state"], "JOB_STATE_SUCCEEDED")

    def test_a_store_that_another_process_holds_is_refused(self):
        self.run_one_job().stop()
        other = sqlite3.connect(self.database, isolation_level=None)
        self.addCleanup(other.close)
        other.execute("BEGIN EXCLUSIVE")
        self.assertIn("another process holds it", self.refusal())

    def test_a_store_of_a_newer_version_is_refused_and_left_alone(self):
        self.run_one_job().stop()
        with sqlite3.connect(self.database) as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
        self.assertIn("the store has schema 99, this genesisd knows up to", self.refusal())
        with sqlite3.connect(self.database) as other:
            self.assertEqual(other.execute("PRAGMA user_version").fetchone(), (99,))
            self.assertEqual(other.execute("SELECT count(*) FROM jobs").fetchone(), (1,))
        other.close()

    def test_events_outlive_a_daemon_that_is_killed(self):
        daemon = self.run_one_job()
        daemon.kill()
        daemon = self.start()
        done = subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, "watch", "ok-1",
                               "--events"], capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("QUEUED: accepted", "QUEUED -> STARTING", "STARTING -> RUNNING",
                     "checkpoint ok-1-step-10", "RUNNING -> SUCCEEDED: training complete"):
            self.assertIn(line, done.stdout)


if __name__ == "__main__":
    unittest.main()
