"""Tests that a compiled step trains like the eager one, and that a package that does not match is not used."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import unittest.mock
import zipfile

import compiled_job
import tiers
import twin

# Sums are computed in another order, so the losses of two runs drift apart, as those of two eager runs with different orders do. Under BF16
# autocast a package rounds in fewer places than eager mode.
FP32_TOLERANCE = 1e-4
BF16_TOLERANCE = 3e-2
STEPS = 200


class CompiledStepTest(unittest.TestCase):
    eager = {}  # Records of the steps by the text of the job.

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.compiled = pathlib.Path(folder.name) / "compiled"
        cls.job = twin.job_file(folder.name, training={"max_steps": STEPS},
                                precision={"mode": "MIXED_BF16"})
        cls.made = compiled_job.compile_job(cls.job, cls.compiled)
        if cls.made.returncode != 0:
            raise AssertionError(cls.made.stdout + cls.made.stderr)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        (self.folder / name).mkdir()
        return self.folder / name

    def run_job(self, name, job, *flags, compiled=None, allowed=True):
        """Runs a job. Returns the records of its steps and how they ran. With `compiled=False` it runs eagerly."""
        if compiled is not False:
            flags += ("--compiled-dir", str(compiled or self.compiled))
        records, output = twin.run_worker(
            job, self.path(name), *flags, environment=compiled_job.ALLOWED if allowed else {})
        return records, compiled_job.steps_of(output)

    def test_loops_are_made_of_vector_instructions(self):
        for package in self.compiled.glob("*.pt2"):
            with zipfile.ZipFile(package) as archive:
                loops = b"".join(archive.read(name) for name in archive.namelist()
                                 if name.endswith(".kernel.cpp"))
            self.assertIn(b"at::vec::Vectorized", loops, package.name)

    def fp32_job(self, **training):
        return twin.job_file(self.folder, training={"max_steps": STEPS, **training},
                             precision={"mode": "FP32"})

    def compare(self, job, tolerance, *flags):
        eager, how = self.run_job("eager", job, *flags, compiled=False)
        self.assertEqual(how, ["eager, because no folder of compiled steps was named"])
        compiled, how = self.run_job("compiled", job, *flags)
        self.assertRegex(how[0], r"^compiled \(package [0-9a-f]{12}\)$")
        self.assertEqual(len(compiled), STEPS)
        self.assertNotEqual(compiled, eager)
        self.assertLess(compiled_job.worst(compiled, eager), tolerance)
        self.assertLess(compiled[-1]["loss"], 0.5 * compiled[0]["loss"])
        return compiled, eager

    def test_makes_a_package_for_each_mode_with_its_checksum(self):
        modes = re.findall(r"^(\w+): \S+\.pt2 \(\d+ bytes", self.made.stdout, re.MULTILINE)
        self.assertEqual(modes, ["FP32", "MIXED_BF16"])
        packages = sorted(self.compiled.glob("*.pt2"))
        self.assertEqual(len(packages), len(modes))
        for package in packages:
            self.assertEqual(
                package.with_name(package.name + ".sha256").read_text(),
                f"{hashlib.sha256(package.read_bytes()).hexdigest()}  {package.name}\n")
        # Nothing else is in the folder.
        self.assertEqual(len(list(self.compiled.iterdir())), 2 * len(modes))

    def test_makes_nothing_twice(self):
        before = {p: p.stat().st_mtime_ns for p in self.compiled.iterdir()}
        again = compiled_job.compile_job(self.job, self.compiled)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout.count("is there already"), len(list(self.compiled.glob("*.pt2"))))
        self.assertEqual({p: p.stat().st_mtime_ns for p in self.compiled.iterdir()}, before)

    def test_trains_as_eager_with_clipping_that_bites(self):
        compiled, eager = self.compare(self.fp32_job(max_grad_norm=0.1), FP32_TOLERANCE)
        for one, other in zip(compiled[:20], eager[:20]):
            self.assertAlmostEqual(one["grad_norm"] / other["grad_norm"], 1, delta=1e-3)

    def test_trains_as_eager_with_accumulation(self):
        self.compare(self.fp32_job(gradient_accumulation_steps=3), FP32_TOLERANCE)

    def test_trains_as_eager_on_two_threads(self):
        self.compare(self.fp32_job(), FP32_TOLERANCE, "--threads", "2")

    def test_trains_as_eager_in_bf16(self):
        self.compare(self.job, BF16_TOLERANCE)

    def test_trains_as_eager_in_bf16_with_accumulation_and_clipping(self):
        job = twin.job_file(self.folder, precision={"mode": "MIXED_BF16"},
                            training={"max_steps": STEPS, "max_grad_norm": 0.1,
                                      "gradient_accumulation_steps": 2})
        self.compare(job, BF16_TOLERANCE)

    def test_the_same_package_trains_the_same_to_the_bit(self):
        job = self.fp32_job()
        self.assertEqual(self.run_job("one", job), self.run_job("other", job))

    def test_resumes_compiled_from_eager_and_back(self):
        job = twin.job_file(self.folder, training={"max_steps": STEPS},
                            precision={"mode": "FP32"}, checkpoint={"every_steps": 100})
        eager, _ = self.run_job("eager", job, compiled=False)
        compiled, _ = self.run_job("compiled", job)

        def rest(name, of, compiled):
            middle = min((self.folder / of).glob("*.pt"))
            return self.run_job(name, job, "--resume", str(middle), compiled=compiled)

        from_eager, how = rest("compiled from eager", "eager", None)
        self.assertIn("compiled (", how[0])
        self.assertLess(compiled_job.worst(from_eager, eager[100:]), FP32_TOLERANCE)
        from_compiled, how = rest("eager from compiled", "compiled", False)
        self.assertIn("eager", how[0])
        self.assertLess(compiled_job.worst(from_compiled, compiled[100:]), FP32_TOLERANCE)
        self.assertEqual(rest("compiled again", "compiled", None)[0], compiled[100:])

    def test_a_change_of_precision_changes_the_package(self):
        self.run_job("baseline", self.fp32_job())
        job = twin.job_file(
            self.folder, training={"max_steps": STEPS},
            precision={"mode": "MIXED_BF16", "fallbacks": ["FP32"],
                       "baseline_file": str(self.folder / "baseline" / "telemetry.jsonl")})
        spec = json.loads(job.read_text())
        spec["rehearsals"] = [{"kind": "SPIKE", "at_step": 60, "steps": 60}]
        job.write_text(json.dumps(spec))
        records, how = self.run_job("fallback", job)
        self.assertEqual(records[0]["mode"], "MIXED_BF16")
        self.assertEqual(records[-1]["mode"], "FP32")
        self.assertEqual(len(how), 2)
        self.assertEqual([step.split(" (")[0] for step in how], ["compiled", "compiled"])
        self.assertNotEqual(how[0], how[1])

    # A package does not match: the job reports why, and trains eagerly.

    def refusal(self, folder, job=None):
        job = job or self.fp32_job(max_steps=10)
        refused, how = self.run_job("refused", job, compiled=folder)
        if job.read_text() not in self.eager:
            self.eager[job.read_text()], _ = self.run_job("wanted", job, compiled=False)
        self.assertEqual(refused, self.eager[job.read_text()])
        self.assertEqual(len(how), 1)
        self.assertTrue(how[0].startswith("eager, because "), how)
        return how[0]

    def copy(self):
        return pathlib.Path(shutil.copytree(self.compiled, self.folder / "copy"))

    def key(self, job):
        done = subprocess.run([twin.WORKER, "--describe-step", job], capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)["steps"][0]["key"]

    @staticmethod
    def seal(path):
        path.with_name(path.name + ".sha256").write_text(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        path.chmod(0o644)
        path.with_name(path.name + ".sha256").chmod(0o644)

    def test_a_damaged_package(self):
        folder = self.copy()
        package = folder / (self.key(self.fp32_job()) + ".pt2")
        content = bytearray(package.read_bytes())
        content[len(content) // 2] ^= 1
        package.write_bytes(content)
        self.assertIn(".pt2 is damaged: its SHA-256 is not the one in", self.refusal(folder))

    def test_a_file_that_is_no_package(self):
        folder = self.copy()
        package = folder / (self.key(self.fp32_job()) + ".pt2")
        package.write_bytes(b"no package")
        self.seal(package)
        self.assertIn(".pt2: is not a sound zip file", self.refusal(folder))

    def test_a_temporary_folder_that_is_not_there(self):
        with unittest.mock.patch.dict(os.environ, TMPDIR=str(self.folder / "missing")):
            self.assertIn("cannot be written; let TMPDIR name a folder with room for it, that the "
                          "worker may write and run programs from", self.refusal(self.compiled))

    def test_leaves_nothing_in_the_temporary_folder_while_it_trains(self):
        seen = self.path("temporary")
        job = self.fp32_job()
        process = subprocess.Popen(
            [twin.WORKER, "--spec", job, "--checkpoint-dir", self.path("killed"), "--compiled-dir",
             self.compiled], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(seen)})
        with process:
            while not (line := process.stdout.readline()).startswith("step 2"):
                self.assertTrue(line, "the worker ended before its second step")
            process.kill()
        self.assertEqual(list(seen.iterdir()), [])

    def test_an_unfinished_package(self):
        folder = self.copy()
        (folder / (self.key(self.fp32_job()) + ".pt2.sha256")).unlink()
        self.assertIn("is unfinished", self.refusal(folder))

    def test_a_package_that_others_may_write(self):
        folder = self.copy()
        (folder / (self.key(self.fp32_job()) + ".pt2")).chmod(0o666)
        self.assertIn("so others may write it", self.refusal(folder))

    def test_a_job_of_other_shapes_has_no_package(self):
        job = self.fp32_job(batch_size=32, max_steps=10)
        self.assertIn("has no package for this step", self.refusal(self.compiled, job))

    def test_a_folder_without_packages(self):
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            self.assertIn("holds no packages; genesisctl compile makes them", self.refusal(folder))

    def test_a_folder_that_is_not_there(self):
        self.assertIn("holds no packages", self.refusal(self.folder / "missing"))

    def test_a_package_of_other_shapes_under_the_jobs_key(self):
        folder = self.copy()
        package = folder / (self.key(self.fp32_job()) + ".pt2")
        job = self.fp32_job(batch_size=32, max_steps=10)
        foreign = folder / (self.key(job) + ".pt2")
        shutil.copy(package, foreign)
        self.seal(foreign)
        reason = self.refusal(folder, job)
        self.assertIn('was compiled for another step: it has "batch_size": 64,', reason)
        self.assertIn('the job has "batch_size": 32,', reason)

    def test_a_package_of_another_torch(self):
        folder = self.copy()
        package = folder / (self.key(self.fp32_job()) + ".pt2")
        with zipfile.ZipFile(package) as archive:
            parts = [(part, archive.read(part)) for part in archive.namelist()]
        with zipfile.ZipFile(package, "w") as archive:
            for name, content in parts:
                if name.endswith("_metadata.json"):
                    content = content.replace(b'\\"torch\\": \\"2.11.0\\"',
                                              b'\\"torch\\": \\"2.10.0\\"')
                archive.writestr(name, content)
        self.seal(package)
        self.assertIn('it has "torch": "2.10.0",; the job has "torch": "2.11.0",',
                      self.refusal(folder))

    # A job cannot be compiled.

    def cannot(self, job, *flags, code=2, **options):
        done = compiled_job.compile_job(job, self.folder / "none", *flags, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertFalse(list(self.folder.glob("none/*")))
        return done.stderr

    def test_says_what_is_wrong_with_the_python(self):
        job = self.fp32_job()
        self.assertIn('Python "/none/python" cannot be started: No such file or directory; name one '
                      "that has torch with --python or GENESIS_PYTHON",
                      self.cannot(job, python="/none/python"))
        torchless = self.folder / "python"
        torchless.write_text("#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n")
        torchless.chmod(0o755)
        self.assertIn("torch 2.11.0 is needed: name a Python that has it with --python or "
                      "GENESIS_PYTHON", self.cannot(job, python=str(torchless)))

    def test_says_what_is_wrong_with_the_job(self):
        job = self.fp32_job()
        job.write_text("model: {world_model: {hidden: 3}}")
        self.assertIn("hidden", self.cannot(job))
        self.assertIn("missing.yaml", self.cannot(self.folder / "missing.yaml"))

    @tiers.nightly
    def test_a_package_that_the_worker_does_not_take_is_not_installed(self):
        with unittest.mock.patch.dict(os.environ, TMPDIR=str(self.folder / "missing")):
            self.assertIn("FP32: nothing was installed: genesis-worker rejects the package: ",
                          self.cannot(self.fp32_job(), code=1))

    def test_refuses_a_folder_that_others_may_write(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        done = compiled_job.compile_job(self.fp32_job(), shared)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"chmod go-w {shared}", done.stderr)


if __name__ == "__main__":
    unittest.main()
