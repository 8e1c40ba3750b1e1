"""Tests the clients of examples/clients against a daemon, by the commands of their page."""

import pathlib
import re
import subprocess

from tools import SOURCE, run  # Must come first, because it adds the harness to the path.
import harness

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


class CppClient(ClientTest):
    def test_it_builds_from_an_install_and_trains(self):
        prefix = self.folder / "usr"
        run("cmake", "--install", harness.BIN.parent, "--component", "dev", "--prefix", prefix)
        daemon = self.start()
        output = self.run_page("C++", daemon, CMAKE_PREFIX_PATH=str(prefix))
        self.expect_trained(daemon, output, "cpp-1")
