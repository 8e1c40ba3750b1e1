"""Tests that genesis-worker reads files written by Python, and that every example of docs/data.md works."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy
from safetensors import safe_open
from safetensors.numpy import save_file

from replay_files import replay_segment, trajectories
from splitmix import SplitMix64

DRIVER = os.environ["GENESIS_DATA_DRIVER"]
PAGE = pathlib.Path(os.environ["GENESIS_SOURCE"]) / "docs" / "data.md"

WORLD = "model: {world_model: {}}\ntraining: {max_steps: 1}\n"


class DataFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def drive(self, *arguments):
        done = subprocess.run([DRIVER, *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def open(self, job):
        """Returns the description of the job's dataset that the driver prints, and its examples as arrays by field."""
        (self.folder / "job.yaml").write_text(job)
        dataset = json.loads(self.drive("job.yaml", "examples"))
        bytes_, offset, examples = (self.folder / "examples").read_bytes(), 0, {}
        for name, kind, shape in dataset["fields"]:
            count = dataset["size"] * int(numpy.prod(shape))
            array = numpy.frombuffer(bytes_, kind, count, offset)
            examples[name] = array.reshape(dataset["size"], *shape)
            offset += array.nbytes
        self.assertEqual(offset, len(bytes_))
        return dataset, examples

    def expect_transitions(self, arrays, dataset, examples):
        expected = {"observation": arrays["observations"], "action": arrays["actions"],
                    "change": arrays["next_observations"] - arrays["observations"],
                    "reward": arrays["rewards"][:, None],
                    "done": arrays["terminals"].astype(numpy.float32)[:, None]}
        self.assertEqual(set(examples), set(expected))
        for name, array in expected.items():
            numpy.testing.assert_array_equal(examples[name], array, name)
        training = dataset["training_size"]
        self.assertEqual(training, 100)
        for name in ("observation", "action", "change", "reward"):
            mean, deviation = dataset["statistics"][name]
            columns = expected[name][:training].astype(numpy.float64)
            numpy.testing.assert_allclose(mean, columns.mean(0), rtol=1e-6, err_msg=name)
            numpy.testing.assert_allclose(deviation, columns.std(0), rtol=1e-6, err_msg=name)

    def test_transitions_of_every_file(self):
        arrays = trajectories()
        numpy.savez(self.folder / "a.npz", **arrays)
        numpy.savez_compressed(self.folder / "b.npz", **arrays)
        save_file(arrays, self.folder / "a.safetensors", metadata={"by": "a test"})
        with open(self.folder / "a.jsonl", "w") as file:
            for i in range(120):
                line = {name.removesuffix("s"): arrays[name][i].tolist() for name in arrays}
                file.write(json.dumps(line) + "\n")
        for name in ("a.npz", "b.npz", "a.safetensors", "a.jsonl"):
            with self.subTest(name):
                job = WORLD + f"dataset: {{trajectories: {{path: {name}}}}}\n"
                self.expect_transitions(arrays, *self.open(job))

    def test_windows(self):
        arrays = trajectories()
        numpy.savez(self.folder / "a.npz", **arrays)
        dataset, examples = self.open("model: {world_model: {rollout_steps: 7}}\n"
                                      "training: {max_steps: 1}\n"
                                      "dataset: {trajectories: {path: a.npz}}\n")
        # There are six episodes of 20 transitions.
        starts = [episode * 20 + i for episode in range(6) for i in range(14)]
        self.assertEqual(dataset["size"], len(starts))
        self.assertEqual(dataset["training_size"], 5 * 14)
        windows = numpy.stack([arrays["observations"][i:i + 7] for i in starts])
        numpy.testing.assert_array_equal(examples["observation"], windows)

    def test_replay_segment_made_from_its_description(self):
        arrays = trajectories()
        priorities = numpy.linspace(0.5, 3, 120).astype(numpy.float32)
        priorities[17] = 0  # 0 means that there is no priority yet, so the transition gets the highest one.
        (self.folder / "buffer").mkdir()
        name = self.folder / "buffer" / f"{0:020}.segment"
        name.write_bytes(replay_segment(arrays, priorities, 50))
        job = WORLD + "dataset: {replay: {path: buffer}}\n"
        dataset, examples = self.open(job)
        self.expect_transitions(arrays, dataset, examples)
        self.assertIn("1 segment, transitions 0 to 119", dataset["description"])
        priorities[17] = 3
        numpy.testing.assert_array_equal(numpy.float32(dataset["priorities"]), priorities[:100])

    def test_prioritized_sampling_as_its_header_says(self):
        arrays = trajectories()
        priorities = numpy.random.default_rng(5).uniform(0.1, 4, 120).astype(numpy.float32)
        (self.folder / "buffer").mkdir()
        name = self.folder / "buffer" / f"{0:020}.segment"
        name.write_bytes(replay_segment(arrays, priorities, 50))
        (self.folder / "job.yaml").write_text(
            "model: {world_model: {}}\ntraining: {max_steps: 1, batch_size: 8, seed: 11}\n"
            "dataset: {replay: {path: buffer}, sampling: {kind: PRIORITIZED}}\n")
        lines = self.drive("--draw", "job.yaml").splitlines()
        self.assertEqual(len(lines), 20)
        known = priorities[:100].copy()
        for draw, line in enumerate(lines):
            words = line.split()
            shares = known.astype(numpy.float64) ** 0.6
            ends, total = shares.cumsum(), shares.sum()
            random = SplitMix64(11, draw)
            expected = [int(numpy.searchsorted(ends, (k + random.uniform()) / 8 * total, "right"))
                        for k in range(8)]
            self.assertEqual([int(word) for word in words[:8]], expected, draw)
            weights = (100 * shares[expected] / total) ** -0.4
            weights /= ((100 * shares / total) ** -0.4).max()
            numpy.testing.assert_allclose([float(word) for word in words[8:]], weights, rtol=1e-6)
            # An example that was drawn twice gets its last weight. Both weights are equal.
            known[expected] = known[expected] * numpy.float32(1.5)

    def test_tokens(self):
        for kind, width in (("UINT16", "<u2"), ("UINT32", "<u4")):
            tokens = numpy.random.default_rng(1).integers(0, 1000, 1003)
            tokens.astype(width).tofile(self.folder / "a.bin")
            _, examples = self.open(
                "model: {transformer: {vocabulary_size: 1000, context_length: 10}}\n"
                f"training: {{max_steps: 1}}\ndataset: {{tokens: {{path: a.bin, type: {kind}}}}}\n")
            rows = numpy.stack([tokens[10 * i:10 * i + 11] for i in range(100)])
            numpy.testing.assert_array_equal(examples["tokens"], rows)

    def test_arrays_of_every_type(self):
        kinds = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
        arrays = {kind: (numpy.arange(24).reshape(4, 2, 3) % 5).astype(kind) for kind in kinds}
        numpy.savez(self.folder / "a.npz", **arrays)
        numpy.savez_compressed(self.folder / "b.npz", **arrays)
        save_file(arrays, self.folder / "a.safetensors")
        for name in ("a.npz", "b.npz", "a.safetensors"):
            job = ("model: {radio_unet: {}}\ntraining: {max_steps: 1}\n"
                   f"dataset: {{arrays: {{path: {name}}}}}\n")
            dataset, examples = self.open(job)
            self.assertEqual(set(examples), set(kinds))
            for field, kind, _ in dataset["fields"]:
                self.assertEqual(kind, field)
                numpy.testing.assert_array_equal(examples[field], arrays[field])

    def test_synthetic_tokens_once_more(self):
        _, examples = self.open("model: {transformer: {vocabulary_size: 50, context_length: 9}}\n"
                                "training: {max_steps: 1}\n"
                                "dataset: {synthetic: {tokens: {size: 1024}, seed: 4}}\n")
        random = SplitMix64(4, 0)
        tokens = [random.below(50)]
        for _ in range(1023):
            eighth = random.next() >> 61
            choice = 0 if eighth < 4 else 1 if eighth < 6 else eighth - 4
            tokens.append(SplitMix64(4, 1 + 4 * tokens[-1] + choice).below(50))
        rows = numpy.array([tokens[9 * i:9 * i + 10] for i in range(1023 // 9)])
        numpy.testing.assert_array_equal(examples["tokens"], rows)

    def test_safetensors_that_we_write(self):
        self.drive("--write", "ours.safetensors")
        bytes_ = numpy.frombuffer(bytes(i % 60 for i in range(64)), numpy.uint8)
        with safe_open(self.folder / "ours.safetensors", "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "note": 'a "b"\t\u00e9'})
            self.assertEqual(len(file.keys()), 11)
            self.assertEqual(file.get_tensor('flag "\\\n').tolist(), [True, False, False, True])
            self.assertEqual(list(file.get_tensor("none").shape), [0, 3])
            for kind in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8"):
                expected = bytes_.view(kind)[:8].reshape(2, 4)
                numpy.testing.assert_array_equal(file.get_tensor(kind).numpy(), expected, kind)
            self.assertEqual(str(file.get_tensor("bfloat16").dtype), "torch.bfloat16")

    def test_every_example_of_the_page(self):
        blocks = re.findall(r"```(python|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
        (self.folder / "robots" / "arm").mkdir(parents=True)
        segment = replay_segment(trajectories(), numpy.ones(120), 50)
        (self.folder / "robots" / "arm" / f"{0:020}.segment").write_bytes(segment)
        jobs = 0
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        for kind, text in blocks:
            if kind == "python":
                exec(text, {})
                continue
            dataset, examples = self.open(text)
            self.assertGreater(dataset["training_size"], 0)
            for name, array in examples.items():
                self.assertTrue(numpy.isfinite(array).all(), name)
            jobs += 1
        self.assertEqual(jobs, 9)
        # The page's other files can be read too.
        for path in ("walks.safetensors", "walks.npz"):
            self.open(WORLD + f"dataset: {{trajectories: {{path: {path}}}}}\n")
        self.open("model: {radio_unet: {}}\ntraining: {max_steps: 1}\n"
                  "dataset: {arrays: {path: maps.npy}}\n")


if __name__ == "__main__":
    unittest.main()
