"""Cases of several ranks whose gradients NCCL adds up. They share one GPU, so their speed is not measured."""

import json
import os
import signal
import socket
import subprocess
import time
import unittest

import jobs
import machine
from machine import ON_CUDA, Case, needs_cuda

# Gradients are summed in another order.
TOLERANCE = 1e-3 if ON_CUDA else 1e-5
WAY = "by NCCL" if ON_CUDA else "by shared memory"


class TwoRanks(Case):
    def job(self, steps=60, **distributed):
        job = jobs.world_model(steps=steps, batch=128)
        job["training"]["use_ddp"] = True
        job["distributed"] = distributed
        return job

    def alone(self, mode):
        job = jobs.world_model(steps=60, batch=256)
        return self.train(job, mode, name=f"alone {mode}").losses

    def together(self, mode, *flags, name="together", variables=None, **distributed):
        run = machine.Run(self.job(**distributed), self.folder / name, mode, *flags, ranks=2,
                          variables=variables)
        self.assertEqual(run.code, 0, run.output)
        self.assertIn("ranks: 2, each with batches of 128", run.output)
        return run

    def assert_alike(self, losses, wanted, tolerance, what):
        self.assertEqual(len(losses), len(wanted))
        worst = max(abs(a - b) / b for a, b in zip(losses, wanted))
        self.figure(f"largest relative difference of a loss, {what}", float(f"{worst:.2g}"))
        self.assertLess(worst, tolerance)


class Ranks(TwoRanks):
    """Two ranks of torchrun train like one process with the batches of both."""

    def test_two_ranks_train_as_one_process(self):
        for mode in ("FP32", "MIXED_BF16", "MIXED_FP16"):
            if mode == "FP32" or machine.has_tensor_cores():
                with self.subTest(mode):
                    run = self.together(mode, name=mode)
                    self.assertIn(WAY, run.output)
                    self.assert_alike(run.losses, self.alone(mode),
                                      TOLERANCE if mode == "FP32" else 3e-2, mode)

    def test_options_of_the_exchange(self):
        wanted = self.together("FP32", name="plain").losses
        sharded = self.together("FP32", name="sharded", shard_optimizer_state=True)
        self.assertIn("optimizer in shards" if ON_CUDA else "one copy", sharded.output)
        self.assert_alike(sharded.losses, wanted, 1e-6, "optimizer in shards")
        self.assert_alike(self.together("FP32", name="bf16", gradient_compression="BF16",
                                        use_error_feedback=True).losses, wanted, 3e-2,
                          "gradients compressed to BF16")
        checked = self.together("FP32", name="checked", weight_check_every_steps=10)
        self.assert_alike(checked.losses, wanted, 1e-6, "weights compared every 10 steps")

    def test_what_goes_through_the_host_trains_alike(self):
        wanted = self.together("FP32", name="nccl").losses
        run = self.together("FP32", name="switch", variables={"GENESIS_NCCL": "false"})
        if ON_CUDA:
            self.assertIn("shared memory and memory of the host, because rank 0 has no NCCL: "
                          "GENESIS_NCCL is false", run.output)
        self.assert_alike(run.losses, wanted, TOLERANCE, "through memory of the host")

    @needs_cuda
    def test_a_step_waits_for_the_device_no_more_than_that_of_one_process(self):
        def waits(run, folder):
            self.assertEqual(run.code, 0, run.output)
            (path,) = folder.glob("*-trace-step-10.json")
            names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
            self.assertIn("cudaLaunchKernel", names)
            return sum(name in ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
                       for name in names)

        job = self.job()
        job["trace"] = {"at_step": 10, "steps": 2}
        ranks = machine.Run(job, self.folder / "together", "FP32", ranks=2)
        job["training"]["use_ddp"] = False
        alone = machine.Run(job, self.folder / "alone", "FP32")
        found = waits(ranks, self.folder / "together"), waits(alone, self.folder / "alone")
        self.figure("waits for the device in two traced steps", f"{found[0]} of two ranks, {found[1]} alone")
        self.assertLessEqual(found[0], found[1])


class CapturedRanks(TwoRanks):
    """The same steps run as one CUDA graph that includes the collectives."""

    @needs_cuda
    def test_captured_steps_lose_as_eager_ones(self):
        for mode in ("FP32", "MIXED_FP16"):
            with self.subTest(mode):
                eager = self.together(mode, name=f"{mode} eager").losses
                captured = self.together(mode, "--cuda-graphs", name=f"{mode} captured")
                self.assertIn("step: captured in step 4, replayed from then on", captured.output)
                self.assert_alike(captured.losses, eager, 1e-3, f"captured, {mode}")
        sharded = self.together("FP32", "--cuda-graphs", name="sharded", shard_optimizer_state=True)
        self.assertIn("step: captured in step 4, replayed from then on", sharded.output)

    @needs_cuda
    def test_one_gpu_for_two_ranks_is_refused_by_nccl_and_goes_through_the_host(self):
        run = self.together("FP32", variables={"NCCL_HOSTID": "one"})
        self.assertIn("memory of the host, because rank 0 cannot use NCCL: ", run.output)
        self.assertIn("Duplicate GPU", run.output)


class LostRanks(Case):
    """A rank is lost while the GPU of the other one waits for it."""

    def start(self, timeout, flags):
        """Starts two ranks without a launcher, which would end the remaining rank. Returns them."""
        job = jobs.large_transformer() if ON_CUDA else jobs.small_transformer()
        job["training"] |= {"use_ddp": True, "max_steps": 100000, "batch_size": 8}
        job["distributed"] = {"timeout_seconds": timeout}
        (self.folder / "job.yaml").write_text(json.dumps(job))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                           "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command = [machine.WORKER, "--spec", self.folder / "job.yaml", "--checkpoint-dir", self.folder,
                       "--telemetry", self.folder / f"steps{rank}", "--threads", "1", *flags]
            with open(self.folder / f"log{rank}", "w") as log:
                ranks.append(subprocess.Popen(list(map(str, machine.on_one_gpu(command))), env=environment,
                                              stdout=log, stderr=subprocess.STDOUT))
            self.addCleanup(ranks[-1].wait)
            self.addCleanup(ranks[-1].kill)
        deadline = time.monotonic() + machine.LONG
        steps = self.folder / "steps0"
        while not steps.exists() or steps.read_text().count("\n") < 20:
            self.assertIsNone(ranks[0].poll(), (self.folder / "log0").read_text())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        return ranks

    def lose(self, timeout, fault, *flags):
        ranks = self.start(timeout, flags)
        ranks[1].send_signal(fault)
        begin = time.monotonic()
        code = ranks[0].wait(machine.LONG)
        seconds = time.monotonic() - begin
        output = (self.folder / "log0").read_text()
        self.assertEqual(code, 6, output)
        self.assertIn("FAILURE_CAUSE_WORKER_EXIT: rank 0 of 2 cannot ", output)
        self.assertIn("rank 1 does not answer" if ON_CUDA else "rank 1 has ", output)
        if ON_CUDA:
            self.assertIn("by NCCL", output)
        self.figure("seconds until the other rank failed", round(seconds, 1))
        self.figure("message", output.strip().splitlines()[-1])

    def test_a_killed_rank_is_named_at_once(self):
        self.lose(600, signal.SIGKILL)

    def test_a_stopped_rank_is_named_after_the_timeout(self):
        self.lose(5, signal.SIGSTOP)

    @needs_cuda
    def test_a_rank_that_is_killed_in_captured_steps_is_named_at_once(self):
        self.lose(600, signal.SIGKILL, "--cuda-graphs")

    @needs_cuda
    def test_a_rank_that_is_stopped_in_captured_steps_is_named_after_the_timeout(self):
        self.lose(5, signal.SIGSTOP, "--cuda-graphs")


class Distributed(Case):
    """Ranks with a GPU each."""

    @unittest.skipIf(ON_CUDA and machine.torch.cuda.device_count() < 2, "two ranks need two GPUs")
    def test_multi_gpu_ddp_initialization(self):
        job = jobs.world_model(steps=100, batch=256)
        alone = self.train(job, "FP32", name="alone")
        job["training"] |= {"batch_size": 128, "use_ddp": True}
        together = machine.Run(job, self.folder / "together", "FP32", ranks=2, share=False)
        self.assertEqual(together.code, 0, together.output)
        self.assertIn(WAY, together.output)
        worst = max(abs(a - b) / b for a, b in zip(together.losses, alone.losses))
        self.figure("largest difference of a loss from one process with both batches", f"{worst:.1e}")
        self.assertLess(worst, TOLERANCE)
