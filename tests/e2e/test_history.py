"""Tests the history of jobs: the commands of the rollback plan unchanged, the table while the daemon writes to it, genesisctl history, and
a history that cannot be written."""

import csv
import datetime
import io
import json
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import unittest

import harness

# Commands of the rollback plan. The test replaces the host and the folder by its own.
PLAN = r"""
# 2. Training metrics
curl http://localhost:8080/api/metrics/export > metrics-$(date +%Y%m%d).json

# 3. FP16 statistics
sqlite3 /var/lib/genesis/metrics.db \
  "SELECT * FROM fp16_stats WHERE timestamp > datetime('now', '-24 hours')" \
  > fp16-stats-$(date +%Y%m%d).csv
"""

COLUMNS = ["timestamp", "job_id", "step", "mode", "loss", "baseline_loss", "loss_scale",
           "training_steps", "fp16_steps", "overflow_steps", "overflow_rate", "fp16_enabled",
           "memory_allocated_bytes", "samples_per_second", "state", "divergence_ratio",
           "held_out_loss", "divergences"]


class HistoryTest(harness.DaemonTest):
    def start_with_history(self, *flags):
        return self.start("--workers-program", str(harness.FAKE_WORKER),
                          "--history-interval-seconds", "1", *flags)

    def rows(self, where="1"):
        """Returns rows of the table, read like the sqlite3 tool does while the daemon writes."""
        database = sqlite3.connect(f"file:{self.data_dir}/metrics.db?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute(
                f"SELECT * FROM fp16_stats WHERE {where} ORDER BY timestamp, rowid")]
        finally:
            database.close()

    def wait_for_rows(self, where):
        return harness.wait_for(f"rows with {where}", lambda: self.rows(where))

    def run_jobs(self, daemon):
        """Runs a job that succeeds, and one that is sampled while it runs."""
        daemon.train("ok-1", harness.spec())
        self.assertEqual(daemon.wait_for_end("ok-1")["state"], "JOB_STATE_SUCCEEDED")
        daemon.train("hold-1", harness.spec())
        self.wait_for_rows("job_id = 'ok-1' AND state = 'SUCCEEDED'")
        self.wait_for_rows("job_id = 'hold-1' AND state = 'RUNNING'")

    def test_the_commands_of_the_rollback_plan_work_as_they_are_written(self):
        daemon = self.start_with_history()
        self.run_jobs(daemon)
        folder = tempfile.mkdtemp(dir=self.data_dir)
        script = PLAN.replace("localhost:8080", daemon.http).replace("/var/lib/genesis",
                                                                     str(self.data_dir))
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder,
                              capture_output=True, text=True, timeout=harness.LONG,
                              env={**os.environ, "no_proxy": "*"})
        self.assertEqual(done.returncode, 0, done.stderr)
        [export] = pathlib.Path(folder).glob("metrics-*.json")
        [statistics] = pathlib.Path(folder).glob("fp16-stats-*.csv")
        document = json.loads(export.read_text())
        self.assertEqual(document["schema_version"], 1)
        self.assertLessEqual({"ok-1", "hold-1"}, {row["job_id"] for row in document["history"]})
        lines = [line.split("|") for line in statistics.read_text().splitlines()]
        self.assertLessEqual({"ok-1", "hold-1"}, {line[1] for line in lines})
        self.assertEqual({len(line) for line in lines}, {len(COLUMNS)})

    def test_rows_hold_what_the_jobs_did_at_the_time_they_say(self):
        daemon = self.start_with_history()
        before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        self.run_jobs(daemon)
        [end] = self.rows("state = 'SUCCEEDED'")
        self.assertEqual(list(end), COLUMNS)
        job = daemon.job("ok-1")
        self.assertEqual(end["job_id"], "ok-1")
        self.assertEqual((end["step"], end["training_steps"]), (10, 10))
        self.assertAlmostEqual(end["loss"], job["progress"]["loss"])
        self.assertEqual(end["mode"], "FP32")
        self.assertEqual((end["fp16_enabled"], end["fp16_steps"], end["overflow_steps"]), (0, 0, 0))
        for absent in ("overflow_rate", "loss_scale", "memory_allocated_bytes", "baseline_loss"):
            self.assertIsNone(end[absent], absent)
        told = datetime.datetime.strptime(end["timestamp"], "%Y-%m-%d %H:%M:%S.%f").replace(
            tzinfo=datetime.timezone.utc)
        self.assertLessEqual(before, told)
        self.assertLessEqual(told, datetime.datetime.now(datetime.timezone.utc))
        running = self.wait_for_rows("job_id = 'hold-1' AND state = 'RUNNING'")
        more = harness.wait_for("another sample", lambda: [
            rows for rows in [self.rows("job_id = 'hold-1' AND state = 'RUNNING'")]
            if len(rows) > len(running) and rows[0]["timestamp"] < rows[-1]["timestamp"]])[0]
        self.assertLess(more[0]["timestamp"], more[-1]["timestamp"])
        daemon.ctl("cancel", "hold-1")
        self.assertEqual(self.wait_for_rows("state = 'CANCELLED'")[0]["job_id"], "hold-1")

    def test_a_job_has_no_rows_of_a_deleted_one_of_its_name(self):
        daemon = self.start_with_history()
        known = []
        for _ in range(2):
            daemon.train("ok-1", harness.spec())
            daemon.wait_for_end("ok-1")
            stats = daemon.get_json("/v1/stats?job_id=ok-1&window_seconds=3600")
            known.append((stats["window"]["steps"], stats["window"]["samples"], len(stats["history"])))
            ends = harness.wait_for("the row of the end", lambda: [
                row for row in daemon.get_json("/v1/history?job_id=ok-1").get("rows", []) if row["state"] != "JOB_STATE_RUNNING"])
            self.assertEqual([row["state"] for row in ends], ["JOB_STATE_SUCCEEDED"])
            daemon.ctl("delete", "ok-1", "--checkpoints")
        self.assertEqual(len(self.rows("job_id = 'ok-1' AND state = 'SUCCEEDED'")), 2)
        self.assertEqual(known[0], known[1], "statistics of a job are its own")

    def test_genesisctl_prints_the_same_rows_as_csv(self):
        daemon = self.start_with_history()
        self.run_jobs(daemon)
        daemon.ctl("cancel", "hold-1")
        self.wait_for_rows("state = 'CANCELLED'")
        done = subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, "history",
                               "--csv", "--since", "7d"], capture_output=True, text=True,
                              timeout=harness.LONG, check=True)
        printed = list(csv.reader(io.StringIO(done.stdout)))
        self.assertEqual(printed[0], COLUMNS)
        stored = self.rows()
        self.assertEqual([row[1] for row in printed[1:]], [row["job_id"] for row in stored])
        for line, row in zip(printed[1:], stored):
            for column, text in zip(COLUMNS, line):
                if row[column] is None:
                    self.assertEqual(text, "", column)
                elif isinstance(row[column], float):
                    self.assertAlmostEqual(float(text), row[column], msg=column)
                else:
                    self.assertEqual(text, str(row[column]), column)
        one = daemon.ctl("history", "--job", "ok-1")
        self.assertEqual({row["job_id"] for row in one["rows"]}, {"ok-1"})

    def test_the_export_is_what_its_schema_says(self):
        daemon = self.start_with_history()
        self.run_jobs(daemon)
        document = daemon.get_json("/api/metrics/export")
        self.assertEqual(set(document), {
            "schema_version", "generated_at", "server", "metrics", "recent_jobs", "history",
            "history_truncated", "history_error"})
        self.assertEqual((document["history_truncated"], document["history_error"]), (False, None))
        self.assertEqual(set(document["server"]), {
            "version", "deployment", "start_time", "data_dir", "fp16_enabled_runtime",
            "fp16_allowed", "fp16_reason"})
        self.assertEqual({tuple(row) for row in document["history"]}, {tuple(COLUMNS)})
        metrics = {metric["name"]: metric for metric in document["metrics"]}
        trained = metrics["genesis_training_success_total"]
        self.assertEqual((trained["kind"], trained["unit"]), ("counter", "jobs"))
        self.assertEqual(trained["series"],
                         [{"labels": {"deployment": "stable"}, "value": 1}])
        durations = metrics["genesis_training_duration_seconds"]["series"][0]
        self.assertEqual(durations["count"], 1)
        self.assertEqual(durations["buckets"][-1], {"le": None, "count": 1})
        jobs = {job["id"]: job for job in document["recent_jobs"]}
        self.assertEqual(jobs["ok-1"]["state"], "SUCCEEDED")
        self.assertIsNone(jobs["hold-1"]["end_time"])

    def test_a_history_that_cannot_be_kept_hurts_no_job(self):
        # A folder instead of the file fails like a full or broken disk.
        (pathlib.Path(self.data_dir) / "metrics.db").mkdir()
        daemon = self.start_with_history()
        daemon.train("ok-1", harness.spec())
        self.assertEqual(daemon.wait_for_end("ok-1")["state"], "JOB_STATE_SUCCEEDED")
        self.assertIn("the history cannot be written, which hurts no job", daemon.log())
        refused = daemon.ctl("history", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("the history cannot be read", refused.stderr)
        self.assertIn("the history cannot be read",
                      daemon.get_json("/api/metrics/export")["history_error"])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
