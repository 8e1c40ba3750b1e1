"""Tests the whole life of a job in folders whose names have characters that are special in a URI, a pattern or a shell."""

import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.parse

import harness
import secure


class OddPaths(harness.DaemonTest):
    def folder(self, name):
        top = tempfile.mkdtemp(prefix="g-", dir="/tmp")  # The path of a Unix socket must be short.
        self.addCleanup(shutil.rmtree, top, ignore_errors=True)
        self.data_dir = os.path.join(top, name)
        os.mkdir(self.data_dir)

    def life_of_a_job(self, name):
        self.folder(name)
        local = os.path.join(self.data_dir, "local.sock")
        daemon = self.start("--grpc-unix-socket", local)
        self.assertEqual(daemon.train("one", harness.spec(max_steps=60))["state"], "JOB_STATE_QUEUED")
        job = daemon.wait_for_end("one")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertTrue(pathlib.Path(job["latest_checkpoint"]["path"]).is_file())
        # Over the Unix socket, with its unescaped path.
        self.assertEqual(daemon.ctl("--server", f"unix:{local}", "job", "one")["state"], "JOB_STATE_SUCCEEDED")
        channel = secure.plain_channel("unix:" + urllib.parse.quote(local))
        self.addCleanup(channel.close)
        self.assertEqual(secure.Client(channel).code("GetServerInfo"), "OK")
        # Files are downloaded, and the store is copied.
        got = os.path.join(self.data_dir, "got.pt")
        daemon.ctl("checkpoint-download", job["latest_checkpoint"]["id"], "--file", got)
        self.assertGreater(os.path.getsize(got), 1000)
        backup = daemon.ctl("backup")
        self.assertTrue(pathlib.Path(backup["path"]).is_file(), backup)
        daemon.wait_for_end("one")
        self.assertEqual(daemon.stop(), 0)
        with sqlite3.connect(os.path.join(self.data_dir, "metrics.db")) as database:
            rows = database.execute("SELECT count(*) FROM fp16_stats").fetchone()[0]
        self.assertGreater(rows, 0)
        # A restarted daemon finds the files and continues from them.
        again = self.start()
        self.assertEqual(again.job("one")["state"], "JOB_STATE_SUCCEEDED")
        again.train("two", {**harness.spec(max_steps=10), "start_from_checkpoint": job["latest_checkpoint"]["id"]})
        self.assertEqual(again.wait_for_end("two")["state"], "JOB_STATE_SUCCEEDED")

    def test_marks_of_uris(self):
        self.life_of_a_job("x#y?z=1&50%41")

    def test_marks_of_shells_and_patterns(self):
        self.life_of_a_job("a b*[c]$d;'e\"\\`f")

    def test_other_alphabets(self):
        self.life_of_a_job("Modelle-\u00fcber-\u6a21\u578b")

    def test_a_comma_is_refused_at_the_start(self):
        self.folder("a,b")
        done = subprocess.run([harness.BIN / "genesisd", "--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
                               "--http-listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, r'error: the workers\' socket path ".*/a,b/run/worker\.sock" has a comma, so no '
                                      r"worker could reach it: choose another --data-dir")
