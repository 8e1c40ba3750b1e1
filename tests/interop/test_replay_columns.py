"""Replay buffers with declared columns: examples are what the description of the files says, and modules train on them as in Python."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import torch
import twin
from replay_files import typed_segment
from torch import nn

import genesis

ROWS, EPISODE, TRAINED, BATCH, STEPS, SEED = 120, 10, 110, 8, 25, 9
PARTS = [[7], [20, 1, 30], [2], [40, 20]]


def columns():
    """Returns the rows of each column by name, and the declarations."""
    random = numpy.random.default_rng(3)
    floats = random.normal(size=(ROWS, 4)).astype("<f4")
    tokens = [random.integers(0, 100, length).astype("<i4") for length in random.integers(0, 6, ROWS)]
    return {"observations": ("uint8 [6, 6, 3]", random.integers(0, 256, (ROWS, 6, 6, 3), "u1")),
            "actions": ("float32 [2]", floats[:, :2]),
            "advantage": ("float64 []", floats[:, 2].astype("<f8")),
            "half": ("float16 [1]", floats[:, 3:].astype("<f2")),
            "mask": ("bool [2]", random.random((ROWS, 2)) < 0.5),
            "task": ("int64 []", random.integers(-9, 9, ROWS).astype("<i8")),
            "text": ("bytes [<=9]", [numpy.frombuffer(b"abcdefghi"[:i % 10], "u1") for i in range(ROWS)]),
            "tokens": ("int32 [<=5]", tokens)}


class Images(nn.Module):
    """A module that converts uint8 itself."""

    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(8 * 16 + 2 + 1, 1)

    def forward(self, observations, actions, task):
        seen = self.see(observations.permute(0, 3, 1, 2).float() / 255)
        return self.head(torch.cat([seen, actions, task.float().unsqueeze(1)], 1)).squeeze(1)


def losses_of(module, batch):
    error = module(batch["observations"], batch["actions"], batch["task"]) - batch["rewards"]
    return (error.square() * torch.where(batch["terminals"], 0.5, 1.0)).mean()


class ReplayColumns(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.columns = columns()
        self.rewards = numpy.random.default_rng(4).normal(size=ROWS).astype("<f4")
        step = numpy.arange(ROWS)
        self.flags = numpy.where(step % EPISODE == EPISODE - 1, 1 + (step // EPISODE) % 2, 0)
        (self.folder / "buffer").mkdir()
        (self.folder / "buffer" / f"{0:020}.segment").write_bytes(typed_segment(self.columns, self.rewards, self.flags, PARTS))

    def write_job(self, model, dataset, **training):
        path = self.folder / "job.yaml"
        path.write_text(json.dumps({"model": model, "dataset": dataset,
                                    "training": {"max_steps": STEPS, "batch_size": BATCH, "seed": SEED, "max_grad_norm": -1, **training}}))
        return path

    def fields(self, model):
        """Returns the description of the dataset of a job, and its fields by name."""
        out = self.folder / "examples"
        done = subprocess.run([os.environ["GENESIS_DATA_DRIVER"], self.write_job(model, {"replay": {"path": "buffer"}}), out], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        dataset, data, begin, found = json.loads(done.stdout), out.read_bytes(), 0, {}
        for name, kind, shape in dataset["fields"]:
            array = numpy.frombuffer(data, kind, ROWS * int(numpy.prod(shape)), begin).reshape(ROWS, *shape)
            found[name], begin = array, begin + array.nbytes
        self.assertEqual(begin, len(data))
        return dataset, found

    def test_examples_are_the_columns_of_the_file(self):
        dataset, found = self.fields({"exported": {"path": "unused.pt2"}})
        self.assertEqual((dataset["size"], dataset["training_size"]), (ROWS, TRAINED))
        wanted = {name: numpy.stack(list(rows)) for name, (text, rows) in self.columns.items() if "<=" not in text}
        wanted |= {"rewards": self.rewards, "terminals": self.flags == 1, "timeouts": self.flags == 2}
        tokens = self.columns["tokens"][1]
        wanted["tokens"] = numpy.stack([numpy.pad(each, (0, 5 - len(each))) for each in tokens])
        wanted["tokens_length"] = numpy.array(list(map(len, tokens)))
        self.assertEqual(found.keys(), wanted.keys())
        for name, values in wanted.items():
            self.assertEqual(found[name].dtype, values.dtype, name)
            numpy.testing.assert_array_equal(found[name], values, name)

    def test_a_world_model_takes_vectors_of_any_type(self):
        random = numpy.random.default_rng(5)
        self.columns = {"observations": ("uint8 [3]", random.integers(0, 256, (ROWS, 3), "u1")),
                        "actions": ("int64 []", random.integers(0, 4, ROWS).astype("<i8")),
                        "next_observations": ("uint8 [3]", random.integers(0, 256, (ROWS, 3), "u1")),
                        "tokens": self.columns["tokens"]}
        (self.folder / "buffer" / f"{0:020}.segment").write_bytes(typed_segment(self.columns, self.rewards, self.flags, PARTS))
        _, found = self.fields({"world_model": {}})
        before, after = (self.columns[name][1].astype("f4") for name in ("observations", "next_observations"))
        numpy.testing.assert_array_equal(found["observation"], before)
        numpy.testing.assert_array_equal(found["change"], after - before)
        numpy.testing.assert_array_equal(found["action"], self.columns["actions"][1].astype("f4").reshape(-1, 1))

    def test_a_world_model_refuses_images(self):
        job = self.write_job({"world_model": {}}, {"replay": {"path": "buffer"}})
        done = subprocess.run([twin.WORKER, "--spec", job, "--checkpoint-dir", self.folder / "checkpoints"], capture_output=True, text=True)
        self.assertIn("buffer: observations uint8 [6, 6, 3]; accepted by this model", done.stdout + done.stderr)

    def train(self, dataset):
        with tempfile.TemporaryDirectory() as checkpoints:
            job = self.write_job({"exported": {"path": str(self.folder / "images.pt2")}}, dataset)
            records, _ = twin.run_worker(job, checkpoints)
            return [record["loss"] for record in records], torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"]

    def test_a_module_trains_on_images_as_in_python(self):
        torch.manual_seed(4)
        module = Images()
        data = {name: torch.tensor(numpy.stack(list(self.columns[name][1]))) for name in ("observations", "actions", "task")}
        data |= {"rewards": torch.tensor(self.rewards), "terminals": torch.tensor(self.flags == 1)}
        genesis.export(module, {name: values[:BATCH] for name, values in data.items()}, self.folder / "images.pt2", loss=losses_of)
        losses, state = self.train({"replay": {"path": str(self.folder / "buffer")}})

        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows, wanted = twin.batches(TRAINED, BATCH, SEED), []
        for _ in range(STEPS):
            optimizer.zero_grad()
            now = next(rows)
            loss = losses_of(module, {name: values[now] for name, values in data.items()})
            loss.backward()
            optimizer.step()
            wanted.append(loss.item())
        self.assertEqual(losses, wanted)
        for name, values in module.state_dict().items():
            self.assertTrue(torch.equal(state[name], values), name)

        # The same rows as arrays give the same numbers to the bit.
        numpy.savez(self.folder / "images.npz", **{name: values.numpy() for name, values in data.items()})
        holdout = {"holdout_fraction": (ROWS - TRAINED) / ROWS}
        again, same = self.train({"arrays": {"path": str(self.folder / "images.npz"), **holdout}})
        self.assertEqual(again, losses)
        for name, values in same.items():
            self.assertTrue(torch.equal(state[name], values), name)


if __name__ == "__main__":
    unittest.main()
