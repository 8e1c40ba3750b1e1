"""Tests jobs that the daemon assigns to several workers at once, each of which trains on its own examples."""

import contextlib
import os
import pathlib
import signal
import socket
import unittest

import harness
import tiers
from harness import spec

TWO = ("--workers-slots", "2")
# Long enough that the job can be interrupted on a fast machine.
STEPS = 20000


def gang(ranks=2, **training):
    """Returns the small Pendulum job for several ranks, with 64 examples per step in total."""
    changed = spec(**{"batch_size": 64 // ranks, **training})
    changed["distributed"] = {"ranks": ranks}
    return changed


def listening(pid):
    """Returns (address, port) of each IPv4 socket on which the process listens."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            address, port = fields[1].split(":")
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


class Gangs(harness.DaemonTest):
    def pid(self, daemon, job_id, rank):
        return int(daemon.job(job_id)["ranks"][rank]["worker"]["pid"])

    def wait_for_checkpoint(self, daemon, job_id):
        return harness.wait_for("a checkpoint", lambda: daemon.job(job_id).get("latest_checkpoint"))

    def kill_rank(self, daemon, job_id, rank):
        """Trains a job, and kills one rank after a checkpoint. Returns the job at its end."""
        daemon.train(job_id, gang(max_steps=2000))
        self.wait_for_checkpoint(daemon, job_id)
        os.kill(self.pid(daemon, job_id, rank), signal.SIGKILL)
        ended = daemon.wait_for_end(job_id)
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual((int(ended["claim"]), int(ended["restarts"])), (2, 1))
        return ended

    def test_two_ranks_train_as_one_process_with_all_examples(self):
        daemon = self.start(*TWO)
        daemon.train("one", spec())
        one = daemon.wait_for_end("one")
        daemon.train("two", gang())
        two = daemon.wait_for_end("two")
        self.assertEqual(two["state"], "JOB_STATE_SUCCEEDED", two)
        self.assertAlmostEqual(two["progress"]["loss"], one["progress"]["loss"], delta=1e-5)
        self.assertAlmostEqual(two["held_out"]["model"], one["held_out"]["model"], delta=1e-5)
        self.assertEqual(two["progress"]["samples"], one["progress"]["samples"])
        self.assertEqual([int(rank.get("rank", 0)) for rank in two["ranks"]], [0, 1])
        self.assertNotEqual(two["ranks"][0]["worker"]["pid"], two["ranks"][1]["worker"]["pid"])
        self.assertIn("job two: rank 1: rank 1 of 2, at 127.0.0.1", daemon.log())

    def test_it_is_paused_resumed_checkpointed_and_cancelled_as_one(self):
        daemon = self.start(*TWO)
        daemon.train("patient", gang(max_steps=STEPS))
        daemon.wait_for_step("patient", 100)
        taken = daemon.ctl("checkpoint", "patient")
        self.assertGreaterEqual(int(taken["step"]), 100)
        daemon.ctl("pause", "patient")
        paused = harness.wait_for("the pause", lambda: (
            job := daemon.job("patient"))["state"] == "JOB_STATE_PAUSED" and job)
        step = int(paused["latest_checkpoint"]["step"])
        self.assertGreaterEqual(step, int(taken["step"]))
        harness.wait_for("both slots", lambda: not [
            worker for worker in daemon.ctl("workers").get("workers", [])
            if worker["state"] == "WORKER_STATE_BUSY"])
        daemon.ctl("resume", "patient")
        daemon.wait_for_step("patient", step + 100)
        daemon.ctl("cancel", "patient")
        ended = daemon.wait_for_end("patient")
        self.assertEqual(ended["state"], "JOB_STATE_CANCELLED")
        self.assertEqual(int(ended.get("restarts", 0)), 0)

    def test_a_rank_that_is_killed_is_a_restart_of_all(self):
        daemon = self.start(*TWO)
        self.kill_rank(daemon, "second", 1)
        self.assertRegex(daemon.log(), r"job second: rank 1 on cpu: the worker was ended by signal 9 "
                                       r"\(Killed\).*; restart 1 of 3")

    @tiers.nightly
    def test_rank_0_that_is_killed_is_a_restart_of_all(self):
        daemon = self.start(*TWO)
        self.kill_rank(daemon, "first", 0)
        self.assertRegex(daemon.log(), r"job first: rank 0 on cpu: the worker was ended by signal 9 ")

    @tiers.nightly
    def test_one_that_is_killed_while_it_writes_shards_goes_on_from_whole_ones(self):
        daemon = self.start(*TWO)
        sharded = gang(max_steps=2000)
        sharded["checkpoint"] = {"every_steps": 20, "sharded": True}
        daemon.train("shards", sharded)
        folder = daemon.data_dir / "checkpoints"
        for claim, rank in (1, 1), (2, 0):
            harness.wait_for("a checkpoint", lambda: daemon.job("shards").get("latest_checkpoint"))
            newest = int(daemon.job("shards")["latest_checkpoint"]["step"])
            # Waits for a shard of a later checkpoint.
            harness.wait_for("a shard", lambda: [
                path for path in folder.glob("shards-step-*.pt.shard-*")
                if int(path.name.split("-step-")[1].split(".")[0]) > newest])
            os.kill(self.pid(daemon, "shards", rank), signal.SIGKILL)
            harness.wait_for("the restart", lambda: int(daemon.job("shards")["claim"]) > claim)
        ended = daemon.wait_for_end("shards")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(int(ended["restarts"]), 2)
        records = daemon.ctl("checkpoints", "shards")["checkpoints"]
        self.assertEqual(len(list(folder.glob("shards-step-*.pt"))), len(records))
        for record in records:
            files = [path for path in folder.glob(f"{pathlib.Path(record['path']).name}*")
                     if not path.name.endswith(".manifest.json")]
            self.assertEqual(record["shard_count"], 2)
            self.assertEqual(len(files), 3)
            self.assertEqual(int(record["size_bytes"]), sum(path.stat().st_size for path in files))
        # Requests for a single file are rejected with a cure.
        newest = records[0]["id"]
        refused = daemon.ctl("checkpoint-download", newest, "-f", str(folder / "copy.pt"), check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f'checkpoint "{newest}" is in 2 shards (checkpoint.sharded), and one file is sent', refused.stderr)
        # A job starts from these weights. Then the checkpoint is deleted with all its files.
        daemon.train("after", {**spec(max_steps=5), "start_from_checkpoint": newest})
        self.assertEqual(daemon.wait_for_end("after")["state"], "JOB_STATE_SUCCEEDED")
        daemon.ctl("checkpoint-delete", newest)
        self.assertEqual(list(folder.glob(f"{pathlib.Path(records[0]['path']).name}*")), [])

    @tiers.nightly
    def test_a_rank_that_is_stopped_is_noticed(self):
        daemon = self.start(*TWO, "--hang-step-seconds", "3")
        daemon.train("silent", gang(max_steps=2000))
        self.wait_for_checkpoint(daemon, "silent")
        os.kill(self.pid(daemon, "silent", 1), signal.SIGSTOP)
        ended = daemon.wait_for_end("silent")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(int(ended["restarts"]), 1)
        self.assertRegex(daemon.log(), r"rank \d on cpu made no progress for 3s while making steps")

    def test_it_trains_on_while_the_daemon_is_dead(self):
        daemon = self.start(*TWO)
        daemon.train("survivor", gang(max_steps=STEPS))
        step = int(daemon.wait_for_step("survivor", 100)["progress"]["step"])
        pids = [self.pid(daemon, "survivor", rank) for rank in (0, 1)]
        daemon.kill()
        again = self.start(*TWO)
        again.wait_for_step("survivor", step + 500)
        self.assertEqual([self.pid(again, "survivor", rank) for rank in (0, 1)], pids)
        job = again.job("survivor")
        self.assertEqual((int(job["claim"]), int(job.get("restarts", 0))), (1, 0))
        # The daemon still detects the end of a rank.
        os.kill(pids[1], signal.SIGKILL)
        harness.wait_for("the restart", lambda: int(again.job("survivor")["claim"]) == 2)
        again.ctl("cancel", "survivor", "--now")
        self.assertEqual(again.wait_for_end("survivor")["state"], "JOB_STATE_CANCELLED")

    @tiers.nightly
    def test_one_whose_rank_died_with_the_daemon_goes_on_from_its_checkpoint(self):
        daemon = self.start(*TWO)
        daemon.train("half", gang(max_steps=2000))
        self.wait_for_checkpoint(daemon, "half")
        pids = [self.pid(daemon, "half", rank) for rank in (0, 1)]
        daemon.kill()
        os.kill(pids[1], signal.SIGKILL)
        again = self.start(*TWO)
        ended = again.wait_for_end("half")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual((int(ended["claim"]), int(ended.get("restarts", 0))), (2, 0))

    @tiers.nightly
    def test_it_gives_way_and_waits_as_one(self):
        daemon = self.start(*TWO)
        # The two gangs do not fit at the same time. Between them is a job with one worker.
        for name in ("gang-a", "alone", "gang-b"):
            daemon.train(name, gang(max_steps=1000) if name != "alone" else spec(max_steps=1000))
        for name in ("gang-a", "alone", "gang-b"):
            ended = daemon.wait_for_end(name)
            self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
            self.assertEqual(int(ended["claim"]), 1)
        # A gang with a higher priority takes the slots of two running jobs.
        for name in ("low-1", "low-2"):
            daemon.train(name, spec(max_steps=STEPS))
            daemon.wait_for_step(name, 50)
        urgent = gang(max_steps=500)
        urgent["scheduling"] = {"priority": 5}
        daemon.train("urgent", urgent)
        self.assertEqual(daemon.wait_for_end("urgent")["state"], "JOB_STATE_SUCCEEDED")
        for name in ("low-1", "low-2"):
            job = daemon.wait_for_step(name, 100)
            self.assertEqual(int(job.get("restarts", 0)), 0)
            daemon.ctl("cancel", name, "--now")

    def test_drains_and_drained_workers_checkpoint_it(self):
        daemon = self.start(*TWO)
        daemon.train("moved", gang(max_steps=STEPS))
        daemon.wait_for_step("moved", 100)
        worker = daemon.job("moved")["ranks"][1]["worker"]["worker_id"]
        daemon.ctl("drain-worker", worker)
        moved = harness.wait_for("another attempt", lambda: (
            job := daemon.job("moved"))["claim"] == "2" and job)
        self.assertNotIn(worker, [rank["worker"]["worker_id"] for rank in moved["ranks"]])
        daemon.wait_for_step("moved", 200)
        self.assertEqual(daemon.stop(), 0)
        again = self.start(*TWO)
        resumed = harness.wait_for("the third attempt", lambda: (job := again.job("moved"))["claim"] == "3" and job)
        self.assertEqual(int(resumed.get("restarts", 0)), 0)
        again.wait_for_step("moved", 300)

    def test_reduced_precision_ends_on_all_ranks_at_one_step(self):
        daemon = self.start(*TWO, environment={"ENABLE_FP16_TRAINING": "true"})
        job = gang(max_steps=STEPS)
        job["precision"] = {"mode": "BF16"}
        daemon.train("mixed", job)
        daemon.wait_for_step("mixed", 100)
        daemon.ctl("precision", "disable", "--reason", "a test", "--running", "next-step")
        changed = harness.wait_for("FP32", lambda: (
            job := daemon.job("mixed")).get("precision_changes") and job)
        self.assertEqual(changed["precision_changes"][0]["trigger"], "policy")
        step = int(changed["precision_changes"][0]["step"])
        self.assertEqual(int(daemon.wait_for_step("mixed", step + 200)["claim"]), 1)
        self.assertEqual(daemon.log().count("PRECISION_CHANGE"), 0)

    def test_more_ranks_than_slots_are_refused(self):
        daemon = self.start(*TWO)
        refused = daemon.train("wide", gang(ranks=4), check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("distributed.ranks is 4; accepted: 1 to 2, for each rank takes a slot",
                      refused.stderr)

    @tiers.nightly
    def test_one_that_may_have_fewer_ranks_shrinks_and_grows(self):
        daemon = self.start(*TWO)
        daemon.train("other", spec(max_steps=1_000_000))
        daemon.wait_for_step("other", 10)
        job = gang(max_steps=1_000_000)
        job["distributed"]["min_ranks"] = 1
        daemon.train("elastic", job)
        self.assertEqual(daemon.job("elastic")["queue_reason"], "needs 2 slots at one time; 1 of 2 are free")
        alone = daemon.wait_for_step("elastic", 50)
        self.assertEqual(alone.get("ranks", []), [])
        daemon.ctl("cancel", "other", "--now")
        both = harness.wait_for("both ranks", lambda: (
            job := daemon.job("elastic")).get("ranks") and job)
        step = int(both["latest_checkpoint"]["step"])
        self.assertGreaterEqual(step, 50)
        grown = daemon.wait_for_step("elastic", step + 100)
        self.assertEqual((int(grown["claim"]), int(grown.get("restarts", 0))), (2, 0))
        daemon.ctl("cancel", "elastic", "--now")

    @tiers.nightly
    def test_strangers_at_its_ports_do_not_disturb_it(self):
        daemon = self.start(*TWO)
        daemon.train("open", gang(max_steps=5000))
        daemon.wait_for_step("open", 50)
        found = [place for rank in (0, 1) for place in listening(self.pid(daemon, "open", rank))]
        self.assertGreaterEqual(len(found), 2)
        for address, port in found:
            self.assertEqual(address, "127.0.0.1")
            for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), b"\xff" * 4096):
                with socket.create_connection((address, port), timeout=harness.LONG) as stranger:
                    stranger.sendall(noise)
        step = int(daemon.job("open")["progress"]["step"])
        ended = daemon.wait_for_end("open")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", (step, ended))
        self.assertEqual(int(ended["claim"]), 1)

    def test_use_ddp_alone_takes_every_slot(self):
        daemon = self.start(*TWO)
        daemon.train("all", spec(use_ddp=True, batch_size=32))
        ended = daemon.wait_for_end("all")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", ended)
        self.assertEqual(len(ended["ranks"]), 2)


if __name__ == "__main__":
    unittest.main()
