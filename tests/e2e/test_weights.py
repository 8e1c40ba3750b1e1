"""Tests the weights of running jobs: what readers get, and that jobs do not notice them."""

import asyncio
import base64
import contextlib
import io
import itertools
import json
import os
import pathlib
import signal
import socket
import struct
import time
import unittest
import unittest.mock
import urllib.request

import numpy
import torch
from torch import nn

import genesis
import harness
from genesis import weights
from genesis.job import Job
from genesis.training.v1 import job_pb2
from test_python_client import ALLOWED, classes
from test_remote_workers import ALONE, RemoteWorker

# Long enough that tests end it.
LONG_JOB = 1_000_000
VERSIONS_OF_ATTEMPT = 1_000_000_000


class Net(nn.Module):
    """A frozen base, a part that learns, and buffers that a forward pass changes."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(5, 64).requires_grad_(False)
        self.learns = nn.Sequential(nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 3))

    def forward(self, x):
        return self.learns(self.base(x))


class WeightsTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start(environment=ALLOWED)
        self.client = self.client_of(self.daemon.grpc)

    def client_of(self, server):
        client = genesis.Client(server)
        self.addCleanup(client.close)
        return client

    def train(self, steps, module=None, data=None, **options):
        return self.client.train(module or Net(), data or classes(), loss="cross_entropy", max_steps=steps, batch_size=50, **options)

    def weights(self, job, **options):
        versions = job.weights(**{"interval": 0, **options})
        self.addCleanup(versions.close)
        return versions

    def through_content(self):
        """Makes clients read versions over the connection, as from another host."""
        patch = unittest.mock.patch.object(weights, "is_local", lambda server: False)
        patch.start()
        self.addCleanup(patch.stop)

    def messages(self, job, **fields):
        """Starts a stream without a client that reads ahead."""
        connection = self.client.connection
        stream = connection.stream("WatchWeights", connection.request("WatchWeights", job_id=job.id, interval_seconds=0.0, **fields))
        self.addCleanup(stream.cancel)
        return stream

    def reach(self, job, step):
        harness.wait_for(f"step {step}", lambda: job.refresh().progress.step >= step)

    def assert_same(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value) and found[name].dtype == value.dtype, name)


class Versions(WeightsTest):
    def check_against_checkpoints(self, round_to=torch.float32, ranks=1, **options):
        job = self.train(150, ranks=ranks, spec={"checkpoint": {"every_steps": 1, "keep_last": 1000}, "training": {"ema_decay": 0.9}})
        versions = list(self.weights(job, **options))
        saved = {each.step: each for each in job.checkpoints()}
        self.assertGreater(len(versions), 3)
        for version in [*versions[:-1:max(1, len(versions) // 8)], versions[-1]]:
            if version.step == 0:
                continue
            content = saved[version.step].load()
            expected = content["model_state_dict"]
            if options.get("average"):
                expected = {**expected, **content["ema_state_dict"]}
            self.assert_same(version.tensors(), {name: value.to(round_to) if value.dtype == torch.float32 else value
                                                 for name, value in expected.items()})
        self.assertEqual(versions[-1].step, 150)
        numbers = [version.number for version in versions]
        self.assertEqual(numbers, sorted(set(numbers)))
        return versions

    def test_they_are_those_of_the_checkpoint_of_their_step(self):
        last = self.check_against_checkpoints()[-1]
        module = Net()
        last.load_into(module)
        self.assert_same(module.state_dict(), last.tensors())
        for name, value in last.arrays().items():
            self.assertTrue(numpy.array_equal(value, last.tensors()[name].numpy()), name)

    def test_over_the_network_too(self):
        self.through_content()
        self.check_against_checkpoints()

    def test_bf16_is_rounded_as_torch_rounds(self):
        version = self.check_against_checkpoints(torch.bfloat16, format="BF16")[-1]
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "numpy has no BF16; use tensors"):
            version.arrays()
        module = Net()
        version.load_into(module)
        self.assertEqual(module.base.weight.dtype, torch.float32)

    def test_the_moving_average(self):
        self.check_against_checkpoints(average=True)

    def test_of_two_ranks_that_share_their_weights(self):
        self.daemon.stop()
        self.daemon = self.start("--workers-slots", "2")
        self.client = self.client_of(self.daemon.grpc)
        self.check_against_checkpoints(ranks=2)

    def test_frozen_tensors_are_left_out_once_the_reader_has_them(self):
        job = self.train(LONG_JOB)
        records = []
        for message in self.messages(job):
            if message.HasField("version"):
                records.append(message.version)
                if len(records) == 3:
                    break
        self.assertEqual(list(records[0].unchanged), [])
        for record in records[1:]:
            self.assertEqual(sorted(record.unchanged), ["base.bias", "base.weight"])
            self.assertLess(record.size_bytes, records[0].size_bytes - 4 * 5 * 64)
        self.through_content()
        for version in itertools.islice(self.weights(job), 3):
            self.assertEqual(version.tensors().keys(), Net().state_dict().keys())
        job.cancel(now=True)

    def test_losses_are_the_same_to_the_bit_with_and_without_readers(self):
        module, data, losses = Net(), classes(), []
        for read in (False, True):
            job = self.train(400, module, data, spec={"training": {"seed": 5}})
            if read:
                self.assertGreater(len(list(self.weights(job))), 3)
            losses.append(job.watch(progress=False).curves("loss", points=10000)["loss"])
        self.assertEqual(len(losses[0]), 400)
        self.assertEqual(losses[0], losses[1])

    def test_a_module_that_does_not_fit_is_not_changed(self):
        version = next(self.weights(self.train(20)))
        for module, text in ((nn.Linear(5, 64), "base.bias is in the job only.*; and 6 more; accepted: a module with the same names and shapes"),
                             (nn.ModuleDict({"base": nn.Linear(6, 64), "learns": Net().learns}),
                              r"base.weight is \[64, 6\] in the module and \[64, 5\] in the job")):
            before = {name: value.clone() for name, value in module.state_dict().items()}
            with self.assertRaisesRegex(genesis.InvalidArgumentError, text):
                version.load_into(module)
            self.assert_same(module.state_dict(), before)

    def test_the_page(self):
        page = (harness.SOURCE / "docs" / "python_client.md").read_text().split("## Weights while a job trains")[1]
        job, module = self.train(60), Net()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(page.split("```python\n")[1].split("```")[0], {"job": job, "module": module})
        self.assertEqual(printed.getvalue().splitlines()[-1].split()[0], "60")
        self.assert_same(module.state_dict(), job.refresh().checkpoint().model_state_dict)

    def test_with_asyncio(self):
        async def read():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                job = await client.train(Net(), classes(), loss="cross_entropy", max_steps=60, batch_size=50)
                return [version.step async for version in job.weights(interval=0)]

        self.assertEqual(asyncio.run(read())[-1], 60)


class Streams(WeightsTest):
    def test_a_slow_reader_skips_versions(self):
        job = self.train(LONG_JOB, nn.Sequential(nn.Linear(5, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 3)))
        first = next(versions := self.weights(job))
        stream = (message.version for message in self.messages(job) if message.HasField("version"))
        records = [next(stream)]
        self.reach(job, records[0].step + 200)
        # The connection holds old ones; the newest follows them.
        records += itertools.islice(stream, 12)
        numbers = [record.number for record in records]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(numbers[-1] - numbers[0], len(numbers) + 20)
        # The client reads ahead, and its caller gets the newest.
        second = next(versions)
        self.assertGreater(second.number, numbers[0])
        self.assertGreater(second.step, first.step + 100)
        job.cancel(now=True)

    def test_nothing_is_published_without_a_reader(self):
        job = self.train(LONG_JOB)
        with job.weights(interval=0) as versions:
            before = next(versions)
        self.reach(job, before.step + 1000)
        after = next(self.weights(job))
        self.assertGreaterEqual(after.step, before.step + 1000)
        self.assertLess(after.number - before.number, 500)
        job.cancel(now=True)

    def test_steps_that_change_no_weight_make_no_version(self):
        job = self.train(500, nn.Linear(5, 3), schedule={0: 0.0, 400: 0.0, 500: 1.0})
        steps = [version.step for version in self.weights(job)]
        self.assertLessEqual(sum(step <= 400 for step in steps), 1, steps)
        self.assertEqual(steps[-1], 500)

    def test_the_interval_spaces_versions(self):
        job = self.train(LONG_JOB)
        all_of_them = self.weights(job)
        next(all_of_them)
        spaced = self.weights(job, interval=0.4)
        begin, numbers = time.monotonic(), [next(spaced).number for _ in range(4)]
        self.assertGreater(time.monotonic() - begin, 3 * 0.4 - 0.1)
        self.assertGreater(numbers[-1] - numbers[0], 20, "the other reader gets those between")
        job.cancel(now=True)

    def test_numbers_grow_when_worker_and_daemon_are_killed(self):
        job = self.train(LONG_JOB, spec={"checkpoint": {"every_steps": 100}})
        versions, numbers = self.weights(job), []

        def read_until(done):
            for version in versions:
                numbers.append(version.number)
                if done(version):
                    return version

        last = read_until(lambda version: version.step >= 250)
        os.kill(self.client.workers().workers[0].pid, signal.SIGKILL)
        attempt = last.number // VERSIONS_OF_ATTEMPT
        again = read_until(lambda version: version.number // VERSIONS_OF_ATTEMPT > attempt)
        self.assertGreaterEqual(again.step, 200)
        self.daemon.kill()
        newest = numbers[-1]
        self.daemon = self.start("--grpc-listen", self.daemon.grpc, environment=ALLOWED)
        harness.wait_for("the worker", lambda: "is back with job" in self.daemon.log())
        self.reach(job, job.refresh().progress.step + 10)
        after = read_until(lambda version: version.step > again.step and version.number > newest + 2)
        self.assertEqual(after.number // VERSIONS_OF_ATTEMPT, again.number // VERSIONS_OF_ATTEMPT, "the worker trained on")
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(next(self.weights(job, since=after.number)).number, after.number)
        job.cancel(now=True)

    def test_a_pause_is_waited_for_and_a_cancelled_job_ends_with_its_last_weights(self):
        job = self.train(LONG_JOB)
        versions = self.weights(job)
        first = next(versions)
        job.pause()
        harness.wait_for("the pause", lambda: job.refresh().state == "PAUSED")
        paused = job.message.latest_checkpoint.step
        version = next(each for each in versions if each.step >= paused)
        self.assertEqual(version.step, paused)
        job.resume()
        self.assertGreater(next(versions).number // VERSIONS_OF_ATTEMPT, first.number // VERSIONS_OF_ATTEMPT)
        job.cancel()
        *_, last = versions
        harness.wait_for("the end", lambda: job.refresh().ended)
        self.assert_same(last.tensors(), job.checkpoint().model_state_dict)

    def test_lines_of_json_over_http(self):
        job = self.train(LONG_JOB)
        with urllib.request.urlopen(f"http://{self.daemon.http}/v1/jobs/{job.id}/weights:watch?interval_seconds=0", timeout=harness.LONG) as stream:
            self.assertEqual(stream.headers["Content-Type"], "application/x-ndjson")
            message = json.loads(stream.readline())
            content = base64.b64decode(message["content"])
        self.assertEqual(int(message["version"]["size_bytes"]), len(content))
        self.assertEqual(weights._tensors_of(memoryview(content)).keys(), Net().state_dict().keys())
        job.cancel(now=True)


class Refusals(WeightsTest):
    def refused(self, error, text, job, **options):
        with self.assertRaisesRegex(error, text):
            next(self.weights(job, **options))

    def test_what_is_not_accepted(self):
        self.refused(genesis.NotFoundError, 'there is no job "none"', Job(self.client.connection, job_pb2.Job(id="none")))
        job = self.train(LONG_JOB)
        self.refused(genesis.InvalidArgumentError, "interval_seconds is -1; accepted: 0 to 86400", job, interval=-1)
        self.refused(genesis.InvalidArgumentError, "average is true; accepted: false, because the job has no training.ema_decay", job, average=True)
        self.refused(genesis.InvalidArgumentError, "since is -5; accepted: 0 or more", job, since=-5)
        self.refused(genesis.InvalidArgumentError, "format is 'FP64'; accepted: FP32, BF16", job, format="FP64")
        self.refused(genesis.OutOfRangeError, "of attempt 77; job .* has made [01]; accepted", job, since=77 * VERSIONS_OF_ATTEMPT)
        job.cancel(now=True)
        harness.wait_for("the end", lambda: job.refresh().ended)
        self.refused(genesis.FailedPreconditionError, "has ended as CANCELLED and publishes no more weights; it has no checkpoint", job)

    def test_a_job_that_has_ended_names_its_checkpoint(self):
        job = self.train(5).watch(progress=False)
        self.refused(genesis.FailedPreconditionError, f"load its checkpoint {job.checkpoint().id} .*model_state_dict", job)

    def test_the_watches_of_one_caller_are_bounded(self):
        job = self.train(LONG_JOB)
        connection = self.client.connection
        streams = [connection.stream("WatchJob", connection.request("WatchJob", job_id=job.id)) for _ in range(512)]
        for stream in streams:
            next(stream)
        self.refused(genesis.ResourceExhaustedError, '512 watches of "anonymous" are open; accepted: at most 512', job)
        for stream in streams:
            stream.cancel()
        harness.wait_for("a free place", lambda: self.first_or_none(job))
        job.cancel(now=True)

    def first_or_none(self, job):
        with contextlib.suppress(genesis.ResourceExhaustedError):
            return next(self.weights(job))

    def test_memory_that_may_change_is_refused(self):
        path = str(pathlib.Path(self.data_dir, "run", "memory.sock"))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        memory = os.memfd_create("weights", os.MFD_ALLOW_SEALING)
        os.write(memory, b"1234")
        for message, descriptors, text in ((b"", [memory], b"is not sealed; accepted"), (b"unknown key", [], b"")):
            with socket.socket(socket.AF_UNIX) as daemon:
                daemon.settimeout(harness.LONG)
                daemon.connect(path)
                socket.send_fds(daemon, [struct.pack("<I", len(message)) + message], descriptors)
                answer, received, _, _ = socket.recv_fds(daemon, 4096, 1)
            self.assertIn(text, answer)
            self.assertEqual(received, [])
        os.close(memory)


class RemoteWorkers(WeightsTest):
    def test_a_worker_of_another_host_sends_its_weights(self):
        self.daemon.stop()
        self.daemon = self.start(*ALONE)
        self.client = self.client_of(self.daemon.grpc)
        worker = RemoteWorker(self.daemon, self.data_dir)
        self.addCleanup(worker.process.kill)
        # More than one piece.
        job = self.train(40, nn.Sequential(nn.Linear(5, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 3)))
        *_, last = self.weights(job)
        self.assert_same(last.tensors(), job.refresh().checkpoint().model_state_dict)
        self.assertEqual(worker.wait(), 0, worker.log())


if __name__ == "__main__":
    unittest.main()
