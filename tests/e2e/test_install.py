"""Tests that cmake --install creates a prefix that works on its own."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from harness import LONG, SOURCE, clean_environment

BUILD = pathlib.Path(os.environ["GENESIS_BIN"]).parent


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="genesis-")
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.prefix], check=True,
                       stdout=subprocess.DEVNULL)

    def run_installed(self, program, *arguments):
        return subprocess.run([self.prefix / "bin" / program, *arguments], check=True, text=True,
                              capture_output=True, timeout=LONG, env=clean_environment()).stdout

    def test_each_program_starts_and_tells_the_one_version(self):
        project = (SOURCE / "CMakeLists.txt").read_text()
        version = re.search(r"project\(genesis VERSION ([0-9.]+)", project).group(1)
        for program in ("genesisd", "genesis-worker", "genesisctl"):
            self.assertEqual(self.run_installed(program, "--version"), f"{program} {version}\n")

    def test_the_daemon_takes_the_worker_beside_it(self):
        self.assertIn(f"workers.program = {self.prefix}/bin/genesis-worker",
                      self.run_installed("genesisd", "--check-config"))

    def test_the_prefix_holds_programs_protocol_and_scripts_only(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                 if path.is_file()}
        protos = [path.relative_to(SOURCE) for folder in ("genesis", "google") for path in (SOURCE / "proto" / folder).rglob("*.proto")]
        python = SOURCE / "trainer" / "compiled" / "python"
        headers = SOURCE / "client" / "include"
        # These are built only if CUDA's headers exist.
        plug_ins = {f"bin/{path.name}" for path in (BUILD / "bin").glob("libgenesis_*.so")}
        self.assertEqual(files, plug_ins | {
            "bin/genesisd", "bin/genesis-worker", "bin/genesisctl", "share/doc/genesis/README.md",
            "share/cmake/genesis/genesisConfig.cmake", "share/cmake/genesis/genesisConfigVersion.cmake",
            *(f"share/genesis/{path}" for path in protos),
            *(f"include/{path.relative_to(headers)}" for path in headers.rglob("*.h")),
            *(f"share/genesis/compile/{path.relative_to(python)}" for path in python.rglob("*.py"))})


if __name__ == "__main__":
    unittest.main()
