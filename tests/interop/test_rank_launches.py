"""Tests what ranks report about each other when they start, hang, end or see other files."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import unittest.mock

import numpy
import torch

import genesis

import slurm_cluster
import tiers
import twin
from rank_jobs import CANNOT, GLOO, LONG, RankJobs, ranks_of
from replay_files import replay_segment, trajectories


@tiers.nightly
class RankLaunches(RankJobs):
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

    def test_output_that_nobody_reads_any_longer_ends_no_job(self):
        job = self.job(training={"use_ddp": False})
        process = subprocess.Popen([twin.WORKER, "--spec", job, "--checkpoint-dir", job.parent], stdout=subprocess.PIPE)
        self.addCleanup(self.end, process)
        process.stdout.close()
        self.assertEqual(process.wait(LONG), 0)
        self.assertEqual(len(list(job.parent.glob("*.pt"))), 1)

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


if __name__ == "__main__":
    unittest.main()
