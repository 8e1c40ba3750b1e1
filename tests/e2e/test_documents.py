"""Runs the commands in the documentation unchanged.

The blocks of a page that are marked `sh` form one script, which runs in a copy of the sources. Blocks marked `sh needs-<what>` require
something that a test machine lacks. The daemon has a network namespace of its own, so that it can use its default ports."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

DOCS = harness.SOURCE / "docs"
# Pages whose blocks are executed.
RUN = ("user_guide.md", "reported_metrics.md", "security.md", "install.md", "history.md", "http_api.md", "integrations.md", "distributed.md", "tracing.md")
# Setup for pages that assume a daemon, and a busy one. It makes a page fail if a request fails.
SERVING = """curl() { command curl --fail-with-body --silent --show-error "$@"; echo; }
mkdir -p genesis-data/datasets && cp examples/trajectories/pendulum.npz genesis-data/datasets
genesisd --data-dir genesis-data 2> genesisd.log &
until command curl -fsS http://127.0.0.1:8080/readyz; do sleep 0.2; done
"""
AT_WORK = SERVING + "genesisctl train -f examples/pendulum.yaml --job-id run-1 && genesisctl watch run-1\n"
# Requirements that are missing here (a GPU, a daemon as a service or beyond loopback, other hosts with a Prometheus), or that have their
# own tests (the bundle, a compiler for steps, a build, all tests).
NEEDS = {"gpu", "service", "tls", "fleet", "bundle", "torch", "build", "hours", "hosts", "slurm", "cluster", "grpcurl"}
BLOCK = re.compile(r"^```sh(?: needs-([a-z]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLAIN = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\./|bin/|tests/|deploy/|genesis(?:d|ctl|-worker|-rollback)\b|apt-get |cmake |curl |echo |kubectl |"
                     r"python3? |sha256sum |sqlite3 |systemctl |tar )")


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text())


class Documents(unittest.TestCase):
    def run_page(self, page, before=""):
        script = "\n".join(text for need, text in blocks(page) if not need)
        self.assertTrue(script, page)
        script = before + script
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            shutil.copytree(harness.SOURCE / "examples", pathlib.Path(folder) / "examples")
            # The trap ends all processes that are still running.
            text = "set -eu\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n" + script
            python = pathlib.Path(sys.executable).parent
            environment = harness.clean_environment(
                {"PATH": f"{harness.BIN}:{python}:{os.environ['PATH']}"})
            namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net",
                                                                         "--map-root-user"]
            done = subprocess.run(
                [*namespace, "bash", "-c", 'ip link set lo up && exec bash -c "$0"', text],
                cwd=folder, env=environment, capture_output=True, text=True, timeout=5 * harness.LONG)
        self.assertEqual(done.returncode, 0, f"{page}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def test_the_user_guide(self):
        output = self.run_page("user_guide.md")
        self.assertIn("tensors, step 3000", output)
        self.assertIn("third: training complete", output)
        self.assertIn("0 problems", output)

    def test_the_commands_of_the_security_page(self):
        self.assertIn("sha256:", self.run_page("security.md"))

    def test_the_page_of_installing(self):
        self.assertIn("sha256:", self.run_page("install.md"))

    def test_the_history_page(self):
        self.assertIn("run-1", self.run_page("history.md", AT_WORK))

    def test_the_page_of_reported_metrics(self):
        self.assertIn("reported return", self.run_page("reported_metrics.md", AT_WORK))

    def test_the_page_of_http(self):
        output = self.run_page("http_api.md", AT_WORK)
        self.assertIn('"job_id":"run-2"', output.replace(" ", "").replace('"id":', '"job_id":'))
        self.assertIn("JOB_STATE_CANCELLED", output)
        self.assertIn('"next_observation"', output)

    def test_the_page_of_traces(self):
        self.assertRegex(self.run_page("tracing.md", SERVING), r'"traceparent": ?"00-0af7651916cd43dd8448eb211c80319c-')

    def test_the_page_of_other_tools(self):
        output = self.run_page("integrations.md", SERVING)
        self.assertIn("JOB_STATE_SUCCEEDED", output)
        self.assertIn("checkpoint_written", output)

    def test_the_python_on_the_page_of_other_tools_compiles(self):
        programs = [text for kind, text in PLAIN.findall((DOCS / "integrations.md").read_text()) if kind == "python"]
        self.assertEqual(len(programs), 2)
        for program in programs:
            compile(program, "integrations.md", "exec")

    def test_the_page_of_several_ranks(self):
        output = self.run_page("distributed.md")
        self.assertIn("ranks: 2, each with batches of 128", output)
        self.assertIn("training complete: job distributed, 1000 steps", output)
        self.assertRegex(output, r"together +SUCCEEDED")
        # The job reports its steps once per second.
        self.assertRegex(output, r"(?m)^ *1 +w\S+ +cpu +[0-9]+ ")

    def test_the_batch_sizes_for_several_gpus_follow_their_rule(self):
        rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", (DOCS / "distributed.md").read_text(), re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["1", "2", "4", "8", "16", "32"])
        for gpus, batch, accumulated, effective in (map(int, row) for row in rows):
            wanted = 32 * gpus
            self.assertEqual((batch, accumulated), (256 // gpus, wanted // 256) if wanted > 256 else (32, 1))
            self.assertEqual(effective, batch * accumulated * gpus)
            self.assertEqual(effective, wanted)

    def test_every_block_is_run_or_says_what_it_needs(self):
        called = re.findall(r'run_page\("([^"]+)"', pathlib.Path(__file__).read_text())
        self.assertEqual(sorted(called), sorted(RUN))
        for page in sorted(str(each.relative_to(DOCS)) for each in DOCS.rglob("*.md")):
            for need, text in blocks(page):
                self.assertTrue(need in NEEDS if need else page in RUN, f"{page}: {text}")
            for kind, text in PLAIN.findall((DOCS / page).read_text()):
                self.assertFalse(not kind and COMMAND.match(text), f"{page}: a command that is not marked:\n{text}")

    def test_troubleshooting_has_every_cause_and_exit_code(self):
        page = (DOCS / "troubleshooting.md").read_text()
        proto = (harness.SOURCE / "proto/genesis/training/v1/job.proto").read_text()
        for cause in re.findall(r"FAILURE_CAUSE_(\w+) = [1-9]", proto):
            self.assertIn(cause, page)
        reference = (DOCS / "reference.md").read_text()
        for code in re.findall(r"^\| (\d) \| genesisd", reference, re.MULTILINE):
            self.assertRegex(page, rf"(?m)^\| {code} \|")


if __name__ == "__main__":
    unittest.main()
