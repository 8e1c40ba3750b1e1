"""The commands of the documents, as they stand there. Blocks marked `sh` of a page are one script, run from
the root of the sources in a copy; those marked `sh needs-<what>` want what a machine for tests lacks.
A network namespace of its own lets the daemon have its usual ports."""

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
# Pages whose blocks are run.
RUN = ("user_guide.md", "security.md", "remote_workers.md")
# What a block may want that is not here: a GPU, a daemon installed as a service, one beyond loopback.
NEEDS = {"gpu", "service", "tls"}
BLOCK = re.compile(r"^```sh(?: needs-([a-z]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text())


class Documents(unittest.TestCase):
    def run_page(self, page):
        script = "\n".join(text for need, text in blocks(page) if not need)
        self.assertTrue(script, page)
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            shutil.copytree(harness.SOURCE / "examples", pathlib.Path(folder) / "examples")
            # Whatever still runs at the end is ended.
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

    def test_every_block_is_run_or_says_what_it_needs(self):
        for page in sorted(each.name for each in DOCS.glob("*.md")):
            for need, text in blocks(page):
                self.assertTrue(need in NEEDS if need else page in RUN, f"{page}: {text}")

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
