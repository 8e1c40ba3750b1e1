"""Tests that ranks started by real torchrun train like one process with their batches combined and like DistributedDataParallel, and that
they end, stop and resume together."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import numpy
import torch

import genesis

import compiled_job
import processor
import slurm_cluster
import twin
from replay_files import replay_segment, trajectories

# Gradients are summed in another order.
TOLERANCE = 1e-5
BF16_TOLERANCE = 3e-2
# Runs with 16-bit numbers drift apart slowly.
COMPRESSED_TOLERANCE = 1e-3
GLOO = {"GENESIS_SHARED_MEMORY": "false"}
LONG = 600
# A rank may be lost at any point of a step.
CANNOT = "cannot (add up gradients|update weights)"
SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
# Runs a command with its own mounts, so that it sees other files, as on another host.
APART = ("unshare", "--mount", "--map-root-user")
# Runs a command whose calls of process_vm_readv fail, as with a filter of system calls (seccomp(2)).
WITHOUT_READING = (sys.executable, "-c", """
import ctypes, os, platform, struct, sys
number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
load, equal, give = 0x20, 0x15, 0x06
filter = b"".join(struct.pack("HBBI", *each) for each in (
    (load, 0, 0, 0), (equal, 0, 1, number), (give, 0, 0, 0x00050001), (give, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(filter)
program = struct.pack("HxxxxxxP", len(filter) // 8, ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
""")


def torchrun(*words, count=2, restarts=0):
    """Returns the command that runs `words` with torchrun on a free port (--standalone)."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}",
            f"--max-restarts={restarts}", *map(str, words)]


def ranks_of(launcher):
    """Returns {rank: process ID} for the current processes of a torchrun."""
    found = {}
    for task in pathlib.Path(f"/proc/{launcher.pid}/task").glob("*/children"):
        for child in task.read_text().split():
            with contextlib.suppress(OSError):
                variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                found |= {int(v[5:]): int(child) for v in variables if v.startswith(b"RANK=")}
    return found


def weights(folder):
    return genesis.load_checkpoint(twin.newest_checkpoint(folder))["model_state_dict"]


class RanksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def job(self, name="together", **settings):
        """Writes a job file in a folder of its own. A section or key whose value is None is left out."""
        (self.folder / name).mkdir(exist_ok=True)
        path = twin.job_file(self.folder / name, training={"use_ddp": True, "batch_size": 32})
        job = json.loads(path.read_text())
        for section, values in settings.items():
            job[section] = {**job.get(section, {}), **values} if isinstance(values, dict) else values
            if isinstance(values, dict):
                job[section] = {key: value for key, value in job[section].items() if value is not None}
        path.write_text(json.dumps(job))
        return path

    def command(self, job, *flags, **options):
        telemetry = job.parent / "telemetry.jsonl"
        return torchrun("--no-python", twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent,
                        "--telemetry", telemetry, "--threads", "1", *flags, **options)

    def start(self, job, *flags, **options):
        """Starts torchrun. Returns the process and the file of its output."""
        log = job.parent / "log"
        with open(log, "w") as output:
            process = subprocess.Popen(self.command(job, *flags, **options), stdout=output,
                                       stderr=subprocess.STDOUT)
        self.addCleanup(self.end, process)
        return process, log

    def end(self, process):
        for pid in ranks_of(process).values() if process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def train(self, job, *flags, environment=None, launcher=(), **options):
        """Runs torchrun until it ends. Returns the records of the steps and the output."""
        done = subprocess.run([*launcher, *self.command(job, *flags, **options)], capture_output=True, text=True,
                              env={**os.environ, **(environment or {})}, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.records(job), done.stdout

    @staticmethod
    def records(job):
        return [json.loads(line) for line in (job.parent / "telemetry.jsonl").read_text().splitlines()]

    def require_namespaces(self):
        if subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
            self.skipTest("NOT RUN: namespaces are forbidden here")

    def train_by(self, script, job, *around):
        """Runs torchrun so that each rank is started by a bash script, which ends with exec "$@", inside the commands `around`. Returns the
        finished process."""
        command = self.command(job)
        place = command.index(twin.WORKER)
        return subprocess.run([*command[:place], *around, "bash", "-c", script, "worker", *command[place:]],
                              capture_output=True, text=True, timeout=LONG)

    def refusal(self, job, path, other):
        """Returns the errors of a torchrun whose rank 1 sees `other` at `path`, as on another host."""
        done = self.train_by(f'test "$RANK" = 1 && mount --bind {other} {path}; exec "$@"', job, *APART)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def wait_for(self, log, text):
        self.wait_for_regex(log, re.escape(text))

    def wait_for_regex(self, log, pattern):
        deadline = time.monotonic() + LONG
        while not re.search(pattern, log.read_text()):
            self.assertLess(time.monotonic(), deadline, log.read_text())
            time.sleep(0.02)

    def compare(self, tolerance=TOLERANCE, environment=None, flags=(), **settings):
        """Compares two ranks with one process that has twice the batch size."""
        together, _ = self.train(self.job(**settings), *flags, environment=environment)
        training = {**settings.pop("training", {}), "use_ddp": False, "batch_size": 64}
        alone = self.job("alone", training=training, **settings)
        records, _ = twin.run_worker(alone, alone.parent, *flags, environment=environment)
        self.assertEqual(len(together), len(records))
        worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(together, records))
        self.assertLess(worst, tolerance)
        return together, records

    def test_two_ranks_are_one_process_with_twice_the_batch(self):
        together, records = self.compare(training={"max_grad_norm": 0.1})
        for ours, alone in zip(together, records):
            self.assertAlmostEqual(ours["grad_norm"], alone["grad_norm"], delta=1e-4 * alone["grad_norm"])
            self.assertEqual(ours["samples"], alone["samples"])

    def test_so_do_micro_batches(self):
        # Each micro-batch of 64 examples is split between the two ranks. One process trains on the same micro-batches.
        self.compare(training={"gradient_accumulation_steps": 2})

    def test_so_do_ranks_that_share_no_memory(self):
        self.compare(training={"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}, environment=GLOO)

    def test_so_do_steps_in_bf16(self):
        for mode in "MIXED_BF16", "BF16":
            with self.subTest(mode):
                together, _ = self.compare(BF16_TOLERANCE, compiled_job.ALLOWED, precision={"mode": mode},
                                           training={"gradient_accumulation_steps": 2})
                self.assertEqual(together[-1]["mode"], mode)

    def test_so_do_steps_in_fp16(self):
        for mode in "MIXED_FP16", "FP16":
            for training in {}, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}:
                with self.subTest(mode, training=training):
                    # The first steps overflow. All ranks skip them and halve the scale together.
                    together, records = self.compare(1e-3, compiled_job.ALLOWED, ["--emulate-fp16"], training=training,
                                                     precision={"mode": mode, "loss_scale": 2.0**24})
                    self.assertEqual({record["mode"] for record in together}, {mode})
                    self.assertGreater(sum(record["skipped"] for record in together), 2)
                    for key in "skipped", "loss_scale":
                        self.assertEqual([record[key] for record in together], [record[key] for record in records])

    def replay(self, **training):
        """Returns the settings of a job with prioritized sampling from a replay buffer."""
        folder = self.folder / "buffer"
        folder.mkdir(exist_ok=True)
        priorities = numpy.random.default_rng(5).uniform(0.1, 4, 600).astype(numpy.float32)
        (folder / f"{0:020}.segment").write_bytes(replay_segment(trajectories(600), priorities, 50))
        return {"dataset": {"trajectories": None, "replay": {"path": str(folder)}, "sampling": {"kind": "PRIORITIZED"}},
                "training": {"max_steps": 20, **training}}

    def test_so_does_sampling_by_priorities(self):
        for environment, training in ({}, {}), (GLOO, {"gradient_accumulation_steps": 2}):
            with self.subTest(training, environment=environment):
                together, _ = self.compare(environment=environment, **self.replay(**training))
                uniform = self.replay(**training)
                uniform["dataset"]["sampling"] = {"kind": "UNIFORM"}
                other, _ = self.train(self.job("uniform", **uniform), environment=environment)
                self.assertNotAlmostEqual(together[0]["loss"], other[0]["loss"], delta=1e-4)

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

    def check_beside_pytorch(self, tolerance, hook="none", environment=None, **settings):
        out = self.folder / "losses.json"
        done = subprocess.run(torchrun(pathlib.Path(__file__).with_name("ddp_loop.py"), out, 50, 32, 3, hook),
                              capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        together, output = self.train(self.job(**settings), environment=environment)
        losses = json.loads(out.read_text())
        self.assertEqual(len(losses), len(together))
        for ours, theirs in zip(together, losses):
            self.assertAlmostEqual(ours["loss"], theirs, delta=tolerance * theirs)
        return output

    def test_they_are_as_pytorchs_own(self):
        output = self.check_beside_pytorch(TOLERANCE)
        self.assertRegex(output, r"\ngradients: 1 bucket, \S+ MiB, by shared memory; one copy of weights and optimizer\n")
        output = self.check_beside_pytorch(TOLERANCE, environment=GLOO)
        self.assertRegex(output, r"\ngradients: 1 bucket, \S+ MiB, by Gloo, because GENESIS_SHARED_MEMORY is false\n")

    def test_compressed_gradients_are_as_pytorchs_hooks(self):
        for kind in "FP16", "BF16":
            for environment in {}, GLOO:
                with self.subTest(kind, environment=environment):
                    output = self.check_beside_pytorch(COMPRESSED_TOLERANCE, f"{kind.lower()}_compress_hook", environment,
                                                       distributed={"gradient_compression": kind})
                    self.assertIn(" MiB compressed, by ", output)

    def test_error_feedback_is_as_pytorch_with_such_a_hook(self):
        for environment in {}, GLOO:
            with self.subTest(environment=environment):
                # Without feedback, the losses differ by twice the tolerance.
                self.check_beside_pytorch(TOLERANCE, "error_feedback", environment,
                                          distributed={"gradient_compression": "BF16", "use_error_feedback": True})

    def test_an_optimizer_that_is_shared_out_is_the_same_to_the_bit(self):
        for optimizer, environment in (({"kind": "ADAMW"}, {}), ({"kind": "SGD", "momentum": 0.9, "learning_rate": 0.01}, GLOO)):
            with self.subTest(optimizer["kind"], environment=environment):
                settings = {"optimizer": optimizer, "training": {"max_steps": 60, "ema_decay": 0.9},
                            "checkpoint": {"every_steps": 20}}
                whole = self.job("whole" + optimizer["kind"], distributed={"shard_optimizer_state": False}, **settings)
                shared = self.job("shared" + optimizer["kind"], distributed={"shard_optimizer_state": True}, **settings)
                self.assertEqual([record["loss"] for record in self.train(shared, environment=environment)[0]],
                                 [record["loss"] for record in self.train(whole, environment=environment)[0]])
                for first, second in zip(sorted(whole.parent.glob("*.pt")), sorted(shared.parent.glob("*.pt")), strict=True):
                    first, second = torch.load(first), torch.load(second)
                    for section in "model_state_dict", "ema_state_dict":
                        for name, tensor in first[section].items():
                            self.assertTrue(torch.equal(tensor, second[section][name]), name)
                    for number, entry in first["optimizer_state_dict"]["state"].items():
                        for name, tensor in entry.items():
                            self.assertTrue(torch.equal(tensor, second["optimizer_state_dict"]["state"][number][name]),
                                            (number, name))

    def test_ranks_keep_one_copy_where_that_costs_nothing(self):
        one = "by shared memory; one copy of weights and optimizer\n"
        for number, (settings, environment, expected) in enumerate((
                ({}, {}, one), ({"shard_optimizer_state": True}, {}, one),
                ({"shard_optimizer_state": False}, {}, "by shared memory\n"),
                # The check compares the ranks' copies of the weights.
                ({"weight_check_every_steps": 4}, {}, "by shared memory\n"),
                ({"weight_check_every_steps": 4, "shard_optimizer_state": True}, {},
                 one[:-1] + ", so that weight_check_every_steps has nothing to compare\n"),
                ({}, GLOO, "because GENESIS_SHARED_MEMORY is false\n"),
                ({"shard_optimizer_state": True}, GLOO, "is false; optimizer in shards\n"))):
            with self.subTest(**settings, **environment):
                job = self.job(f"copies{number}", distributed=settings, training={"max_steps": 8})
                _, output = self.train(job, environment=environment)
                self.assertIn(expected, output)

    def test_large_gradients_are_the_same_to_the_bit_read_or_copied(self):
        settings = {"model": {"world_model": {"hidden_size": 512, "latent_size": 256}},
                    "training": {"max_steps": 12, "gradient_accumulation_steps": 2, "max_grad_norm": 0.1}}
        one = "; one copy of weights and optimizer\n"
        for mode in "FP32", "BF16":
            with self.subTest(mode):
                losses = []
                for name, distributed, launcher, expected in (
                        ("whole", {"shard_optimizer_state": False}, (), "by shared memory\n"),
                        ("read", {}, (), f"by shared memory{one}"),
                        ("copied", {}, WITHOUT_READING, "by shared memory, copied, because rank 0 cannot read memory of rank 1 "
                         f"(process_vm_readv: Operation not permitted){one}")):
                    job = self.job(mode + name, distributed=distributed, precision={"mode": mode}, **settings)
                    records, output = self.train(job, launcher=launcher)
                    self.assertIn(expected, output)
                    losses.append([record["loss"] for record in records])
                self.assertEqual(losses[0], losses[1])
                self.assertEqual(losses[0], losses[2])

    def test_such_a_job_resumes_with_any_number_of_ranks(self):
        settings = {"training": {"max_steps": 40}, "distributed": {"shard_optimizer_state": True}}
        wanted = self.undisturbed(**settings)
        # Each combination has the same examples per step, so the jobs differ only in the order of sums.
        for count, batch in (1, 64), (2, 32), (4, 16):
            with self.subTest(count):
                job = self.job(f"ranks{count}", **{**settings, "training": {"max_steps": 20}})
                self.train(job)
                job = self.job(f"ranks{count}", **{**settings, "training": {"max_steps": 40, "batch_size": batch}})
                if count == 1:
                    twin.run_worker(job, job.parent, "--resume", "latest")
                else:
                    _, output = self.train(job, "--resume", "latest", count=count)
                    self.assertIn("at step 20\n", output)
                for name, tensor in weights(job.parent).items():
                    self.assertTrue(torch.allclose(tensor, wanted[name], rtol=1e-3, atol=1e-5), name)

    # With sharded checkpoints, each rank writes a part.

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

    def test_one_writes_and_tells(self):
        job = self.job()
        _, output = self.train(job)
        self.assertEqual(output.count("training complete"), 1)
        self.assertEqual(output.count("\nranks: 2, each with batches of 32\n"), 1)
        self.assertEqual(len(list(job.parent.glob("*.pt"))), 1)

    def undisturbed(self, **settings):
        job = self.job("undisturbed", **settings)
        self.train(job)
        return weights(job.parent)

    def check_same(self, folder, wanted):
        for name, tensor in weights(folder).items():
            self.assertTrue(torch.equal(tensor, wanted[name]), name)

    def test_a_killed_rank_is_started_again_and_no_step_is_lost(self):
        settings = {"training": {"max_steps": 2000}, "checkpoint": {"every_steps": 100}}
        wanted = self.undisturbed(**settings)
        process, log = self.start(self.job(**settings), "--resume", "latest", restarts=1)
        self.wait_for(log, "step-000000000200.pt")
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        self.assertEqual(process.wait(LONG), 0, log.read_text())
        self.assertRegex(log.read_text(), r"resumed from \S+ at step \d+00\n")
        self.assertRegex(log.read_text(), f"rank 0 of 2 {CANNOT}: rank 1 (has ended|does not answer)")
        self.check_same(log.parent, wanted)

    def test_a_rank_that_is_stopped_is_noticed_in_time_and_named(self):
        for environment, words in ({}, "rank 1 has been silent for 2 s; its log says why"), (GLOO, "rank 1 does not answer"):
            with self.subTest(words):
                job = self.job(words.replace(" ", "-").replace(";", ""), training={"max_steps": 10**6},
                               distributed={"timeout_seconds": 2}, checkpoint={"every_steps": 50})
                with unittest.mock.patch.dict(os.environ, environment):
                    process, log = self.start(job)
                self.wait_for(log, "step-000000000100.pt")
                ranks = ranks_of(process)
                os.kill(ranks[1], signal.SIGSTOP)
                began = time.monotonic()
                self.wait_for_regex(log, f"rank 0 of 2 {CANNOT}: {words}")
                self.assertGreater(time.monotonic() - began, 1.5)
                self.end(process)

    def test_a_slow_rank_is_waited_for(self):
        job = self.job(training={"max_steps": 300}, distributed={"timeout_seconds": 60})
        process, log = self.start(job)
        self.wait_for(log, "\nstep 1")
        slow = ranks_of(process)[1]
        while process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slow, signal.SIGSTOP)
                time.sleep(0.03)
                os.kill(slow, signal.SIGCONT)
            time.sleep(0.03)
        self.assertEqual(process.returncode, 0, log.read_text())
        self.assertEqual(self.records(job)[-1]["step"], 300)

    def test_another_job_is_refused_with_what_differs(self):
        job, other = self.job(), self.job("other", training={"batch_size": 16})
        done = self.train_by(f'test "$RANK" = 1 && set -- "$1" --spec {other} --checkpoint-dir {other.parent}; exec "$@"', job)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 was given another job than rank 0 (modified: training.batch_size: 32 -> 16); give all "
                      "ranks the same job file", done.stderr)

    def test_another_copy_of_the_data_is_refused_with_what_differs(self):
        self.require_namespaces()
        arrays = dict(numpy.load(twin.TRAJECTORIES / "pendulum.npz"))
        episode = numpy.flatnonzero(arrays["terminals"] | arrays["timeouts"])[-2] + 1
        fewer = {name: array[:episode] for name, array in arrays.items()}
        other = {**arrays, "observations": arrays["observations"] + 1, "next_observations": arrays["next_observations"] + 1}
        for name, copy, expected in (("fewer", fewer, r"rank 1 has other files than rank 0 \(number of examples: \d+, that of rank 0: \d+\); "
                                      "give all ranks the same data and the same module"),
                                     ("other", other, r"\(checksum of a sample of the examples: \w{8}, that of rank 0: \w{8}\)")):
            with self.subTest(name):
                numpy.savez(self.folder / f"{name}.npz", **copy)
                job = self.job(name, dataset={"trajectories": {"path": str(self.folder / "data.npz")}})
                numpy.savez(self.folder / "data.npz", **arrays)
                self.assertRegex(self.refusal(job, self.folder / "data.npz", self.folder / f"{name}.npz"), expected)

    def test_a_buffer_that_grew_for_one_rank_is_another_copy(self):
        self.require_namespaces()
        job = self.job(**self.replay())
        grown = self.folder / "grown"
        shutil.copytree(self.folder / "buffer", grown)
        (grown / f"{0:020}.segment").write_bytes(replay_segment(trajectories(650), numpy.ones(650, numpy.float32), 50))
        self.assertIn("FAILURE_CAUSE_WORKER_EXIT: rank 1 has other files than rank 0 (number of examples: 650, that of rank 0: 600); ",
                      self.refusal(job, self.folder / "buffer", grown))

    def test_another_module_is_refused(self):
        self.require_namespaces()
        rows = {"x": numpy.ones((40, 6), numpy.float32), "target": numpy.zeros(40, numpy.int64)}
        numpy.savez(self.folder / "rows.npz", **rows)
        for name in ("net.pt2", "other.pt2"):  # Other initial weights.
            genesis.export(torch.nn.Linear(6, 3), {field: torch.from_numpy(values[:5]) for field, values in rows.items()}, self.folder / name,
                           loss="cross_entropy", precisions=["FP32"])
        job = self.folder / "job.yaml"
        job.write_text(json.dumps({"model": {"exported": {"path": str(self.folder / "net.pt2")}},
                                   "dataset": {"arrays": {"path": str(self.folder / "rows.npz")}},
                                   "training": {"max_steps": 30, "batch_size": 4, "use_ddp": True}}))
        self.assertRegex(self.refusal(job, self.folder / "net.pt2", self.folder / "other.pt2"),
                         r"FAILURE_CAUSE_CONFIG: rank 1 has other files than rank 0 \(checksum of the module's file: "
                         r"[0-9a-f]{64}, that of rank 0: [0-9a-f]{64}\); give all ranks the same data and the same module")

    def test_weights_are_compared(self):
        _, output = self.train(self.job(distributed={"weight_check_every_steps": 7}))
        self.assertIn("training complete", output)

    def test_output_that_nobody_reads_any_longer_ends_no_job(self):
        job = self.job(training={"use_ddp": False})
        process = subprocess.Popen([twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent], stdout=subprocess.PIPE)
        self.addCleanup(self.end, process)
        process.stdout.close()
        self.assertEqual(process.wait(LONG), 0)
        self.assertEqual(len(list(job.parent.glob("*.pt"))), 1)

    def test_all_stop_after_the_same_step_and_resume(self):
        # The model draws random numbers in each step.
        settings = {"training": {"max_steps": 60, "batch_size": 4},
                    "model": {"world_model": None, "radio_unet": {
                        "part": "DIFFUSION", "base_channels": 8, "channel_multipliers": [1, 2]}},
                    "dataset": {"trajectories": None, "synthetic": {"maps": {"maps": 64, "size": 16}}}}
        wanted = self.undisturbed(**settings)
        job = self.job(**settings)
        process, log = self.start(job)
        self.wait_for(log, "\nstep 1")
        process.send_signal(signal.SIGTERM)
        process.wait(LONG)
        stopped = re.search(r"\nstopped at step (\d+) of 60\n", log.read_text())
        self.assertTrue(stopped, log.read_text())
        self.assertLess(int(stopped[1]), 60)
        _, output = self.train(job, "--resume", "latest")
        self.assertIn(f"at step {stopped[1]}\n", output)
        self.check_same(job.parent, wanted)

    def test_time_limit_and_held_out_loss_end_all(self):
        _, output = self.train(self.job(training={"max_steps": 10**9, "time_limit_seconds": 1}))
        self.assertIn("; ended early: ", output)
        _, output = self.train(self.job("target", training={"max_steps": 10**6, "target_loss": 1.5},
                                        evaluation={"every_steps": 20}))
        self.assertIn("; ended early: the held-out loss reached", output)

    def test_auto_measures_and_all_take_what_rank_0_found(self):
        records, output = self.train(self.job(precision={"mode": "AUTO"}), environment=compiled_job.ALLOWED)
        if processor.multiplies_bf16():
            self.assertRegex(output, r"precision: (FP32|BF16|MIXED_BF16): measured over 12 steps")
        else:
            self.assertIn("precision: FP32: nothing to choose from: ", output)
        self.assertEqual(len(records), 50)

    def test_they_fall_back_together(self):
        fp32 = self.job("fp32", training={"max_steps": 120})
        wanted, _ = self.train(fp32)
        job = self.job(training={"max_steps": 120}, checkpoint={"every_steps": 50},
                       precision={"mode": "MIXED_BF16", "fallbacks": ["FP32"],
                                  "baseline_file": str(fp32.parent / "telemetry.jsonl")},
                       rehearsals=[{"kind": "SPIKE", "at_step": 60, "steps": 60}])
        records, output = self.train(job, environment=compiled_job.ALLOWED)
        self.assertRegex(output, r"precision changes from MIXED_BF16 to FP32 .*; continues from step 50\n")
        self.assertEqual((records[-1]["step"], records[-1]["mode"]), (120, "FP32"))
        self.assertAlmostEqual(records[-1]["loss"], wanted[-1]["loss"], delta=0.1 * wanted[-1]["loss"])

    def test_their_steps_may_be_compiled(self):
        job = self.job(precision={"mode": "FP32"})
        made = compiled_job.compile_job(job, self.folder / "compiled")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        compiled, output = self.train(job, "--compiled-dir", self.folder / "compiled")
        self.assertRegex(output, r"\nstep: compiled \(package [0-9a-f]{12}\)\n")
        eager = self.job("eager", precision={"mode": "FP32"})
        self.assertLess(compiled_job.worst(compiled, self.train(eager)[0]), 1e-4)

    def test_a_no_of_one_host_is_a_no_for_all(self):
        job = self.job(precision={"mode": "MIXED_BF16"})
        # Only rank 0 may use reduced precision, as if the other rank's host had been rolled back.
        done = self.train_by('test "$RANK" = 0 && export ENABLE_FP16_TRAINING=true; exec "$@"', job)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"precision: FP32: .*ENABLE_FP16_TRAINING.* \(rank 1\)\n")
        self.assertEqual(done.stdout.count("precision: "), 1, done.stdout)
        self.assertEqual({record["mode"] for record in self.records(job)}, {"FP32"})

    def test_one_trace_is_written(self):
        job = self.job(trace={"at_step": 5, "steps": 2})
        self.train(job)
        trace, = job.parent.glob("*trace*.json")
        self.assertIn("average", trace.read_text())

    def test_what_cannot_be_is_said(self):
        rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}

        def refused(job, variables, code=2):
            done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent],
                                  capture_output=True, text=True, env={**os.environ, **variables}, timeout=LONG)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stderr

        self.assertIn("WORLD_SIZE is 2 and training.use_ddp is false: each rank would train the whole job",
                      refused(self.job(training={"use_ddp": False}), rank))
        self.assertIn("MASTER_PORT is \"x\"; accepted: 1 to 65535",
                      refused(self.job(), {**rank, "MASTER_PORT": "x"}))
        for switch in ("GENESIS_SHARED_MEMORY", "GENESIS_NCCL"):
            # The job ends long before the half hour for which a rank may be silent.
            done = self.train_by(f"""test "$RANK" = 1 && export {switch}=$'off\\n'; exec "$@" """, self.job())
            self.assertNotEqual(done.returncode, 0)
            fault = f'{switch} is "off\\n"; accepted: exactly true or false'
            self.assertIn(f"FAILURE_CAUSE_CONFIG: {fault}\n", done.stderr)
            self.assertIn(f": rank 1 failed: {fault} (", done.stderr)
        job = self.job(training={"batch_size": 10000})
        done = subprocess.run(self.command(job), capture_output=True, text=True, timeout=LONG)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("training.batch_size is 10000; accepted for this dataset: 1 to 9000, the examples that it "
                      "trains on, shared by 2 ranks", done.stderr)

    def one_of_two(self, job, rank, port, address="127.0.0.1"):
        """Starts one rank of two. The other never arrives."""
        process = subprocess.Popen([twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env={
                                       **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                       "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)})
        self.addCleanup(process.kill)
        return process

    def test_a_rank_that_waits_for_others_ends_when_it_is_asked_to(self):
        def ends(process):
            process.terminate()
            output, _ = process.communicate(timeout=LONG)
            self.assertEqual(process.returncode, 1, output)
            self.assertIn("stopped by a signal before all ranks were there", output)

        port, = slurm_cluster.free_ports(1)
        first = self.one_of_two(self.job("first"), 0, port)
        while "ranks: 2" not in first.stdout.readline():
            self.assertIsNone(first.poll())
        ends(first)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            second = self.one_of_two(self.job("second"), 1, silent.getsockname()[1])
            silent.accept()
            ends(second)

    def test_a_port_that_says_nothing_is_no_store(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            process = self.one_of_two(self.job(distributed={"timeout_seconds": 1}), 1, silent.getsockname()[1])
            output, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 6, output)
        self.assertIn("(no response within 3 s)", output)

    def test_a_port_in_use_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            process = self.one_of_two(self.job(), 0, port)
            output, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 6, output)
        self.assertIn(f"rank 0 of 2 cannot serve the ranks' store: port {port} is in use on this host, maybe by another launch; "
                      "give each launch a MASTER_PORT of its own", output)

    def test_a_second_launch_on_a_port_is_told_apart(self):
        port, = slurm_cluster.free_ports(1)
        job = self.job(training={"max_steps": 10**6})
        ranks = [self.one_of_two(job, rank, port) for rank in range(2)]
        while "started: " not in ranks[0].stdout.readline():
            self.assertIsNone(ranks[0].poll())
        late = self.one_of_two(self.job("second"), 1, port)
        output, _ = late.communicate(timeout=LONG)
        self.assertEqual(late.returncode, 6, output)
        self.assertIn("rank 1 of 2 cannot join the others: another process already has this rank; use a separate MASTER_PORT", output)
        while not ranks[0].stdout.readline().startswith("step "):
            self.assertIsNone(ranks[0].poll())

    def test_a_store_that_nobody_serves_is_one_sentence(self):
        port, = slurm_cluster.free_ports(1)
        process = self.one_of_two(self.job(distributed={"timeout_seconds": 1}), 1, port)
        output, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 6, output)
        self.assertIn(f"the ranks' store at 127.0.0.1:{port} cannot be reached; rank 0 or torchrun serves it (", output)
        self.assertNotIn("frame #", output)
        self.assertNotIn("c10d", output)

    def test_an_address_that_is_none_is_told(self):
        # A label of a host name has at most 63 letters, so no name server is queried.
        name = 64 * "a" + "\x1b[31m\n.invalid"
        process = self.one_of_two(self.job(distributed={"timeout_seconds": 1}), 1, 23456, name)
        output, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 6, output)
        shown = 64 * "a" + "\\x1b[31m\\n.invalid"
        self.assertRegex(output, rf"rank 1 of 2 cannot find the others: MASTER_ADDR is {re.escape(shown)}, which has no address on this "
                                 r"host \(.+\); accepted: the name or the address of rank 0's host")

    def test_who_is_waited_for_is_told_meanwhile(self):
        port, = slurm_cluster.free_ports(1)
        process = self.one_of_two(self.job(distributed={"timeout_seconds": 11}), 0, port)
        output, _ = process.communicate(timeout=LONG)
        self.assertEqual(process.returncode, 6, output)
        self.assertIn("\nrank 0: waiting for rank 1 of 2 for 10 s; for 11 s at most\n", output)
        self.assertIn("rank 0 of 2 cannot join the others: rank 1 never came; start WORLD_SIZE ranks", output)

    def test_one_process_may_train_such_a_job(self):
        job = self.job()
        records, _ = twin.run_worker(job, job.parent)
        self.assertEqual(len(records), 50)


if __name__ == "__main__":
    unittest.main()
