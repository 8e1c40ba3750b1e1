"""Tests sweeps with real daemons, workers and trials."""

import asyncio
import json
import pathlib
import subprocess
import unittest

import genesis
import harness
import secure

# Learning rates from useless to good, so that successive halving has losers to stop.
RATES = ["1e-7", "1e-3", "1e-6", "3e-3", "1e-5", "1e-2"]


def base(steps=400):
    return {**harness.spec(max_steps=steps), "evaluation": {"every_steps": 20}}


def parameter(rates):
    return {"field": "optimizer.learning_rate", "values": list(rates)}


class SweepTest(harness.DaemonTest):
    def client_of(self, daemon, **options):
        client = genesis.Client(daemon.grpc, **options)
        self.addCleanup(client.close)
        return client

    def check(self, daemon, sweep):
        """Compares the trials of a sweep that has ended with their jobs."""
        values = {}
        for trial in sweep.trials:
            job = daemon.job(trial["job_id"])
            self.assertEqual(job["state"], f"JOB_STATE_{trial['state']}")
            self.assertEqual(job["labels"]["sweep"], sweep.id)
            for field, value in trial["parameters"].items():
                self.assertEqual(job["labels"][field], value)
            if trial["stopped_early"]:
                self.assertEqual(trial["state"], "CANCELLED")
                self.assertIn(f"cancelled by sweep {sweep.id} (loss ", job["state_reason"])
                self.assertGreater(int(job["latest_checkpoint"]["step"]), 0)
            else:
                self.assertEqual(trial["state"], "SUCCEEDED", trial)
            values[trial["number"]] = trial["value"]
        best = min(values, key=values.get)
        self.assertEqual(sweep.best().id, sweep.trials[best]["job_id"])
        return best


class Grid(SweepTest):
    def test_every_trial_is_a_job_and_the_table_names_the_best(self):
        daemon = self.start("--workers-slots", "2")
        path = pathlib.Path(self.data_dir) / "job.yaml"
        path.write_text(json.dumps(harness.spec(max_steps=60)))
        done = subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, "sweep", "-f", path, "--over", "optimizer.learning_rate=1e-6,1e-2",
                               "--over", "model.world_model.hidden_size=16,32", "--sweep-id", "grid", "--watch"],
                              capture_output=True, text=True, timeout=harness.LONG, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        sweep = self.client_of(daemon).open_sweep("grid")
        self.assertEqual((sweep.state, len(sweep.trials)), ("SUCCEEDED", 4))
        best = self.check(daemon, sweep)
        self.assertEqual(sweep.trials[best]["parameters"]["optimizer.learning_rate"], "1e-2")
        self.assertIn(f"sweep grid SUCCEEDED: 4 of 4 trials ended; best job grid-{best:03d}: loss ", done.stdout)
        header, first = done.stdout.splitlines()[-5:-3]
        self.assertEqual(header.split(), ["JOB", "STATE", "STEP", "BEST", "loss", "learning_rate", "hidden_size", "NOTE"])
        self.assertEqual(first.split()[0], f"grid-{best:03d}", "the best is the first row")
        frame = sweep.trials_frame()
        self.assertEqual(list(frame["model.world_model.hidden_size"]), ["16", "32", "16", "32"])
        self.assertEqual([each["id"] for each in daemon.get_json("/v1/sweeps")["sweeps"]], ["grid"])
        listed = subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, "sweeps"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(listed, r"(?m)^grid +SUCCEEDED +4 +4 +loss +anonymous ")


    def test_the_command_line_says_what_it_accepts(self):
        daemon = self.start()
        path = pathlib.Path(self.data_dir) / "job.yaml"
        path.write_text(json.dumps(base(20)))
        for arguments, text in ((["--over", "training.seed"], '--over is "training.seed"; accepted: FIELD=VALUE,VALUE,... or FIELD=LOW..HIGH[:log]'),
                                (["--over", "training.seed=1", "--trials", "many"], '--trials is "many"; accepted: a whole number'),
                                (["--over", "training.seed=1..9"], "a grid has no ranges"),
                                ([], "parameters: required"),
                                (["--over", "training.seed=1", "--halving", "1"], "halving.reduction_factor is 1; accepted: 2 to 16")):
            done = daemon.ctl("sweep", "-f", path, *arguments, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
        checked = daemon.ctl("sweep", "-f", path, "--over", "optimizer.learning_rate=1e-4..1e-2:log", "--over", "training.seed=1,2", "--trials", "7",
                             "--validate-only")
        self.assertEqual(len(checked["trials"]), 7)
        self.assertEqual(list(genesis.Client(daemon.grpc).sweeps()), [])


class SuccessiveHalving(SweepTest):
    def test_losers_are_stopped_by_a_checkpoint(self):
        daemon = self.start("--workers-slots", "2")
        sweep = self.client_of(daemon).sweep(base(), {"optimizer.learning_rate": RATES}, halving=2, max_parallel=6).wait(harness.LONG)
        self.assertEqual(sweep.state, "SUCCEEDED", sweep.trials)
        best = self.check(daemon, sweep)
        self.assertIn(RATES[best], ("1e-3", "3e-3", "1e-2"))
        stopped = [each for each in sweep.trials if each["stopped_early"]]
        self.assertTrue(stopped, "none was stopped")
        for each in stopped:
            self.assertRegex(each["reason"], r"^loss \S+ at step \d+ is not among the best \d of \d at rung \d$")
            self.assertLess(each["step"], 400)

    def test_a_sweep_goes_on_after_the_daemon_was_killed(self):
        daemon = self.start("--workers-slots", "2")
        sweep = self.client_of(daemon).sweep(base(), {"optimizer.learning_rate": RATES}, halving=2, max_parallel=2, sweep_id="lives")
        for ended in (1, 3):
            harness.wait_for("trials that have ended", lambda n=ended: int(daemon.get_json("/v1/sweeps/lives")["sweep"].get("ended_trials", 0)) >= n)
            daemon.kill()
            daemon = self.start("--workers-slots", "2")
        sweep = self.client_of(daemon).open_sweep("lives").wait(harness.LONG)
        self.assertEqual(sweep.state, "SUCCEEDED", sweep.trials)
        self.check(daemon, sweep)
        jobs = daemon.get_json("/v1/jobs?labels.sweep=lives")["jobs"]
        self.assertEqual(len(jobs), len(RATES), "no trial was submitted twice")

    def test_random_trials_are_the_same_for_the_same_seed(self):
        daemon = self.start("--workers-slots", "2")
        client = self.client_of(daemon)
        over = {"optimizer.learning_rate": genesis.Range(1e-5, 1e-1, log=True), "training.batch_size": genesis.Range(16, 64)}
        first, second = (client.sweep(base(40), over, trials=3, seed=5, sweep_id=each).wait(harness.LONG) for each in ("one", "two"))
        self.assertEqual([each["parameters"] for each in first.trials], [each["parameters"] for each in second.trials])
        self.assertEqual([each["value"] for each in first.trials], [each["value"] for each in second.trials])
        for each in first.trials:
            self.assertTrue(16 <= int(each["parameters"]["training.batch_size"]) <= 64, each)


class Requests(SweepTest):
    def test_a_cancelled_sweep_stops_its_jobs_and_submits_no_more(self):
        daemon = self.start()
        client = self.client_of(daemon)
        sweep = client.sweep(base(1_000_000), {"optimizer.learning_rate": RATES}, max_parallel=2, sweep_id="long")
        harness.wait_for_step(daemon.job, "long-000", 10)
        self.assertEqual(sweep.cancel().state, "CANCELLING")
        self.assertEqual(sweep.wait(harness.LONG).state, "CANCELLED")
        self.assertEqual([each["state"] for each in sweep.trials], ["CANCELLED", "CANCELLED"] + ["UNSPECIFIED"] * 4)
        self.assertIn("cancelled by the end of sweep long", daemon.job("long-000")["state_reason"])
        self.assertEqual(sweep.cancel().state, "CANCELLED")
        with self.assertRaisesRegex(genesis.NotFoundError, "there is no sweep \"none\""):
            client.open_sweep("none")

    def test_a_request_may_be_repeated_but_not_changed(self):
        daemon = self.start()
        client = self.client_of(daemon)
        first = client.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="twice")
        again = client.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="twice")
        self.assertEqual(first.message.create_time, again.message.create_time)
        with self.assertRaisesRegex(genesis.AlreadyExistsError, 'sweep "twice" exists with another specification'):
            client.sweep(base(20), {"training.seed": [1, 3]}, sweep_id="twice")
        self.assertEqual(first.wait(harness.LONG).state, "SUCCEEDED")
        with self.assertRaisesRegex(genesis.FailedPreconditionError, "has ended as SUCCEEDED"):
            first.cancel()

    def test_a_trial_that_cannot_be_submitted_fails_alone(self):
        daemon = self.start()
        client = self.client_of(daemon)
        client.submit(harness.spec(max_steps=20), job_id="taken-001").watch(progress=False)
        sweep = client.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="taken").wait(harness.LONG)
        self.assertEqual([each["state"] for each in sweep.trials], ["SUCCEEDED", "FAILED"])
        self.assertIn('cannot be submitted: job "taken-001" exists with another specification', sweep.trials[1]["reason"])
        self.assertEqual(sweep.state, "SUCCEEDED")
        self.assertEqual(sweep.best().id, "taken-000")

    def test_asyncio_waits_for_a_sweep(self):
        daemon = self.start()

        async def best():
            async with genesis.AsyncClient(daemon.grpc) as client:
                sweep = await client.sweep(base(20), {"training.seed": [1]}, sweep_id="async")
                listed = await client.sweeps()
                job = await (await sweep.wait(harness.LONG)).best()
                return [each.id for each in listed], job.id, (await job.refresh()).state

        self.assertEqual(asyncio.run(best()), (["async"], "async-000", "SUCCEEDED"))

    def test_deleted_jobs_leave_their_trials(self):
        daemon = self.start()
        client = self.client_of(daemon)
        sweep = client.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="kept").wait(harness.LONG)
        for job in client.jobs(labels={"sweep": "kept"}):
            job.delete(checkpoints=True)
        self.assertEqual([each["state"] for each in sweep.refresh().trials], ["SUCCEEDED", "SUCCEEDED"])

    def test_errors_name_the_trial(self):
        daemon = self.start()
        client = self.client_of(daemon)
        with self.assertRaisesRegex(genesis.InvalidArgumentError, r"trial 1 \(training.batch_size=-3\): training.batch_size is -3; accepted: "):
            client.sweep(base(), {"training.batch_size": [4, -3]})
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "dataset.trajectories.path is \"none.npz\""):
            client.sweep({**base(), "dataset": {"trajectories": {"path": "none.npz"}}}, {"training.seed": [1]})
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "over has 'FP32' for precision.mode; accepted: a list"):
            client.sweep(base(), {"precision.mode": "FP32"})
        self.assertEqual(list(client.sweeps()), [])
        self.assertEqual(daemon.get_json("/v1/jobs")["jobs"], [])


class Limits(SweepTest):
    def test_open_sweeps_are_bounded(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))
        client = self.client_of(daemon)
        for i in range(100):
            client.sweep(base(), {"training.seed": [1]}, sweep_id=f"hold-{i}")
        with self.assertRaisesRegex(genesis.ResourceExhaustedError, "100 sweeps have not ended"):
            client.sweep(base(), {"training.seed": [1]}, sweep_id="more")
        self.assertEqual(len(list(client.sweeps())), 100)

    def delayed_sweep(self):
        """Returns a client, and a sweep whose first job the full queue delays until hold-1 ends."""
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), "--queue-max-jobs", "1")
        client = self.client_of(daemon)
        client.submit(harness.spec(), job_id="hold-1")
        harness.wait_for("the job to leave the queue", lambda: daemon.job("hold-1")["state"] == "JOB_STATE_RUNNING")
        client.submit(harness.spec(), job_id="ok-1")
        sweep = client.sweep(base(), {"training.seed": [1]}, sweep_id="ok-waits")
        return client, sweep

    def test_a_full_queue_delays_a_sweep(self):
        client, sweep = self.delayed_sweep()
        self.assertEqual(sweep.refresh().trials[0]["state"], "UNSPECIFIED")
        client.job("hold-1").cancel(now=True)
        self.assertEqual(sweep.wait(harness.LONG).trials[0]["state"], "SUCCEEDED")

    def test_a_sweep_that_waits_for_the_queue_can_be_cancelled(self):
        _, sweep = self.delayed_sweep()
        sweep.cancel()
        self.assertEqual(sweep.wait(harness.LONG).state, "CANCELLED")
        self.assertEqual(sweep.trials[0]["state"], "UNSPECIFIED")


class Owners(SweepTest):
    def test_a_sweep_belongs_to_its_owner(self):
        tokens = [secure.new_token(name, "submitter") for name in ("ann", "bob")]
        file = secure.write_secret(pathlib.Path(self.data_dir) / "tokens", "".join(f"{line}\n" for _, line in tokens))
        daemon = self.start("--auth-tokens-file", str(file), "--auth-own-jobs-only", "true")
        ann, bob = (self.client_of(daemon, token=token) for token, _ in tokens)
        sweep = ann.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="anns")
        with self.assertRaises(genesis.NotFoundError):
            bob.open_sweep("anns")
        self.assertEqual(list(bob.sweeps()), [])
        with self.assertRaisesRegex(genesis.AlreadyExistsError, "another specification or owner"):
            bob.sweep(base(20), {"training.seed": [1, 2]}, sweep_id="anns")
        with self.assertRaisesRegex(genesis.PermissionDeniedError, "scheduling.owner"):
            bob.sweep({**base(20), "scheduling": {"owner": "ann"}}, {"training.seed": [1]})
        sweep.wait(harness.LONG)
        self.assertEqual({job.message.owner for job in ann.jobs()}, {"ann"})


if __name__ == "__main__":
    unittest.main()
