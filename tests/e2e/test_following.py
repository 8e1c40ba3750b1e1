"""Tests jobs that go on learning from what recorders append while they train."""

import contextlib
import os
import signal
import threading
import time
import unittest

import business_creation as creation
import grpc
import harness
import orchestrator
from orchestrator import Orchestrator

# Limits of a hang that are shorter than the waits of these tests.
IMPATIENT = ("--hang-setup-seconds", "3", "--hang-step-seconds", "3")
# Seconds. The median and the worst are printed; this machine may run other things.
LAG_BOUND = 5.0


def following(dataset, replay=None, **training):
    """Returns a world model job that follows a replay buffer."""
    spec = orchestrator.world_model(dataset, **training)
    spec["dataset"]["replay"].update({"follow": True, **(replay or {})})
    return spec


class Following(harness.DaemonTest):
    def connect(self, daemon):
        client = Orchestrator(daemon.grpc)
        self.addCleanup(client.close)
        return client

    def record(self, client, first, count, seconds, **more):
        """Appends one life after another. Returns (time of the acknowledgement, transitions in the buffer so far) of each."""
        acknowledged, total = [], None
        for seed in range(first, first + count):
            recording = creation.live(seed)
            answer = client.append_batches(iter([client.batch("shop", f"live-{seed}", recording, **more)]))
            total = answer.buffer_transitions if total is None else total + len(recording)
            acknowledged.append((time.monotonic(), total))
            time.sleep(seconds)
        return acknowledged

    def lags(self, daemon, client, job_id, first):
        """Records lives from seed `first` on while a job trains. Returns the seconds from each acknowledgement to the report of a step that could draw from it."""
        seen, done = [], threading.Event()

        def watch():
            watcher = Orchestrator(daemon.grpc)
            with contextlib.closing(watcher), contextlib.suppress(grpc.RpcError):
                for update in watcher.call("WatchJob", job_id=job_id):
                    seen.append((time.monotonic(), update.job.progress.next_transition))
                    if done.is_set():
                        return

        thread = threading.Thread(target=watch)
        thread.start()
        acknowledged = self.record(client, first, 40, 0.1)
        harness.wait_for("the last one", lambda: seen and seen[-1][1] >= acknowledged[-1][1])
        done.set()
        thread.join()
        found = [min(then for then, number in seen if number >= total) - when
                 for when, total in acknowledged]
        print(f"{job_id}: lag from acknowledgement to a step's report: "
              f"median {sorted(found)[len(found) // 2]:.3f} s, worst {max(found):.3f} s of {len(found)}")
        return found

    def test_what_arrives_is_sampled_within_a_second(self):
        daemon = self.start("--workers-slots", "2")
        client = self.connect(daemon)
        client.append("shop", range(20))
        client.train("follows", following("shop", max_steps=10**12))
        daemon.wait_for_step("follows", 10)
        self.assertLess(max(self.lags(daemon, client, "follows", 1000)), LAG_BOUND)
        job = client.job("follows")
        self.assertAlmostEqual(job.progress.samples_per_insert,
                               job.progress.samples / job.progress.next_transition, delta=1e-9)
        client.cancel("follows")
        daemon.wait_for_end("follows")

        # Two ranks take the same transitions before the same step.
        client.train("ranks", {**following("shop", max_steps=10**12), "distributed": {"ranks": 2}})
        daemon.wait_for_step("ranks", 10)
        self.assertLess(max(self.lags(daemon, client, "ranks", 2000)), LAG_BOUND)
        self.assertEqual(client.job("ranks").claim, 1, "the ranks differed")
        client.cancel("ranks")
        daemon.wait_for_end("ranks")

    def test_a_job_waits_for_data_and_says_so_and_does_not_hang(self):
        daemon = self.start(*IMPATIENT)
        client = self.connect(daemon)
        client.append("shop", range(4))
        client.train("waits", following("shop", {"min_size": 800, "samples_per_insert": 4.0,
                                                 "samples_per_insert_tolerance": 64}, max_steps=100))
        reason = harness.wait_for("the first wait", lambda: client.job("waits").waiting_reason)
        self.assertRegex(reason, r"^waits for data: \d+ transitions were appended; dataset\.replay\.min_size is 800$")
        time.sleep(5)
        client.append("shop", range(4, 30))
        held = harness.wait_for("the second wait", lambda: (job := client.job("waits")).progress.step > 0
                                and job.waiting_reason and job)
        self.assertIn("dataset.replay.samples_per_insert is 4", held.waiting_reason)
        self.assertLessEqual(held.progress.samples, 4 * held.progress.next_transition + 64)
        time.sleep(5)
        self.assertEqual(client.job("waits").progress.step, held.progress.step)
        client.append("shop", range(30, 80))
        ended = daemon.wait_for_end("waits")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(int(ended.get("restarts", 0)), 0)
        self.assertEqual(ended.get("waiting_reason", ""), "")

    def test_eviction_loses_no_step_and_an_idle_job_ends(self):
        daemon = self.start()
        client = self.connect(daemon)
        client.append("shop", range(20), capacity=1500)
        client.train("evicts", following("shop", {"idle_seconds": 3}, max_steps=10**12))
        daemon.wait_for_step("evicts", 10)
        self.record(client, 1000, 150, 0)
        ended = daemon.wait_for_end("evicts")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(int(ended.get("restarts", 0)), 0)
        self.assertIn("no new transitions for 3 s", ended["state_reason"])
        self.assertGreater(int(ended["progress"]["next_transition"]), 3000)

    def test_a_killed_worker_and_a_killed_daemon_resume_to_the_bit(self):
        daemon = self.start()
        client = self.connect(daemon)
        client.append("shop", range(20), capacity=900)
        settings = following("shop", max_steps=4000)
        settings["checkpoint"] = {"every_steps": 500}
        client.train("whole", settings)
        whole = daemon.wait_for_end("whole")

        client.train("killed", settings)
        daemon.wait_for_step("killed", 700)
        os.kill(client.job("killed").worker.pid, signal.SIGKILL)
        daemon.wait_for_step("killed", 1500)
        daemon.kill()
        daemon = self.start()
        killed = daemon.wait_for_end("killed")
        self.assertEqual(killed["state"], "JOB_STATE_SUCCEEDED", killed)
        self.assertEqual(int(killed["restarts"]), 1)
        for name in ("loss", "grad_norm", "samples", "next_transition"):
            self.assertEqual(killed["progress"][name], whole["progress"][name], name)
        self.assertEqual(killed["held_out"], whole["held_out"])

    def test_a_killed_rank_resumes_to_the_bit(self):
        daemon = self.start("--workers-slots", "2")
        client = self.connect(daemon)
        client.append("shop", range(20), capacity=900)
        settings = {**following("shop", max_steps=240), "distributed": {"ranks": 2},
                    "checkpoint": {"every_steps": 60}}
        client.train("whole", settings)
        whole = daemon.wait_for_end("whole")
        client.train("killed", settings)
        daemon.wait_for_step("killed", 90)
        os.kill(client.job("killed").ranks[1].worker.pid, signal.SIGKILL)
        killed = daemon.wait_for_end("killed")
        self.assertEqual(killed["state"], "JOB_STATE_SUCCEEDED", killed)
        self.assertEqual(int(killed["restarts"]), 1)
        self.assertEqual(killed["progress"]["loss"], whole["progress"]["loss"])
        self.assertEqual(killed["held_out"], whole["held_out"])

    def test_what_it_cannot_follow_is_refused(self):
        daemon = self.start()
        client = self.connect(daemon)
        client.append("shop", range(4))
        for replay, more, part in (
                ({"min_size": 5, "follow": False}, {}, "5 needs dataset.replay.follow"),
                ({"samples_per_insert_tolerance": 3}, {}, "3 needs dataset.replay.samples_per_insert")):
            spec = following("shop", replay)
            spec["dataset"].update(more)
            with self.assertRaises(grpc.RpcError) as refused:
                client.train("refused", spec)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(part, refused.exception.details())


if __name__ == "__main__":
    unittest.main()
