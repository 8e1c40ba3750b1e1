"""Tests checkpoints of ranks: shards, other numbers of ranks, damage and kills."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import torch

import genesis

import tiers
import twin
from rank_jobs import APART, GLOO, LONG, TOLERANCE, RankJobs, ranks_of, torchrun

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])


@tiers.nightly
class RankCheckpoints(RankJobs):
    def sharded(self, name, environment=None, *flags, **settings):
        settings["checkpoint"] = {**settings.get("checkpoint", {}), "sharded": True}
        job = self.job(name, **settings)
        records, output = self.train(job, *flags, environment=environment)
        return job, [record["loss"] for record in records], output

    def assert_same(self, first, second):
        """Checks that two trees of dicts, tensors and plain values are equal, including the order of keys."""
        self.assertEqual(type(first), type(second))
        if isinstance(first, dict):
            self.assertEqual(list(first), list(second))
            for key in first:
                self.assert_same(first[key], second[key])
        elif isinstance(first, torch.Tensor):
            self.assertTrue(torch.equal(first, second))
        else:
            self.assertEqual(first, second)

    def test_shards_hold_what_one_file_holds(self):
        page = (SOURCE / "docs/checkpoints.md").read_text()
        loader = page.split("runs this block with `path`. -->\n```python\n")[1].split("```")[0]
        for number, (shared_out, environment) in enumerate(((False, {}), (True, {}), (True, GLOO))):
            with self.subTest(shared_out=shared_out, environment=environment):
                settings = {"training": {"max_steps": 40, "ema_decay": 0.9}, "checkpoint": {"every_steps": 20},
                            "distributed": {"shard_optimizer_state": shared_out}}
                whole = self.job(f"whole{number}", **settings)
                losses = [record["loss"] for record in self.train(whole, environment=environment)[0]]
                job, sharded_losses, _ = self.sharded(f"sharded{number}", environment, **settings)
                self.assertEqual(sharded_losses, losses)
                files = sorted(job.parent.glob("*.pt"))
                for first, second in zip(sorted(whole.parent.glob("*.pt")), files, strict=True):
                    wanted, ours = torch.load(first), genesis.load_checkpoint(second)
                    for each in wanted, ours:  # This value depends on the clock.
                        del each["genesis"]["seconds"]
                    self.assert_same(ours, wanted)
                    names = {"path": str(second)}
                    exec(loader, names)  # pylint: disable=exec-used
                    plain = names["checkpoint"]["optimizer_state_dict"]["state"]
                    self.assertEqual(sorted(plain), list(wanted["optimizer_state_dict"]["state"]))
                    self.assert_same(names["checkpoint"]["model_state_dict"], wanted["model_state_dict"])
                    self.assertEqual(len(list(job.parent.glob(second.name + ".shard-?-of-2-*[0-9]"))), 2)
                # Each of the two checkpoints has a file, two shards, and a manifest for each of the three.
                self.assertEqual(len(list(job.parent.glob("*-step-*"))), 12)
                self.assertEqual(list(job.parent.glob(".*")), [])

    def test_any_number_of_ranks_goes_on_from_shards_as_from_one_file(self):
        settings = {"training": {"max_steps": 20}, "distributed": {"shard_optimizer_state": True}}
        whole = self.job("whole", **settings)
        self.train(whole)
        job, _, _ = self.sharded("sharded", **settings)
        for count in 1, 2, 3:
            for sharded in False, True:
                with self.subTest(count, sharded=sharded):
                    losses = []
                    for source in whole, job:
                        then = self.job(f"then{count}{sharded}{source.parent.name}", distributed={"shard_optimizer_state": True},
                                        training={"max_steps": 40}, checkpoint={"sharded": sharded})
                        records, output = self.train(then, "--resume", twin.newest_checkpoint(source.parent), count=count)
                        self.assertIn("at step 20\n", output)
                        self.assertEqual(len(records), 20)
                        losses.append([record["loss"] for record in records])
                        shards = list(then.parent.glob("*.pt.shard-*-[0-9]"))
                        self.assertEqual(len(shards), count if sharded and count > 1 else 0, shards)
                    self.assertEqual(*losses)

    def test_a_damaged_shard_is_named_and_the_checkpoint_before_is_used(self):
        for number, damage in enumerate((lambda shard: shard.unlink(), lambda shard: os.truncate(shard, 100),
                                         lambda shard: shard.write_bytes(shard.read_bytes()[:-1] + b"x"))):
            with self.subTest(number):
                settings = {"training": {"max_steps": 40}, "checkpoint": {"every_steps": 20}}
                job, losses, _ = self.sharded(f"damaged{number}", **settings)
                shard, = twin.newest_checkpoint(job.parent).parent.glob("*40.pt.shard-1-of-2-*[0-9]")
                damage(shard)
                with self.assertRaisesRegex(genesis.DataLossError, re.escape(str(shard))):
                    genesis.load_checkpoint(twin.newest_checkpoint(job.parent))
                pathlib.Path(f"{twin.newest_checkpoint(job.parent)}.manifest.json").unlink()
                script = pathlib.Path(os.environ["GENESIS_SOURCE"]) / "deploy/verify_checkpoint.py"
                verified = subprocess.run([sys.executable, script, twin.newest_checkpoint(job.parent)], capture_output=True, text=True)
                self.assertEqual(verified.returncode, 1, verified.stdout)
                self.assertIn(f"DAMAGED: {shard.name} ", verified.stdout)
                _, again, output = self.sharded(f"damaged{number}", None, "--resume", "latest", **settings)
                self.assertRegex(output, rf"checkpoint \S+40\.pt cannot be used: {re.escape(str(shard))}: ")
                self.assertIn("at step 20\n", output)
                self.assertEqual(again[-20:], losses[20:])

    def test_ranks_killed_while_they_write_shards_leave_whole_checkpoints(self):
        settings = {"training": {"max_steps": 400}, "checkpoint": {"every_steps": 5, "sharded": True}}
        wanted = self.undisturbed(**settings)
        job = self.job(**settings)
        process, log = self.start(job, "--resume", "latest", restarts=3)
        for rank in 1, 0, 1:
            newest = max(job.parent.glob("*.pt"), default=None)
            deadline = time.monotonic() + LONG
            # Waits for a shard of a newer checkpoint, unless the job ends first.
            while process.poll() is None and not any(newest is None or str(shard) > str(newest) + ".shard-~"
                                                     for shard in job.parent.glob("*.pt.shard-*")):
                self.assertLess(time.monotonic(), deadline, log.read_text())
            before = ranks_of(process)
            if rank not in before:
                break  # The job has ended.
            os.kill(before[rank], signal.SIGKILL)
            while process.poll() is None and ranks_of(process).get(rank, before[rank]) == before[rank]:
                self.assertLess(time.monotonic(), deadline, log.read_text())
                time.sleep(0.02)
        self.assertEqual(process.wait(timeout=LONG), 0, log.read_text())
        for name, tensor in genesis.load_checkpoint(twin.newest_checkpoint(job.parent))["model_state_dict"].items():
            self.assertTrue(torch.equal(tensor, wanted[name]), name)
        listed = {shard["file"] for path in job.parent.glob("*.pt") for shard in torch.load(path)["genesis"]["shards"]}
        there = {path.name for path in job.parent.glob("*.pt.shard-*") if not path.name.endswith(".json")}
        self.assertEqual(there, listed)

    def test_shards_of_a_checkpoint_that_failed_are_removed(self):
        for count, limited in (2, 1), (3, 0):
            with self.subTest(limited):
                job = self.job(f"full{limited}", training={"max_steps": 20}, checkpoint={"every_steps": 5, "sharded": True})
                folder = job.parent / "checkpoints"
                # One of the ranks cannot write files larger than 8 KiB.
                script = job.parent / "full.sh"
                script.write_text(f"""#!/bin/sh
[ "$RANK" = {limited} ] && trap '' XFSZ && ulimit -f 16
exec '{twin.WORKER}' --spec '{job}' --checkpoint-dir '{folder}' --threads 1
""")
                script.chmod(0o755)
                done = subprocess.run(torchrun("--no-python", script, count=count), capture_output=True, text=True, timeout=LONG,
                                      env={**os.environ, "GENESIS_SHARED_MEMORY": "false"})
                output = done.stdout + done.stderr
                self.assertNotEqual(done.returncode, 0, output)
                self.assertRegex(output, rf"FAILURE_CAUSE_CHECKPOINT: \S+\.pt\.shard-{limited}-of-{count}-\S+: writing failed after ")
                self.assertEqual([path.name for path in folder.iterdir()], [])

    def test_ranks_without_a_common_folder_are_told(self):
        self.require_namespaces()
        job = self.job(checkpoint={"sharded": True})
        folder = job.parent / "checkpoints"
        folder.mkdir()
        # Rank 1 sees another file system at this path.
        script = job.parent / "apart.sh"
        script.write_text(f"""#!/bin/sh
set -- '{twin.WORKER}' --spec '{job}' --checkpoint-dir '{folder}' --threads 1
[ "$RANK" = 0 ] && exec "$@"
exec {' '.join(APART)} sh -c "mount -t tmpfs none '{folder}' && exec \\"\\$@\\"" sh "$@"
""")
        script.chmod(0o755)
        done = subprocess.run(torchrun("--no-python", script), capture_output=True, text=True, timeout=LONG)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"checkpoint.sharded is true, and rank 1 does not see in {folder} what rank 0 writes; accepted: "
                      "one folder of checkpoints for all ranks", done.stdout + done.stderr)

    def test_priorities_are_kept_with_another_number_of_ranks(self):
        together = self.job("begun", **self.replay(), checkpoint={"every_steps": 10, "keep_last": 5})
        records, _ = self.train(together)
        for ranks, batch in (1, 64), (2, 32), (4, 16):
            with self.subTest(ranks):
                job = self.job(f"resumed{ranks}", **self.replay(batch_size=batch))
                first = min(together.parent.glob("*.pt"))
                if ranks == 1:
                    rest, _ = twin.run_worker(job, job.parent, "--resume", first)
                else:
                    rest, _ = self.train(job, "--resume", first, count=ranks)
                for ours, undisturbed in zip(rest, records[10:], strict=True):
                    self.assertAlmostEqual(ours["loss"], undisturbed["loss"], delta=TOLERANCE * undisturbed["loss"])

    def test_the_place_in_the_epoch_is_kept_with_another_number_of_ranks(self):
        job = self.job(training={"max_steps": 30})
        self.train(job)
        for count in 1, 4:
            with self.subTest(count):
                (self.folder / f"then{count}").mkdir()
                longer = self.job(training={"max_steps": 40})
                if count == 1:
                    twin.run_worker(longer, self.folder / f"then{count}", "--resume", twin.newest_checkpoint(job.parent))
                else:
                    command = [word if word != job.parent and word != str(job.parent) else self.folder / f"then{count}"
                               for word in self.command(longer, "--resume", twin.newest_checkpoint(job.parent), count=count)]
                    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LONG)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                place = torch.load(twin.newest_checkpoint(self.folder / f"then{count}"))["genesis"]
                self.assertEqual((place["step"], place["epoch"]), (40, 0))
                self.assertEqual(place["batch_in_epoch"], 30 * 2 // count + 10)
                self.assertEqual(place["batch_examples"], 32 * count)
                self.assertEqual(place["samples"], 30 * 64 + 10 * 32 * count)

    def test_epochs_end_where_they_would_with_another_number_of_ranks(self):
        job = self.job(training={"max_steps": None, "epochs": 1, "batch_size": 1000}, checkpoint={"every_steps": 5})
        self.train(job)
        first = sorted(job.parent.glob("*.pt"))[0]
        # 18,000 examples are 9 steps of two ranks or 18 steps of one.
        then = self.folder / "then"
        then.mkdir()
        twin.run_worker(job, then, "--resume", first)
        place = torch.load(twin.newest_checkpoint(then))["genesis"]
        self.assertEqual((place["step"], place["samples"], place["epoch"]), (5 + 8, 18000, 1))


if __name__ == "__main__":
    unittest.main()
