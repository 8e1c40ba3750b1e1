"""Tests five cases in which businesses are simulated, appended to a replay buffer of a real daemon, and world models trained on them.

The daemon's results are compared with values that follow from the seeds, with held-out errors that Python computes from the checkpoint,
and with the test's own clock. Speeds of precisions are printed and not asserted, because they depend on the load of the machine."""

import pathlib
import threading
import time
import unittest

import business_creation as creation
import harness
from held_out import TOLERANCE, HeldOut
from orchestrator import FINAL, Orchestrator, state_of, world_model

# Maximum growth of a daemon over rounds of the same work, for pages that the allocator keeps.
GROWTH_BYTES = 48 << 20
# Maximum ratio, in either direction, between the speed that the daemon reports and that by the test's clock.
CLOCKS_APART = 5
# Minimum duration of a step of the slow job.
SLOW_STEP_SECONDS = 0.02


class BusinessCreation(harness.DaemonTest):
    def begin(self, *flags, environment=None):
        self.daemon = self.start(*flags, environment=environment)
        client = Orchestrator(self.daemon.grpc)
        self.addCleanup(client.close)
        return client

    def expect_success(self, job):
        self.assertEqual(state_of(job), "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job.state_reason, "training complete")
        return job

    def expect_better_than_the_mean(self, job, seeds):
        """Checks that a model predicts held-out businesses better than their mean, and that the reported errors are those of its
        checkpoint.

        `seeds` are those of the businesses in the buffer, the oldest first. Returns the reported errors."""
        told = self.expect_success(job).held_out
        found = HeldOut(job.latest_checkpoint.path, seeds, job.spec.dataset.replay.holdout_fraction)
        self.assertEqual(told.transitions, found.transitions)
        for name in ("model", "persistence", "mean"):
            self.assertAlmostEqual(getattr(told, name) / getattr(found, name), 1, delta=TOLERANCE, msg=name)
        self.assertLess(found.mean_distance, TOLERANCE)
        self.assertAlmostEqual(told.mean, 1, delta=0.6)
        self.assertLess(told.model, 0.5 * told.mean, told)
        return told

    def expect_counted(self, client, job_id, steps, batch_size=64):
        """Checks the steps and samples that GetJob, Stats and the history report for one job."""
        progress, stats = client.job(job_id).progress, client.call("Stats", job_id=job_id)
        self.assertEqual((progress.step, progress.samples), (steps, steps * batch_size))
        self.assertEqual((stats.training_steps, stats.samples), (steps, steps * batch_size))
        self.assertEqual((stats.history[-1].step, stats.history[-1].loss), (steps, progress.loss))

    def metric(self, name, **labels):
        """Returns the value of the only series with this name and these labels."""
        page = self.daemon.get("/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = [line for line in page.splitlines()
                 if line.startswith(name + "{") and all(each in line for each in wanted)]
        self.assertEqual(len(found), 1, found)
        return float(found[0].rsplit(" ", 1)[1])

    def test_full_business_creation(self):
        client = self.begin()
        appended = client.append("shop", range(40))
        self.assertEqual(appended.appended_batches, 40)
        lived = sum(len(creation.live(seed)) for seed in range(40))
        self.assertEqual(appended.buffer_transitions, lived)
        self.assertEqual(self.metric("genesis_transitions_appended_total"), lived)

        client.train("shop", world_model("shop", max_steps=600))
        client.watch_until("shop", lambda job: job.progress.step >= 1)
        checkpoint = client.checkpoint("shop")
        self.assertTrue(pathlib.Path(checkpoint.path).is_file())
        job = client.watch("shop")[-1]
        self.expect_better_than_the_mean(job, range(40))
        self.expect_counted(client, "shop", 600)
        # The updates of the watch do not suffice, because a watch of a finished job sends only one.
        history = client.call("Stats", job_id="shop").history
        self.assertLess(history[-1].loss, history[0].loss)

        stats = client.stats()
        self.assertEqual(stats.training_steps, 600)
        self.assertEqual(stats.samples, 600 * 64)
        self.assertEqual(stats.jobs_by_state["SUCCEEDED"], 1)
        self.assertEqual(stats.overflow_rate, 0)

    def timed(self, client, name, mode, steps, **more):
        """Queues a job. Returns a function that waits for its end and returns the job and its steps per second by the test's clock."""
        client.train(name, {**world_model("shop", max_steps=steps),
                            "precision": {"mode": f"PRECISION_MODE_{mode}"}, **more})
        seen = []

        def watch():
            for update in client.call("WatchJob", job_id=name):
                seen.append((time.monotonic(), update.job))

        watcher = threading.Thread(target=watch)
        watcher.start()

        def wait():
            watcher.join()
            job = self.expect_success(seen[-1][1])
            self.assertEqual(job.precision.mode, job.spec.precision.mode, job.precision.reason)
            stepped = [(moment, each.progress.step) for moment, each in seen if each.progress.step]
            (first, at_first), (last, at_last) = stepped[0], next(each for each in stepped if each[1] == steps)
            # With fewer updates, the speed could not be computed.
            self.assertLess(at_first, steps / 2)
            return job, (at_last - at_first) / (last - first)

        return wait

    def test_performance_comparison(self):
        client = self.begin("--rehearsals-allowed", "true", environment={"ENABLE_FP16_TRAINING": "true"})
        client.append("shop", range(40))
        slow = [{"kind": "REHEARSAL_KIND_SLOW", "at_step": 1, "steps": 100, "amount": SLOW_STEP_SECONDS}]
        # There is one slot, so the other jobs wait for the slow one and are watched from their first step on.
        waits = {"slow": self.timed(client, "slow", "MIXED_BF16", 100, rehearsals=slow),
                 "FP32": self.timed(client, "fp32", "FP32", 1000),
                 "MIXED_BF16": self.timed(client, "mixed-bf16", "MIXED_BF16", 1000)}
        runs = {name: wait() for name, wait in waits.items()}
        for name, (job, rate) in runs.items():
            progress = job.progress
            self.assertAlmostEqual(progress.samples_per_second * progress.seconds / progress.samples, 1, delta=0.1)
            told = progress.samples_per_second / 64
            self.assertLess(told, CLOCKS_APART * rate, name)
            self.assertGreater(told, rate / CLOCKS_APART, name)
        speed = {name: job.progress.samples_per_second for name, (job, _) in runs.items()}
        # A job that is known to be slow is reported as slow.
        self.assertLess(speed["slow"], 64 / SLOW_STEP_SECONDS)
        self.assertEqual(min(speed, key=speed.get), "slow")
        for mode, names in (("fp32", ["FP32"]), ("bf16", ["MIXED_BF16", "slow"])):
            steps = self.metric("genesis_step_duration_seconds_count", mode=mode)
            self.assertEqual(steps, sum(runs[name][0].progress.step for name in names))
            self.assertEqual(self.metric("genesis_optimizer_steps_total", mode=mode), steps)
            seconds = self.metric("genesis_step_duration_seconds_sum", mode=mode)
            trained = sum(runs[name][0].progress.seconds for name in names)
            self.assertLess(seconds, 1.01 * trained)
            self.assertGreater(seconds, trained / CLOCKS_APART)

        full, mixed = runs["FP32"][0], runs["MIXED_BF16"][0]
        for job in (full, mixed):
            self.expect_better_than_the_mean(job, range(40))
        self.assertEqual(full.progress.reduced_precision_steps, 0)
        self.assertEqual(mixed.progress.reduced_precision_steps, 1000)
        self.assertEqual(mixed.progress.skipped_steps, 0)
        # The job really ran in another format than FP32.
        self.assertNotEqual(mixed.held_out.model, full.held_out.model)
        difference = abs(mixed.held_out.model - full.held_out.model) / full.held_out.model
        self.assertLess(difference, 0.05)
        print(f"\nFP32 {full.progress.seconds:.2f} s, MIXED_BF16 {mixed.progress.seconds:.2f} s, "
              f"held-out losses {full.held_out.model:.5f} and {mixed.held_out.model:.5f} "
              f"({difference:.2%} apart)")

    def test_several_businesses_at_once(self):
        client = self.begin("--workers-slots", "2")
        names = ["bakery", "garage", "studio"]
        recorders = [
            threading.Thread(target=client.append, args=(name, range(100 * i, 100 * i + 30)))
            for i, name in enumerate(names)]
        for recorder in recorders:
            recorder.start()
        for recorder in recorders:
            recorder.join()
        for name in names:
            client.train(name, world_model(name))
        jobs = {name: client.watch(name)[-1] for name in names}
        seeds = {name: range(100 * i, 100 * i + 30) for i, name in enumerate(names)}
        for name, job in jobs.items():
            # Each model learned about its own businesses and nothing about the others.
            held_out = self.expect_better_than_the_mean(job, seeds[name])
            for other in names:
                if other != name:
                    elsewhere = HeldOut(job.latest_checkpoint.path, seeds[other], 0.2)
                    self.assertGreater(elsewhere.mean_distance, 100 * TOLERANCE)
                    self.assertNotAlmostEqual(elsewhere.model / held_out.model, 1, delta=100 * TOLERANCE)
            self.expect_counted(client, name, 300)
            self.assertEqual(job.claim, 1)
        buffers = {each.name: each for each in client.call("ListDatasets").datasets}
        lived = {name: sum(len(creation.live(seed)) for seed in seeds[name]) for name in names}
        self.assertEqual({name: buffers[name].transitions for name in names}, lived)
        self.assertEqual(self.metric("genesis_transitions_appended_total"), sum(lived.values()))
        stats = client.stats()
        self.assertEqual(stats.jobs_by_state["SUCCEEDED"], 3)
        self.assertEqual((stats.training_steps, stats.samples), (900, 900 * 64))
        self.assertEqual(self.metric("genesis_training_samples_total"), 900 * 64)
        self.assertEqual(self.metric("genesis_training_success_total"), 3)

    def newest(self, seeds, transitions):
        """Returns the seeds of the newest businesses that together have this number of transitions."""
        kept = list(seeds)
        while sum(len(creation.live(seed)) for seed in kept) > transitions:
            kept.pop(0)
        self.assertEqual(sum(len(creation.live(seed)) for seed in kept), transitions)
        return kept

    def test_long_running_stability(self):
        client = self.begin()
        resident, errors = [], []
        for round_ in range(4):
            seeds = range(15 * round_, 15 * round_ + 15)
            appended = client.append("shop", seeds, capacity=1500)
            self.assertEqual(appended.appended_batches, 15)
            # The oldest segment is removed as a whole, so the buffer never exceeds its capacity.
            self.assertLessEqual(appended.buffer_transitions, 1500)
            self.assertEqual(appended.appended_transitions, sum(len(creation.live(seed)) for seed in seeds))
            kept = self.newest(range(15 * round_ + 15), appended.buffer_transitions)
            name = f"round-{round_}"
            client.train(name, world_model("shop", max_steps=200))
            updates = client.watch(name)
            errors.append(self.expect_better_than_the_mean(updates[-1], kept).model)
            self.expect_counted(client, name, 200)
            losses = [update.progress.loss for update in updates if update.progress.step > 0]
            self.assertLess(losses[-1], losses[0], name)
            resident.append(self.metric("process_resident_memory_bytes"))
        stats = client.stats()
        self.assertEqual((stats.training_steps, stats.samples), (800, 800 * 64))
        self.assertEqual(stats.jobs_by_state["SUCCEEDED"], 4)
        lived = sum(len(creation.live(seed)) for seed in range(60))
        self.assertEqual(self.metric("genesis_transitions_appended_total"), lived)
        # The buffer was full, so old businesses were evicted.
        self.assertLess(len(kept), 60)
        # Later rounds reuse the memory that the first round allocated.
        self.assertLess(resident[-1] - resident[0], GROWTH_BYTES, resident)
        # A model of fifteen businesses generalizes worse than one of a full buffer.
        self.assertLess(errors[-1], errors[0], errors)

    def test_realistic_load(self):
        client = self.begin()
        client.append("shop", range(30))
        client.train("shop", world_model("shop", max_steps=1_000_000))
        client.watch_until("shop", lambda job: job.progress.step >= 1)
        faults, sent = [], []

        def append():
            try:
                for seed in range(30, 70):
                    client.append("shop", [seed])
                    sent.append(seed)
            except Exception as fault:  # The main thread raises it.
                faults.append(fault)

        recorder = threading.Thread(target=append)
        recorder.start()
        steps = []
        while recorder.is_alive():
            stats = client.stats()
            steps.append(stats.training_steps)
            self.assertEqual(stats.busy_workers, 1)
            time.sleep(0.02)
        recorder.join()
        self.assertEqual(faults, [])
        self.assertEqual(len(sent), 40)
        self.assertEqual(steps, sorted(steps))
        # Training continued while transitions arrived.
        before = client.job("shop").progress.step
        job = client.watch_until("shop", lambda job: job.progress.step > before + 20)
        self.assertNotIn(state_of(job), FINAL)
        checkpoint = client.checkpoint("shop")
        self.assertGreaterEqual(checkpoint.step, job.progress.step)
        client.cancel("shop")
        self.assertEqual(state_of(client.watch("shop")[-1]), "JOB_STATE_CANCELLED")
        # The next job trains on the transitions that were appended meanwhile.
        client.train("shop-again", world_model("shop", max_steps=200))
        self.expect_better_than_the_mean(client.watch("shop-again")[-1], range(70))
        self.expect_counted(client, "shop-again", 200)
        lived = sum(len(creation.live(seed)) for seed in range(70))
        self.assertEqual(self.metric("genesis_transitions_appended_total"), lived)


if __name__ == "__main__":
    unittest.main()
