"""Tests the agents of examples/agents.py while the daemon and its workers are killed."""

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import genesis
import harness
import tiers

AGENTS = harness.SOURCE / "examples" / "agents.py"
KILLS = 3  # The worker is killed as often as the daemon.


@tiers.nightly
class Agents(harness.DaemonTest):
    @staticmethod
    def appended(client, name):
        return next(int(each.transitions) for each in client.datasets() if each.name == name)

    def test_agents_learn_through_kills_of_daemon_and_workers(self):
        daemon = self.start()
        agents = subprocess.Popen([sys.executable, AGENTS, "--episodes", "10"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=harness.clean_environment({"GENESIS_SERVER": daemon.grpc}))
        self.addCleanup(agents.kill)
        client = genesis.Client(daemon.grpc)
        self.addCleanup(client.close)
        job = harness.wait_for("the job", lambda: next(iter(client.jobs()), None))
        numbers, drawn, ended = [], [], threading.Event()

        def read_weights():
            for version in job.weights(interval=0.1):
                numbers.append(version.number)
                if ended.is_set():
                    return

        def compare_with_the_buffer():
            while not ended.wait(0.05):
                with contextlib.suppress(genesis.GenesisError):
                    before = job.refresh().progress.next_transition
                    drawn.append((before, self.appended(client, job.id)))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            threads = [pool.submit(read_weights), pool.submit(compare_with_the_buffer)]
            chance = random.Random()
            for kill in range(2 * KILLS):
                harness.wait_for("training", lambda: agents.poll() is not None or client.job(job.id).state == "RUNNING")
                time.sleep(chance.uniform(1, 5))
                if kill % 2:
                    daemon.kill()
                    daemon = self.start("--grpc-listen", daemon.grpc)
                else:
                    os.kill(client.job(job.id).message.worker.pid, signal.SIGKILL)
            self.assertIsNone(agents.poll(), "the agents had ended before the last kill")
            output, errors = agents.communicate()
            ended.set()
            for thread in threads:
                thread.result(harness.LONG)
        self.assertEqual(agents.returncode, 0, errors)
        returns = [float(line.split()[-1]) for line in output.splitlines()]
        self.assertEqual(len(returns), 20)
        self.assertGreater(sorted(returns)[-4], -400, returns)  # Random actions earn -1,200 on average.
        self.assertEqual(self.appended(client, job.id), 400 + 20 * 200, "each transition once")
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(len(drawn), 20)
        for number, appended in drawn:
            self.assertLessEqual(number, appended, "the job has seen transitions that are not in the buffer")


if __name__ == "__main__":
    unittest.main()
