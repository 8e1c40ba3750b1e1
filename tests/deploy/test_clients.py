"""Tests the clients of examples/clients against a daemon, by the commands of their page."""

import array
import json
import math
import os
import pathlib
import re
import subprocess
import sys

from tools import SOURCE, TOOLS, run  # Must come first, because it adds the harness to the path.
import harness
import tiers

PAGE = SOURCE / "examples" / "clients" / "README.md"


def commands(heading):
    """Returns the commands below a heading of the page."""
    return re.search(rf"^## {re.escape(heading)}\n.*?^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]


class ClientTest(harness.DaemonTest):
    """A test in a folder that looks like a checkout to the commands of the page."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.data_dir, "checkout")
        self.folder.mkdir()
        for name in ("docs", "examples", "proto"):
            (self.folder / name).symlink_to(SOURCE / name)

    def run_page(self, heading, daemon, **environment):
        """Runs the commands with the address of the daemon. Returns their output."""
        script = commands(heading).replace("localhost:50051", daemon.grpc)
        done = subprocess.run(["bash", "-euc", script], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=harness.LONG, env=harness.clean_environment(environment))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def expect_trained(self, daemon, output, job_id):
        job = daemon.job(job_id)
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED")
        loss, checkpoint = re.search(r"^held-out loss (\S+), checkpoint (\S+)$", output, re.MULTILINE).groups()
        self.assertAlmostEqual(float(loss), job["evaluation"]["loss"], delta=0.01 * job["evaluation"]["loss"])
        self.assertEqual(checkpoint, f"{job_id}-step-300")


class GoClient(ClientTest):
    def test_it_trains(self):
        daemon = self.start()
        output = self.run_page("Go", daemon)
        self.expect_trained(daemon, output, "go-1")
        self.assertIn("checkpoint at step 100, ", output)
        self.assertRegex(output, "(?m)^JOB_STATE_SUCCEEDED: ")


@tiers.nightly
class CppClient(ClientTest):
    @staticmethod
    def tensors_of(file):
        """Returns the number of tensors of a .safetensors file, and the norm of the float32 ones."""
        content = file.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        header.pop("__metadata__", None)
        values = array.array("f")
        for entry in header.values():
            begin, end = entry["data_offsets"]
            values.frombytes(content[8 + length + begin:8 + length + end] if entry["dtype"] == "F32" else b"")
        return len(header), math.hypot(*values)

    def test_it_builds_from_an_install_and_trains(self):
        prefix = self.folder / "usr"
        run("cmake", "--install", harness.BIN.parent, "--component", "dev", "--prefix", prefix)
        daemon = self.start()
        output = self.run_page("C++", daemon, CMAKE_PREFIX_PATH=str(prefix))
        self.expect_trained(daemon, output, "cpp-1")
        # So small a rate changes the weights only little.
        learner = {**harness.spec(max_steps=10**9), "optimizer": {"learning_rate": 1e-8, "weight_decay": 0}}
        daemon.train("learner", learner)
        daemon.wait_for_step("learner", 1)
        file = self.folder / "weights.safetensors"
        run(harness.BIN / "genesis-worker", "--export", daemon.ctl("checkpoint", "learner", "--name", "kept")["path"], "--to", file)
        count, norm = self.tensors_of(file)
        actor = f"{self.folder}/cpp-client/actor {daemon.grpc} learner"
        harness.need_namespaces()
        # A reader in a container, which cannot open the socket, gets the bytes.
        for command in (actor, f"unshare --mount sh -c 'mount -t tmpfs none {self.data_dir}/run && exec {actor}'"):
            lines = [re.fullmatch(r"version (\d+), step (\d+): (\d+) tensors, norm (\S+)", line).groups() for line in run("sh", "-c", command).stdout.splitlines()]
            self.assertEqual(len(lines), 3)
            numbers = [int(number) for number, _, _, _ in lines]
            self.assertEqual(numbers, sorted(set(numbers)))
            for _, _, tensors, value in lines:
                self.assertEqual(int(tensors), count)
                self.assertAlmostEqual(float(value), norm, delta=1e-4 * norm)


class GeneratedClient(ClientTest):
    """A Python package that openapi-python-client generates from docs/openapi.json."""

    # In a separate process, because it is imported from the folder.
    PROGRAM = """
import json, sys
from genesis_trainer_client import Client
from genesis_trainer_client.api.daemon import get_server_info
from genesis_trainer_client.api.datasets import append_trajectories
from genesis_trainer_client.api.events import list_events
from genesis_trainer_client.api.jobs import list_jobs, train
from genesis_trainer_client.models import AppendTrajectoriesRequest, TrainRequest
client = Client(base_url=sys.argv[1])
print(get_server_info.sync(client=client).version)
spec = json.load(sys.stdin)
print(train.sync(client=client, body=TrainRequest.from_dict({"job_id": "api-1", "spec": spec})).job.id)
print([job.id for job in list_jobs.sync(client=client, page_size=10).jobs])
print({event.job_id for event in list_events.sync(client=client, filter_job_id="api-1", wait_seconds=30).events})
batch = AppendTrajectoriesRequest(batch_id="b1", observation_size=2, action_size=1, observations=[1, 2], actions=[0],
                                  next_observations=[2, 3], rewards=[1])
print(append_trajectories.sync("shop", client=client, body=batch).appended_transitions)
"""

    def test_it_is_generated_without_warnings_and_calls(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))
        # The generator calls ruff.
        output = self.run_page("Generated from OpenAPI", daemon, PATH=f"{TOOLS}:{os.environ['PATH']}")
        self.assertNotIn("warning", output.lower())
        done = run(sys.executable, "-c", self.PROGRAM, f"http://{daemon.http}", cwd=self.folder / "genesis-trainer-client",
                   text=json.dumps(harness.PENDULUM))
        version = re.search(r"project\(genesis VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertEqual(done.stdout.split("\n")[:-1], [version, "api-1", "['api-1']", "{'api-1'}", "1"])
