"""Tests that the graph of predictions of an exported module computes in C++ what ``predict`` does in Python."""

import copy
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import zipfile

import compiled_job  # noqa: F401 - sets the path of the scripts.
import numpy
import tensor_files
import torch
from exported_jobs import Attentive, Differentiated, Encoder, ExportedJobs, Normed, loss_of
from torch import nn

import genesis

DRIVER = os.environ["GENESIS_MODEL_DRIVER"]
SIZES = (1, 3, 8, 257)
# Maximum absolute difference. In eval mode Python runs a transformer's layer as one kernel, which rounds otherwise than the graph.
ROUNDING = 2e-6


class World(nn.Module):
    """A model of a world with dropout, batch norm and two results."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.ReLU())
        self.change, self.reward = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, observation, action):
        hidden = self.body(torch.cat([observation, action], 1))
        return observation + self.change(hidden), self.reward(hidden).squeeze(1)


def error_of(module, batch):
    observation, reward = module(batch["observation"], batch["action"])
    return (observation - batch["next"]).square().mean() + (reward - batch["reward"]).square().mean()


def step_of(module, batch):
    observation, reward = module(batch["observation"], batch["action"])
    return {"observation.next": observation, "reward": reward, "again": observation, "given": batch["observation"], "best": observation.argmax(1),
            "good": reward > 0, "limited": observation.masked_fill(observation > 0, -torch.inf), "half": reward.half(),
            "bias": module.reward.bias.expand(reward.shape[0])}


def scores(module, batch):
    logits = module(batch["word"] if "word" in batch else batch["x"])
    return {"logits": logits, "class": logits.argmax(1)}


class Seen(nn.Module):
    """A module that counts its calls, in eval mode too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + 0.1 * self.calls


class PredictionGraphs(ExportedJobs):
    def rows(self, size):
        generator = torch.Generator().manual_seed(size)
        return {"observation": torch.randn(size, 3, generator=generator), "action": torch.randn(size, 2, generator=generator),
                "next": torch.randn(size, 3, generator=generator), "reward": torch.randn(size, generator=generator)}

    def words(self, field, size):
        rows = numpy.resize(self.arrays[field], (size, *self.arrays[field].shape[1:]))
        return {field: torch.tensor(rows)}

    def export(self, module, batch, predict, loss=loss_of, **options):
        return genesis.export(module, batch, self.path / "net.pt2", loss=loss, precisions=["FP32"], predict=predict, **options)

    def run_graph(self, *cases):
        """Runs the exported graph for each case: inputs, and weights to load before or None. Returns outputs or the error of each."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for number, (inputs, weights) in enumerate(cases):
                (folder / str(number)).mkdir()
                tensor_files.write(folder / str(number) / "inputs", inputs)
                if weights is not None:
                    tensor_files.write(folder / str(number) / "weights", weights)
            done = subprocess.run([DRIVER, "--predict", self.path / "net.pt2", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            results = [folder / str(number) for number in range(len(cases))]
            return [(each / "error.txt").read_text() if (each / "error.txt").exists() else tensor_files.read(each / "outputs") for each in results]

    def compare(self, module, predict, batches, weights=None):
        """Compares the graph with the function, for the module in eval mode."""
        module = copy.deepcopy(module).eval()
        cases = [(batch, weights if number == 0 else None) for number, batch in enumerate(batches)]
        for batch, got in zip(batches, self.run_graph(*cases)):
            with torch.no_grad():
                wanted = predict(module, {name: tensor.clone() for name, tensor in batch.items()})
            self.assertIsInstance(got, dict, got)
            self.assertEqual(list(got), list(wanted))
            for name, tensor in wanted.items():
                torch.testing.assert_close(got[name], tensor, rtol=1e-6, atol=ROUNDING, msg=lambda text: f"{name} of {len(tensor)}: {text}")

    def test_tensors_by_name_for_batches_of_any_size(self):
        torch.manual_seed(1)
        module = World()
        self.export(module, self.rows(6), step_of, error_of)
        batches = [{name: self.rows(size)[name] for name in ("observation", "action")} for size in SIZES]
        self.compare(module, step_of, batches)
        self.assertTrue(module.training)

    def test_modules_of_many_kinds(self):
        for kind, field in ((Normed, "x"), (Attentive, "word"), (Encoder, "word"), (Differentiated, "x")):
            with self.subTest(kind.__name__):
                torch.manual_seed(2)
                module = kind()
                self.export(module, self.batch(field), scores)
                predict = torch.enable_grad()(lambda *given: {name: each.detach() for name, each in scores(*given).items()})
                self.compare(module, predict, [self.words(field, size) for size in SIZES])

    def test_weights_and_buffers_of_a_later_step(self):
        for kind, field in ((Normed, "x"), (Attentive, "word")):
            with self.subTest(kind.__name__):
                job, module = self.job(kind)
                self.export(module, self.batch(field), scores)
                _, last, _ = self.train(job)
                state = last["model_state_dict"]
                self.assertFalse(any(torch.equal(state[name], tensor) for name, tensor in module.named_parameters() if tensor.requires_grad))
                module.load_state_dict(state)
                self.compare(module, scores, [self.words(field, size) for size in SIZES], weights=state)

    def test_what_predict_changes_in_place_stays_as_it_was(self):
        def predict(module, batch):
            batch["x"].mul_(2)
            return {"y": module(batch["x"])}

        module = Seen()
        self.export(module, self.batch("x"), predict)
        batch = self.words("x", 4)
        first, second = self.run_graph((batch, None), (batch, None))
        with torch.no_grad():
            wanted = copy.deepcopy(module).eval()(2 * batch["x"])
        torch.testing.assert_close(first["y"], wanted, rtol=1e-6, atol=ROUNDING)
        self.assertTrue(torch.equal(first["y"], second["y"]))
        self.assertEqual(module.calls.item(), 0)

    def test_a_module_of_one_batch_size(self):
        def predict(module, batch):
            return {"likeness": module(batch["x"]) @ module(batch["x"]).T + torch.arange(5)}

        module = Normed()
        self.export(module, self.batch("x", 5), predict, dynamic_batch=False)
        self.compare(module, predict, [self.words("x", 5)])
        told, = self.run_graph((self.words("x", 4), None))
        self.assertIn('INVALID_ARGUMENT: the input "x" is [4, 6] float32 for 5 examples; accepted: x [5, 6] float32', told)

    def test_a_file_differs_by_the_graph_alone(self):
        module, records = Normed(), []
        for predict in (None, scores):
            torch.manual_seed(5)
            self.export(module, self.batch("x"), predict)
            with zipfile.ZipFile(self.path / "net.pt2") as archive:
                records.append({name: archive.read(name) for name in archive.namelist()})
        without, with_predict = records
        manifest = json.loads(with_predict["module/extra/genesis.json"])
        self.assertEqual(manifest.pop("prediction"), {"inputs": ["x"], "outputs": ["logits", "class"]})
        self.assertEqual(manifest["constants"].pop("prediction"), [])
        self.assertEqual(json.dumps(manifest, indent=1).encode(), without["module/extra/genesis.json"])
        more = {"module/models/prediction.json", *(f"module/data/{kind}/prediction_{kind}_config.json" for kind in ("weights", "constants"))}
        self.assertEqual(set(with_predict) - set(without), more)
        differing = {name for name in without if without[name] != with_predict[name]}
        self.assertEqual(differing - {"module/.data/serialization_id"}, {"module/extra/genesis.json"})

    def test_inputs_that_do_not_fit_are_named(self):
        self.export(World(), self.rows(6), step_of, error_of)
        right = {name: self.rows(4)[name] for name in ("observation", "action")}
        accepted = "accepted: observation [N, 3] float32, action [N, 2] float32"
        cases = [({"observation": right["observation"]}, f'the input "action" is missing; {accepted}'),
                 ({**right, "next": right["observation"]}, f'the input "next" is unknown; {accepted}'),
                 ({**right, "action": right["action"].double()}, f'the input "action" is [4, 2] float64 for 4 examples; {accepted}'),
                 ({**right, "action": right["action"][:3]}, f'the input "action" is [3, 2] float32 for 4 examples; {accepted}'),
                 ({**right, "observation": right["action"]}, f'the input "observation" is [4, 2] float32; {accepted}'),
                 ({name: tensor[:0] for name, tensor in right.items()}, f'the input "observation" is [0, 3] float32; {accepted}, with the same N from 1'),
                 ({**right, "action": torch.tensor(1.0)}, 'the input "action" is [] float32')]
        for (inputs, message), told in zip(cases, self.run_graph(*((inputs, None) for inputs, _ in cases))):
            self.assertIn(f"INVALID_ARGUMENT: {message}", told)

    def test_weights_that_do_not_fit_are_named_and_change_nothing(self):
        module = Normed()
        self.export(module, self.batch("x"), scores)
        state, batch = module.state_dict(), self.words("x", 4)
        other = {name: torch.ones_like(tensor) for name, tensor in state.items()}
        cases = [({name: tensor for name, tensor in other.items() if name != "layers.3.bias"},
                  rf'the weights have no "layers.3.bias"; {self.path}/net.pt2 needs it, \[3\] float32'),
                 ({**other, "layers.3.weight": torch.ones(3, 15)}, r'the weight "layers.3.weight" is \[3, 15\] float32; .* needs \[3, 16\] float32'),
                 ({**other, "layers.1.num_batches_tracked": torch.tensor(1.0)}, r'the weight "layers.1.num_batches_tracked" is \[\] float32; .* needs \[\] int64')]
        *told, got = self.run_graph(*((batch, weights) for weights, _ in cases), (batch, None))
        for (_, message), error in zip(cases, told):
            self.assertRegex(error, f"INVALID_ARGUMENT: {message}")
        with torch.no_grad():
            torch.testing.assert_close(got["logits"], module.eval()(batch["x"]), rtol=1e-6, atol=ROUNDING)

    def test_values_that_the_module_cannot_process_are_told(self):
        self.export(Attentive(), self.batch("word"), scores)
        told, right = self.run_graph(({"word": torch.full((3, 4), 99)}, None), (self.words("word", 3), None))
        self.assertRegex(told, r"INVALID_ARGUMENT: the predictions of .*net.pt2 fail for 3 examples: index out of range in self$")
        self.assertIsInstance(right, dict)

    def test_a_file_without_predictions_is_told(self):
        self.export(Normed(), self.batch("x"), None)
        done = subprocess.run([DRIVER, "--predict", self.path / "net.pt2", self.path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, 'FAILED_PRECONDITION: ".*net.pt2" has no graph of predictions; export it with predict=')

    def test_a_function_that_cannot_be_exported_is_told(self):
        def of(function):
            return lambda module, batch: function(module(batch["x"]))

        cases = [("scores", "predict is a str; accepted: a function of the module and a batch"),
                 (lambda module, batch: {"y": torch.zeros(5)}, "predict reads no field of the batch; accepted: a function that computes its result from x, label"),
                 (lambda module, batch: {"y": module(batch["z"])}, r"predict reads batch\['z'\], and batch has no such field, at .*; it has x, label"),
                 (lambda module, batch: {"y": module(batch["x"][:, :5])}, "predict fails on the batch in eval mode: RuntimeError: mat1 and mat2 .*, at "),
                 (of(lambda y: y), "predict returns a tensor \\[5, 3\\] of torch.float32; accepted: a dict of 1 to 64 tensors by name"),
                 (of(lambda y: {}), "predict returns 0 tensors; accepted: a dict of 1 to 64"),
                 (of(lambda y: {f"y{number}": y for number in range(65)}), "predict returns 65 tensors"),
                 (of(lambda y: {"y 1": y}), "predict returns a tensor with the name 'y 1'; accepted: 1 to 64 letters, digits, '_' and '.'"),
                 (of(lambda y: {"y" * 65: y}), "predict returns a tensor with the name 'y"),
                 (of(lambda y: {1: y}), "predict returns a tensor with the name 1"),
                 (of(lambda y: {"y": y.tolist()}), r"predict returns as y a list for 5 examples; accepted: a tensor \[5, ...\] of float32, "),
                 (of(lambda y: {"y": y.mean()}), r"predict returns as y a tensor \[\] of torch.float32 for 5 examples"),
                 (of(lambda y: {"y": y.T}), r"predict returns as y a tensor \[3, 5\] of torch.float32 for 5 examples"),
                 (of(lambda y: {"y": torch.complex(y, y)}), r"predict returns as y a tensor \[5, 3\] of torch.complex64"),
                 (of(lambda y: {"y": y / len(y)}), "differ in the prediction y, in eval mode, with 6 examples: .*a size of the batch became a number"),
                 (of(lambda y: {"y": y * 2 if y.shape[0] > 4 else y}), "differ in the prediction y, .*where batch > 4"),
                 (of(lambda y: {"y": y * torch.arange(5)[:, None]}), r"cannot be exported \(prediction\): it takes batches of 5 alone"),
                 (of(lambda y: {"y": y if y.sum() > 0 else -y}), r"cannot be exported \(prediction\): it decides by values of tensors, .*, at " + __file__),
                 (of(lambda y: {"y": y - y[y > 0].mean()}), "needs the operator aten._assert_scalar.default, at " + __file__)]
        for predict, message in cases:
            with self.subTest(message), self.assertRaisesRegex(genesis.ExportError, message):
                self.export(Normed(), self.batch("x"), predict)


if __name__ == "__main__":
    unittest.main()
