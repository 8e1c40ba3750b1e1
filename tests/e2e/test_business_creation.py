"""The five business creation cases: businesses are simulated, their lives streamed to a real daemon
over AppendTrajectories, and world models trained on what it keeps. Times are printed, never
asserted: they depend on who else uses the machine."""

import pathlib
import threading
import time
import unittest

import business_creation as creation
import harness
from orchestrator import FINAL, Orchestrator, state_of, world_model

# What a daemon may grow by over rounds of the same work: pages that the allocator keeps.
GROWTH_BYTES = 48 << 20


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

    def expect_better_than_the_mean(self, job):
        """On businesses that were never trained on."""
        held_out = self.expect_success(job).held_out
        self.assertGreater(held_out.transitions, 0)
        self.assertAlmostEqual(held_out.mean, 1, delta=0.6)
        self.assertLess(held_out.model, 0.5 * held_out.mean, held_out)
        return held_out

    def metric(self, name):
        page = self.daemon.get("/metrics")
        line = next(line for line in page.splitlines() if line.startswith(name + "{"))
        return float(line.rsplit(" ", 1)[1])

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
        updates = client.watch("shop")
        job = updates[-1]
        self.expect_better_than_the_mean(job)
        self.assertEqual(job.progress.step, 600)
        losses = [update.progress.loss for update in updates if update.progress.step > 0]
        self.assertLess(losses[-1], losses[0])

        stats = client.stats()
        self.assertEqual(stats.training_steps, 600)
        self.assertEqual(stats.samples, 600 * 64)
        self.assertEqual(stats.jobs_by_state["SUCCEEDED"], 1)
        self.assertEqual(stats.overflow_rate, 0)

    def test_performance_comparison(self):
        client = self.begin(environment={"ENABLE_FP16_TRAINING": "true"})
        client.append("shop", range(40))
        jobs = {}
        for mode in ("FP32", "MIXED_BF16"):
            name = mode.lower().replace("_", "-")
            spec = {**world_model("shop"), "precision": {"mode": f"PRECISION_MODE_{mode}"}}
            client.train(name, spec)
            jobs[mode] = client.watch(name)[-1]
            self.expect_better_than_the_mean(jobs[mode])
        full, mixed = jobs["FP32"], jobs["MIXED_BF16"]
        self.assertEqual(full.progress.reduced_precision_steps, 0)
        self.assertEqual(mixed.progress.reduced_precision_steps, 300)
        self.assertEqual(mixed.progress.skipped_steps, 0)
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
        for name, job in jobs.items():
            self.expect_better_than_the_mean(job)
            self.assertEqual(job.claim, 1)
            lived = {len(creation.live(seed)) for seed in range(3)}
            self.assertLessEqual(max(lived), creation.HORIZON)
        # Businesses differ, so do their models.
        self.assertEqual(len({job.held_out.model for job in jobs.values()}), 3)
        stats = client.stats()
        self.assertEqual(stats.jobs_by_state["SUCCEEDED"], 3)
        self.assertEqual(stats.training_steps, 900)

    def test_long_running_stability(self):
        client = self.begin()
        resident, errors = [], []
        for round_ in range(4):
            seeds = range(15 * round_, 15 * round_ + 15)
            appended = client.append("shop", seeds, capacity=1500)
            self.assertEqual(appended.appended_batches, 15)
            # The oldest segment goes whole, so the buffer never holds more than its capacity.
            self.assertLessEqual(appended.buffer_transitions, 1500)
            name = f"round-{round_}"
            client.train(name, world_model("shop", max_steps=200))
            updates = client.watch(name)
            errors.append(self.expect_better_than_the_mean(updates[-1]).model)
            losses = [update.progress.loss for update in updates if update.progress.step > 0]
            self.assertLess(losses[-1], losses[0], name)
            resident.append(self.metric("process_resident_memory_bytes"))
        self.assertEqual(client.stats().training_steps, 800)
        self.assertEqual(client.stats().jobs_by_state["SUCCEEDED"], 4)
        # The first round opens what later ones use again.
        self.assertLess(resident[-1] - resident[0], GROWTH_BYTES, resident)
        # With fifteen businesses more is guessed than with the buffer full.
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
            except Exception as fault:  # Told in the main thread.
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
        # Training went on while transitions came in.
        before = client.job("shop").progress.step
        job = client.watch_until("shop", lambda job: job.progress.step > before + 20)
        self.assertNotIn(state_of(job), FINAL)
        checkpoint = client.checkpoint("shop")
        self.assertGreaterEqual(checkpoint.step, job.progress.step)
        client.cancel("shop")
        self.assertEqual(state_of(client.watch("shop")[-1]), "JOB_STATE_CANCELLED")
        # What was appended meanwhile is what the next job trains on.
        client.train("shop-again", world_model("shop", max_steps=200))
        self.expect_better_than_the_mean(client.watch("shop-again")[-1])
        lived = sum(len(creation.live(seed)) for seed in range(70))
        self.assertEqual(self.metric("genesis_transitions_appended_total"), lived)


if __name__ == "__main__":
    unittest.main()
