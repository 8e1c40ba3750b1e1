"""Tests metrics that callers report: real jobs stop, and keep checkpoints, by them, through kills of daemon and worker."""

import asyncio
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import genesis
import harness

# More steps than any test waits for.
ENDLESS = 100_000_000
# Checkpoints are removed so late that a test can report about the newest one.
EVERY, LAST = 500, 20


def follower(**evaluation):
    """Returns a job that ends by the return, and keeps by it one checkpoint in addition to the newest ones."""
    spec = harness.spec(max_steps=ENDLESS)
    spec["evaluation"] = {"metric": "return", "mode": "MAX", **evaluation}
    spec["checkpoint"] = {"every_steps": EVERY, "keep_last": LAST, "keep_best": 1}
    return spec


class ReportedMetrics(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.client = genesis.Client(self.daemon.grpc)
        self.addCleanup(self.client.close)

    def restart(self):
        """Kills the daemon and starts another at the same address."""
        self.daemon.kill()
        self.daemon = self.start("--grpc-listen", self.daemon.grpc)

    def submit(self, spec):
        return self.client.submit(spec, job_id="run")

    def reports(self):
        return list(self.client.events_page(job_id="run", kinds=["metrics_reported"])[0])

    def wait_for_checkpoint(self, job, after):
        def newer():
            found = job.checkpoints()
            return found[0] if found and found[0].step > after else None

        return harness.wait_for(f"a checkpoint after step {after}", newer)

    def kept(self):
        """Returns the steps of the checkpoint files."""
        return sorted(int(path.stem.rsplit("-", 1)[1]) for path in pathlib.Path(self.data_dir, "checkpoints").glob("run-step-*.pt"))

    def wait_until_only_newer(self, job, best, others):
        """Waits until retention has removed some checkpoints, and checks that the best one is there."""
        def removed():
            kept = self.kept()
            self.assertIn(best, kept)
            return not set(others) & set(kept)

        harness.wait_for("retention", removed)
        self.assertIn(best, [each.step for each in job.checkpoints()])

    def test_a_job_keeps_its_best_checkpoint_and_ends_at_the_target(self):
        job = self.submit(follower(target=200))
        best = self.wait_for_checkpoint(job, 0)
        job.report({"return": 150.5, "episodes": 10}, checkpoint=best)
        worse = self.wait_for_checkpoint(job, best.step)
        job.report({"return": -20}, checkpoint=worse.id)
        self.wait_until_only_newer(job, best.step, [worse.step])
        shown = {each.step: each.reported_metrics for each in job.checkpoints()}
        self.assertEqual(shown[best.step], {"return": 150.5, "episodes": 10})
        newest = self.wait_for_checkpoint(job, worse.step)
        job.report({"return": 200}, step=newest.step)
        job.watch()
        self.assertEqual(job.state, "SUCCEEDED")
        self.assertEqual(job.message.state_reason,
                         "training complete, ended early: the reported return reached 200; evaluation.target is 200")
        self.assertIn(newest.step, self.kept())
        self.assertEqual((job.message.followed_metric.best_value, job.message.followed_metric.best_step), (200, newest.step))
        job.report({"return": 230}, step=job.progress.step)  # Checkpoints are often evaluated later.
        self.assertEqual([event.step for event in self.reports()], [best.step, worse.step, newest.step, job.progress.step])

    def test_reports_that_were_acknowledged_survive_kills_of_daemon_and_worker(self):
        job = self.submit(follower(patience=2))
        best = self.wait_for_checkpoint(job, 0)
        job.report({"return": 5}, checkpoint=best)
        self.restart()
        job.refresh()
        shown = {each.step: each.reported_metrics for each in job.checkpoints()}
        self.assertEqual(shown[best.step], {"return": 5})
        self.assertEqual(job.message.followed_metric.best_step, best.step)
        job.report({"return": 5}, checkpoint=best)
        self.assertEqual(len(self.reports()), 1, "the same report again is not recorded")
        later = self.wait_for_checkpoint(job, best.step + (LAST + 1) * EVERY)
        self.assertIn(best.step, self.kept(), "the worker kept what it knew")
        os.kill(job.refresh().message.worker.pid, signal.SIGKILL)
        after = self.wait_for_checkpoint(job, later.step + EVERY)
        self.assertIn(best.step, self.kept(), "the next worker knows it too")
        job.report({"return": 4}, step=later.step)
        job.report({"return": 3}, checkpoint=after)
        self.daemon.kill()  # Before the worker has ended the job, most of the time.
        self.daemon = self.start("--grpc-listen", self.daemon.grpc)
        job.watch()
        self.assertEqual(job.message.restarts, 1)
        self.assertIn(f"2 reports in a row did not improve on the return 5 of step {best.step}; evaluation.patience is 2",
                      job.message.state_reason)
        self.assertIn(best.step, self.kept())

    def test_a_paused_job_ends_when_it_is_resumed(self):
        job = self.submit(follower(target=1))
        self.wait_for_checkpoint(job, 0)
        job.pause()
        harness.wait_for("the pause", lambda: job.refresh().state == "PAUSED")
        step = job.progress.step
        job.report({"return": 1}, step=step)
        self.assertEqual(job.state, "PAUSED")
        job.resume().watch()
        self.assertEqual((job.state, job.progress.step), ("SUCCEEDED", step))

    def test_ranks_end_together(self):
        self.daemon.stop()
        self.daemon = self.start("--grpc-listen", self.daemon.grpc, "--workers-slots", "2")
        spec = follower(target=-100)
        spec["distributed"] = {"ranks": 2}
        spec["training"]["batch_size"] = 32
        job = self.submit(spec)
        job.report({"return": -99}, checkpoint=self.wait_for_checkpoint(job, 0))
        job.watch()
        self.assertEqual((job.state, job.message.restarts), ("SUCCEEDED", 0))
        self.assertIn("the reported return reached -99", job.message.state_reason)

    def test_plateaus_lower_the_learning_rate_of_all_ranks(self):
        self.daemon.stop()
        self.daemon = self.start("--grpc-listen", self.daemon.grpc, "--workers-slots", "2")
        spec = follower()
        spec["distributed"] = {"ranks": 2}
        spec["training"]["batch_size"] = 32
        spec["optimizer"] = {"learning_rate": 1e-3, "schedule": {"kind": "PLATEAU", "plateau_patience": 2}}
        job = self.submit(spec)

        def wait_for_rate(rate):
            harness.wait_for(f"rate {rate}", lambda: abs(job.refresh().progress.learning_rate - rate) < 1e-9)

        wait_for_rate(1e-3)
        for step, value in enumerate((5, 4, 5)):
            job.report({"return": value}, step=step + 1)
        wait_for_rate(1e-4)
        self.wait_for_checkpoint(job, job.progress.step + EVERY)
        os.kill(job.refresh().message.worker.pid, signal.SIGKILL)
        harness.wait_for("the restart", lambda: job.refresh().message.restarts == 1 and job.state == "RUNNING")
        wait_for_rate(1e-4)
        job.report({"return": 1}, step=4)
        job.report({"return": 2}, step=5)
        wait_for_rate(1e-5)
        self.assertEqual(job.message.followed_metric.rate_reductions, 2)

    def test_evaluators_share_the_checkpoints(self):
        spec = follower(target=3)
        job = self.submit(spec)
        lock, taken, reported = threading.Lock(), [], []

        def evaluate(number):
            with genesis.Client(self.daemon.grpc) as client:
                run = client.job("run")
                for checkpoint in run.evaluations(lease=6):
                    with lock:
                        taken.append(checkpoint.step)
                        if number == 0 and len(taken) > 3:
                            return  # Without a report, like one that was killed.
                        reported.append(checkpoint.step)
                        value = 3 if len(reported) == 9 else 0.1 * len(reported)
                    run.report({"return": value}, step=checkpoint.step)  # Retention may have removed it.

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            done = [pool.submit(evaluate, number) for number in range(3)]
            for each in done:
                each.result(harness.LONG)
        self.assertEqual(job.refresh().state, "SUCCEEDED")
        self.assertEqual(len(reported), len(set(reported)), "a checkpoint was evaluated twice")
        # One that the first evaluator kept goes to another, if retention has kept it.
        self.assertEqual([each.step for each in job.checkpoints() if "return" not in each.reported_metrics], [])

        async def none_waits():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                found = await client.job("run")
                return [each async for each in found.evaluations()]

        self.assertEqual(asyncio.run(none_waits()), [])

    def ended_with_a_checkpoint(self):
        """Returns a job that has ended with one checkpoint without a value."""
        spec = follower()
        spec["training"]["max_steps"], spec["checkpoint"] = 20, {}
        return self.submit(spec).watch()

    def test_the_last_checkpoint_of_an_evaluator_that_died_goes_to_another(self):
        job = self.ended_with_a_checkpoint()
        dead = next(job.evaluations(lease=2))
        begin = time.monotonic()
        for checkpoint in job.evaluations():
            self.assertEqual(checkpoint.id, dead.id)
            job.report({"return": 1}, step=checkpoint.step)
        self.assertGreater(time.monotonic() - begin, 1)
        self.assertEqual(job.refresh().message.reported_metrics[0].value, 1)

    def test_a_lease_ends_with_its_daemon_and_with_its_job(self):
        job = self.ended_with_a_checkpoint()
        next(job.evaluations(lease=3600))
        self.restart()
        job = self.client.job("run")
        next(job.evaluations(lease=3600))
        job.delete(checkpoints=True)
        self.assertEqual(next(self.ended_with_a_checkpoint().evaluations()).step, 20)

    def test_each_of_many_checkpoints_is_evaluated(self):
        spec = follower()
        spec["training"]["max_steps"], spec["checkpoint"] = 130, {"every_steps": 1, "keep_last": 200}
        job = self.submit(spec).watch()
        for step in range(30, 131):
            job.report({"return": 1}, step=step)
        self.assertEqual(next(job.evaluations()).step, 29)

    def test_only_a_job_that_follows_a_metric_is_evaluated(self):
        job = self.submit(harness.spec(max_steps=10)).watch()
        with self.assertRaisesRegex(genesis.FailedPreconditionError, "follows no reported metric; accepted: a job with evaluation.metric"):
            next(job.evaluations())
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "lease_seconds is 86401; accepted: 1 to 86400, or 0 for 600"):
            next(job.evaluations(lease=86401))

    def test_the_command_and_asyncio_report_too(self):
        job = self.submit(harness.spec(max_steps=10)).watch()
        text = subprocess.run([harness.BIN / "genesisctl", "--server", self.daemon.grpc, "report", "run", "return=2.5", "wins/all=-1e-3",
                               "--step", "10"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(text, "job run SUCCEEDED\n")

        async def report():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                found = await client.job("run")
                return await found.report({"return": 3.5}, checkpoint=job.checkpoint().id)

        self.assertEqual(asyncio.run(report()).message.reported_metrics[0].value, 3.5)
        text = subprocess.run([harness.BIN / "genesisctl", "--server", self.daemon.grpc, "job", "run"], capture_output=True, text=True,
                              check=True).stdout
        self.assertRegex(text, r"reported return: +3\.5 at step 10\n")
        self.assertRegex(text, r"reported wins/all: +-0\.001 at step 10\n")
        lines = subprocess.run([harness.BIN / "genesisctl", "--server", self.daemon.grpc, "events", "--kind", "metrics_reported"],
                               capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual([line.split("  ", 3)[3] for line in lines],
                         ["anonymous reported about step 10: return=2.5 wins/all=-0.001", "anonymous reported about step 10: return=3.5"])
        for wrong in (["return"], ["return=high"], ["return=1"], ["return=1", "--step", "x"], ["return=nan", "--step", "1"]):
            done = self.daemon.ctl("report", "run", *wrong, check=False)
            self.assertNotEqual(done.returncode, 0, wrong)
            self.assertIn("accepted" if wrong != ["return=1"] else "step: required", done.stderr)

    def test_values_that_json_spells_otherwise_are_refused(self):
        self.submit(harness.spec(max_steps=10)).watch()
        for value in ("NaN", "-Infinity", "many", True, None):
            body = json.dumps({"step": 1, "values": {"return": value}}).encode()
            request = urllib.request.Request(f"http://{self.daemon.http}/v1/jobs/run:report", body, {"Content-Type": "application/json"})
            with self.assertRaises(urllib.error.HTTPError, msg=value) as refused:
                urllib.request.urlopen(request, timeout=harness.LONG)
            self.assertEqual(refused.exception.code, 400, value)
            self.assertIn("values", json.load(refused.exception)["error"]["message"])
        self.assertEqual(self.reports(), [])

    def test_python_refuses_what_no_report_can_be(self):
        job = self.submit(harness.spec(max_steps=10)).watch()
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "values is .*; accepted: a dict of text to a number"):
            job.report({"return": "high"}, step=1)
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "step: required"):
            job.report({"return": 1})
        with self.assertRaisesRegex(genesis.NotFoundError, "has no checkpoint"):
            job.report({"return": 1}, checkpoint="run-step-9")
