"""Tests that the transformer and the radio models train compiled as they do eagerly.

GENESIS_COMPILED_FOR=MIXED_BF16 also builds packages for reduced precision. Otherwise only those for FP32 are built."""

import json
import os
import pathlib
import tempfile
import unittest

import compiled_job
import tiers
import twin

TOLERANCE = 1e-4
STEPS = 60
COMPILED_FOR = os.environ.get("GENESIS_COMPILED_FOR", "FP32")

JOBS = {
    "transformer": {
        "model": {"transformer": {"vocabulary_size": 64, "context_length": 16, "layers": 2,
                                  "heads": 2, "embedding_size": 32}},
        "dataset": {"synthetic": {"tokens": {"vocabulary_size": 64, "size": 4000}}}},
    "diffusion": {
        "model": {"radio_unet": {"base_channels": 16, "channel_multipliers": [1, 2],
                                 "diffusion_steps": 20}},
        "dataset": {"synthetic": {"maps": {"maps": 64, "size": 8}}}},
    "autoencoder": {
        "model": {"radio_unet": {"part": "VAE", "base_channels": 16, "channel_multipliers": [1, 2]}},
        "dataset": {"synthetic": {"maps": {"maps": 64, "size": 8}}}},
}


class CompiledModelsTest(unittest.TestCase):
    def compare(self, name):
        """Compares the losses in FP32. Packages for reduced precision are checked only when they are built."""
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder) / "job.yaml"

            def write(mode):
                job.write_text(json.dumps({
                    **JOBS[name], "precision": {"mode": mode},
                    "training": {"max_steps": STEPS, "batch_size": 8, "seed": 3}}))

            write(COMPILED_FOR)
            packages = pathlib.Path(folder) / "packages"
            # A relative path, as a user in that folder would give.
            made = compiled_job.compile_job(job, packages.name, cwd=folder)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            write("FP32")
            runs = {}
            for way, flags in (("eager", []), ("compiled", ["--compiled-dir", packages])):
                (pathlib.Path(folder) / way).mkdir()
                runs[way], output = twin.run_worker(job, f"{folder}/{way}", *flags)
                self.assertTrue(compiled_job.steps_of(output)[0].startswith(way), output)
            self.assertEqual(len(runs["compiled"]), STEPS)
            self.assertNotEqual(runs["compiled"], runs["eager"])
            self.assertLess(compiled_job.worst(runs["compiled"], runs["eager"]), TOLERANCE)

    @tiers.nightly
    def test_transformer(self):
        self.compare("transformer")

    @tiers.nightly
    def test_diffusion_draws_the_same_noise(self):
        self.compare("diffusion")

    @tiers.nightly
    def test_autoencoder(self):
        self.compare("autoencoder")


if __name__ == "__main__":
    unittest.main()
