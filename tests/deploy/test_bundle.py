"""Tests that the archive of deploy/bundle.sh works where nothing of the build machine exists."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import BIN, SOURCE, wait_for  # noqa: E402

BUILD = BIN.parent
LONG = 300
# Everything that a program may use from the machine except torch, as listed in docs/install.md.
GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|util|pthread|resolv))\.so[.0-9]*$")
GCC = re.compile(r"lib(stdc\+\+|gcc_s)\.so[.0-9]*$")


def torch_folder():
    return pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="genesis-"))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.archive = cls.work / "made" / "bundle.tar.gz"
        cls.make(cls.archive)
        # The archive is unpacked and then moved, because no file may depend on its path.
        (cls.work / "unpacked").mkdir()
        subprocess.run(["tar", "xzf", cls.archive], cwd=cls.work / "unpacked", check=True)
        cls.root = cls.work / "moved to a path with spaces" / "bundle"
        cls.root.parent.mkdir()
        (cls.work / "unpacked" / "genesis-bundle").rename(cls.root)

    @staticmethod
    def make(archive):
        done = subprocess.run([SOURCE / "deploy" / "bundle.sh", "--build-dir", BUILD, "--output",
                               archive], capture_output=True, text=True, timeout=LONG)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def run_program(self, name, *arguments, environment=None, code=0):
        # The environment has no LD_LIBRARY_PATH, HOME or GENESIS_* of the caller.
        clean = {"PATH": "/usr/bin:/bin", "GENESIS_PYTHON": sys.executable}
        done = subprocess.run([self.root / name, *arguments], capture_output=True, text=True,
                              timeout=LONG, env={**clean, **(environment or {})}, cwd=self.work)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_every_file_is_as_the_sums_say_and_the_archive_is_small(self):
        subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=self.root, check=True)
        listed = {line.split("  ", 1)[1].removeprefix("./")
                  for line in (self.root / "SHA256SUMS").read_text().splitlines()}
        there = {str(path.relative_to(self.root)) for path in self.root.rglob("*")
                 if path.is_file()}
        self.assertEqual(listed | {"SHA256SUMS"}, there)
        self.assertLess(self.archive.stat().st_size, 64 * 2**20)

    def test_the_same_build_gives_the_same_archive(self):
        again = self.work / "again.tar.gz"
        self.make(again)
        self.assertEqual(again.read_bytes(), self.archive.read_bytes())

    def test_libraries_come_from_bundle_torch_and_glibc_only(self):
        torch = torch_folder()
        folders = (str(self.root.resolve()), str(torch), str(torch.parent / "nvidia"))
        environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH":
                       f"{self.root}/lib:{torch}/lib"}
        programs = [*self.root.glob("libexec/torch/*"), *self.root.glob("libexec/genesis[dc]*")]
        self.assertGreater(len(programs), 8)
        for program in [*programs, *self.root.glob("lib/*.so*")]:
            listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True,
                                     env=environment).stdout
            self.assertNotIn("not found", listing, program)
            found = re.findall(r"^\s*(\S+) => (/.*) \(0x", listing, re.MULTILINE)
            # A line without "=>" is the kernel's library, the loader, or "statically linked".
            self.assertEqual(len(found), listing.count("=>"), listing)
            for name, path in found:
                if GLIBC.match(name) or GCC.match(name):
                    continue
                real = str(pathlib.Path(path).resolve())
                self.assertTrue(real.startswith(folders), f"{program} takes {path}")

    def test_no_program_remembers_where_torch_was(self):
        for program in self.root.glob("libexec/torch/*"):
            dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True,
                                     check=True).stdout
            paths = re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic)
            # A plug-in uses the libraries that the worker has loaded.
            self.assertEqual(paths, [] if program.suffix == ".so" else ["$ORIGIN/../../lib"], program)

    def test_a_worker_trains_an_example(self):
        job = self.root / "examples" / "pendulum.yaml"
        short = self.work / "short.yaml"
        short.write_text(job.read_text().replace("max_steps: 3000", "max_steps: 200")
                         .replace("pendulum.npz", f"{self.root}/examples/trajectories/pendulum.npz"))
        output = self.run_program("bin/genesis-worker", "--spec", short, "--checkpoint-dir",
                                  self.work / "checkpoints")
        self.assertIn("training complete: job short, 200 steps", output)

    def test_a_daemon_starts_workers_of_the_bundle_and_trains(self):
        data = self.work / "data"
        (data / "datasets").mkdir(parents=True)
        shutil.copy(self.root / "examples" / "trajectories" / "pendulum.npz", data / "datasets")
        environment = {"PATH": "/usr/bin:/bin", "GENESIS_PYTHON": sys.executable}
        with open(self.work / "daemon.log", "wb") as log:
            daemon = subprocess.Popen(
                [self.root / "bin" / "genesisd", "--data-dir", data, "--grpc-listen", "127.0.0.1:0",
                 "--http-listen", "127.0.0.1:0"], env=environment, stderr=log)
        try:
            endpoints = data / "run" / "endpoints"
            wait_for("the daemon", endpoints.exists)
            server = re.search("^grpc: (.*)$", endpoints.read_text(), re.MULTILINE).group(1)
            job = self.work / "job.yaml"
            job.write_text(json.dumps({
                "model": {"world_model": {"hidden_size": 16, "latent_size": 8}},
                "dataset": {"trajectories": {"path": "pendulum.npz"}},
                "training": {"max_steps": 50, "batch_size": 32}}))
            self.run_program("bin/genesisctl", "--server", server, "train", "-f", job, "--job-id",
                             "one")
            self.assertIn("SUCCEEDED", self.run_program("bin/genesisctl", "--server", server,
                                                        "watch", "one"))
            workers = pathlib.Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
            for pid in workers.split():
                program = os.readlink(f"/proc/{pid}/exe")
                self.assertTrue(program.startswith(str(self.root.resolve())) or
                                "python" in program or "sh" in program, program)
        finally:
            daemon.terminate()
            self.assertEqual(daemon.wait(LONG), 0)

    def test_the_launcher_says_what_is_wrong_with_torch(self):
        version = ("bin/genesis-worker", "--version")
        fake = self.work / "fake" / "torch"
        (fake / "lib").mkdir(parents=True, exist_ok=True)
        (fake / "lib" / "libtorch_cpu.so").touch()
        for text, said in (("__version__ = '2.9.1+cpu'\n", "is torch 2.9.1+cpu; 2.11 is needed"),
                           ("", "is torch of an unknown version; 2.11 is needed")):
            (fake / "version.py").write_text(text)
            self.assertIn(said, self.run_program(*version, code=2,
                                                 environment={"GENESIS_LIBTORCH": str(fake)}))
        self.assertIn("has no libtorch_cpu.so", self.run_program(
            *version, code=2, environment={"GENESIS_LIBTORCH": "/nowhere"}))
        self.assertIn("there is no python-of-nobody", self.run_program(
            *version, code=2, environment={"GENESIS_PYTHON": "python-of-nobody"}))
        # Programs that do not use torch work without it.
        self.assertIn("genesisctl ", self.run_program(
            "bin/genesisctl", "--version", environment={"GENESIS_PYTHON": "python-of-nobody"}))

    def test_cases_for_a_gpu_begin_from_the_bundle(self):
        out = self.work / "report"
        printed = self.run_program("tests/gpu/run", "--device", "cpu", "--out", out, "Device",
                                   "Recovery.test_gradient_overflow_recovery")
        self.assertIn("2 passed, 0 failed, 1 not run", printed)
        report = json.loads((out / "report.json").read_text())
        self.assertEqual({case["result"] for case in report["cases"]}, {"passed", "not run"})
        self.assertIn("version", report["facts"]["bundle"])


if __name__ == "__main__":
    unittest.main()
