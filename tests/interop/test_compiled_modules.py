"""A user's TorchScript module, compiled: it trains as it does eager, or reports why it cannot be compiled."""

import json
import pathlib
import tempfile
import typing
import unittest

import compiled_job
import numpy
import scripted_kinds
import test_modules
import torch
import tiers
import twin
from torch import nn

STEPS = 200
TOLERANCE = 1e-3


class Net(nn.Module):
    """A module with everything that a step must support: batch norm, depthwise convolution, dropout, and tied, frozen, unused and constant
    tensors."""

    def __init__(self, activation):
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1, bias=False),
                                         nn.BatchNorm2d(8), activation, nn.Conv2d(8, 8, 5, padding=2, groups=8))
        self.mix = nn.Linear(8, 8, bias=False)
        self.mix_again = nn.Linear(8, 8, bias=False)
        self.mix_again.weight = self.mix.weight
        self.gain = nn.Parameter(torch.full((8,), 1.5), requires_grad=False)
        self.mask = torch.tensor([1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 2.0])
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, 4)
        self.unused = nn.Parameter(torch.full((3,), 2.5))

    def forward(self, image):
        features = self.convolution(image).amax((2, 3)) * self.gain * self.mask.to(image.dtype)
        return self.head(self.dropout(self.mix_again(torch.relu(self.mix(features)))))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 4)
        self.calls = 0

    def forward(self, image):
        self.calls += 1
        return self.head(image.flatten(1))


class Decides(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 4)

    def forward(self, image):
        output = self.head(image.flatten(1))
        if bool(output.sum() > 0):
            output = output * 2
        return output


class Remembers(nn.Module):
    held: typing.List[torch.Tensor]

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 4)
        self.held = [self.head.weight, torch.zeros(1)]

    def forward(self, image):
        self.held[1].add_(1)
        return nn.functional.linear(image.flatten(1), self.held[0], self.head.bias) + self.held[1]


class Collects(nn.Module):
    seen: typing.List[int]

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 4)
        self.seen = []

    def forward(self, image):
        self.seen.append(1)
        return self.head(image.flatten(1)) * len(self.seen)


@torch.jit.script
class Gain:
    def __init__(self, weight: torch.Tensor):
        self.weight = weight


class HoldsAnObject(nn.Module):
    gain: Gain

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(72, 4)
        self.gain = Gain(self.head.bias)

    def forward(self, image):
        return self.head(image.flatten(1)) * self.gain.weight


class Folder:
    """A temporary folder with data, an exported module and jobs."""

    def __init__(self, name):
        self.path = pathlib.Path(name)
        generator = numpy.random.default_rng(5)
        label = generator.integers(0, 4, 128)
        image = generator.normal(size=(128, 2, 6, 6)) + label[:, None, None, None]
        numpy.savez(self.path / "data.npz", image=image.astype("float32"), label=label)
        self.packages = self.path / "packages"

    def job(self, net, mode="FP32", **more):
        torch.manual_seed(1)
        torch.jit.script(net()).save(str(self.path / "net.pt"))
        job = self.path / "job.yaml"
        job.write_text(json.dumps({
            "model": {"torchscript": {"path": str(self.path / "net.pt"), "loss": "CROSS_ENTROPY",
                                      "target": "label"}},
            "dataset": {"arrays": {"path": str(self.path / "data.npz")}},
            "training": {"max_steps": STEPS, "batch_size": 16, "seed": 3},
            "optimizer": {"learning_rate": 0.003, "weight_decay": 0.1},
            "checkpoint": {"every_steps": STEPS // 2},
            "precision": {"mode": mode, **more.pop("precision", {})}, **more}))
        return job

    def run(self, name, job, *flags, compiled=True):
        """Runs a job. Returns the records of its steps and how they ran (compiled or eager)."""
        (self.path / name).mkdir()
        if compiled:
            flags += ("--compiled-dir", str(self.packages))
        records, output = twin.run_worker(job, self.path / name, *flags,
                                          environment=compiled_job.ALLOWED)
        return records, compiled_job.steps_of(output)

    def model(self, run):
        newest = max((self.path / run).glob("*.pt"))
        return torch.load(newest)["model_state_dict"]


def with_relu():
    return Net(nn.ReLU())


class CompiledModuleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Folder(folder.name)
        cls.job = cls.folder.job(with_relu)
        made = compiled_job.compile_job(cls.job, cls.folder.packages)
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)
        cls.eager, _ = cls.folder.run("eager", cls.job, compiled=False)
        cls.compiled, cls.how = cls.folder.run("compiled", cls.job)

    def setUp(self):
        self.folder.job(with_relu)

    def test_trains_as_eager_with_the_same_dropout(self):
        self.assertRegex(self.how[0], r"^compiled \(package [0-9a-f]{12}\)$")
        self.assertNotEqual(self.compiled, self.eager)
        self.assertLess(compiled_job.worst(self.compiled, self.eager), TOLERANCE)
        self.assertLess(self.compiled[-1]["loss"], 0.7 * self.compiled[0]["loss"])

    def test_leaves_the_state_that_eager_leaves(self):
        ours, eager = self.folder.model("compiled"), self.folder.model("eager")
        self.assertEqual(list(ours), list(eager))
        self.assertEqual(ours["convolution.1.num_batches_tracked"], STEPS)
        self.assertTrue(torch.equal(ours["gain"], torch.full((8,), 1.5)))
        # Weight decay is not applied to parameters without a gradient, as in torch.
        self.assertTrue(torch.equal(ours["unused"], torch.full((3,), 2.5)))
        self.assertTrue(torch.equal(ours["mix.weight"], ours["mix_again.weight"]))
        for name, value in eager.items():
            torch.testing.assert_close(ours[name], value, rtol=1e-2, atol=1e-3, msg=name)

    def test_resumes_to_the_bit(self):
        middle = min((self.folder.path / "compiled").glob("*.pt"))
        rest, how = self.folder.run("rest", self.job, "--resume", str(middle))
        self.assertIn("compiled (", how[0])
        self.assertEqual(rest, self.compiled[STEPS // 2:])

    def test_another_module_of_the_same_shapes_has_no_package(self):
        job = self.folder.job(lambda: Net(nn.SiLU()))
        _, how = self.folder.run("other", job)
        self.assertIn("has no package for this step", how[0])

    def test_a_mode_that_cannot_be_compiled_leaves_the_others_theirs(self):
        done = compiled_job.compile_job(self.folder.job(with_relu, "BF16"), self.folder.packages)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("BF16: runs eager, because in pure FP16 and BF16 the buffers of a torchscript "
                      "model change their format\n", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^FP32: .*\.pt2 is there already$")

    def test_steps_after_pure_bf16_have_their_buffers_back(self):
        """Batch norm's averages are in BF16 there, but the package was built for FP32."""
        job = self.folder.job(
            with_relu, "BF16", rehearsals=[{"kind": "SPIKE", "at_step": 60, "steps": 60}],
            precision={"fallbacks": ["FP32"],
                       "baseline_file": str(self.folder.path / "eager" / "telemetry.jsonl")})
        compiled, how = self.folder.run("fallback", job)
        self.assertIn("eager, because in pure FP16 and BF16 the buffers of a torchscript model change "
                      "their format", how[0])
        self.assertIn("compiled (", how[1])
        eager, _ = self.folder.run("fallback eager", job, compiled=False)
        self.assertEqual([record["mode"] for record in compiled],
                         [record["mode"] for record in eager])
        self.assertEqual((eager[0]["mode"], eager[-1]["mode"]), ("BF16", "FP32"))
        self.assertNotEqual(compiled, eager)
        self.assertLess(compiled_job.worst(compiled, eager), TOLERANCE)


@tiers.nightly
class KindsOfModulesTest(unittest.TestCase):
    def test_they_train_as_eager(self):
        for kind in scripted_kinds.LastStates, scripted_kinds.Nested, scripted_kinds.Follower:
            with self.subTest(kind.__name__), tempfile.TemporaryDirectory() as name:
                folder = Folder(name)
                job = test_modules.Folder(name).classes(kind)
                done = compiled_job.compile_job(job, folder.packages)
                self.assertEqual(done.returncode, 0, done.stderr)
                eager, _ = folder.run("eager", job, compiled=False)
                compiled, how = folder.run("compiled", job)
                self.assertIn("compiled (", how[0])
                self.assertLess(compiled_job.worst(compiled, eager), TOLERANCE)
                ours, theirs = folder.model("compiled"), folder.model("eager")
                first = torch.jit.load(str(folder.path / "net.pt")).state_dict()
                for key, tensor in ours.items():
                    torch.testing.assert_close(tensor, theirs[key], rtol=1e-3, atol=1e-4)
                    self.assertFalse(torch.equal(tensor, first[key]), key)


class UncompilableModuleTest(unittest.TestCase):
    def refusal(self, net):
        with tempfile.TemporaryDirectory() as name:
            folder = Folder(name)
            done = compiled_job.compile_job(folder.job(net), folder.packages)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertFalse(list(folder.packages.iterdir()))
            return done.stderr

    def test_one_that_keeps_something_for_itself(self):
        self.assertIn("FP32: nothing was installed: forward assigns self.calls; a compiled step keeps "
                      "nothing but parameters and buffers that are changed in place",
                      self.refusal(Counts))

    def test_one_that_changes_what_no_checkpoint_has(self):
        for net, name in (Remembers, "held"), (Collects, "seen"):
            with self.subTest(name):
                self.assertIn(f"FP32: nothing was installed: forward changes self.{name}; a compiled step keeps nothing but parameters and "
                              "buffers that are changed in place", self.refusal(net))

    def test_one_that_holds_what_cannot_be_seen(self):
        self.assertIn("FP32: nothing was installed: self.gain holds an object of a class; accepted: tensors, numbers and text, and lists, "
                      "tuples and dictionaries of them", self.refusal(HoldsAnObject))

    def test_one_that_keeps_views_of_a_buffer(self):
        with tempfile.TemporaryDirectory() as name:
            done = compiled_job.compile_job(test_modules.Folder(name).classes(scripted_kinds.Views), pathlib.Path(name) / "packages")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, "nothing was installed: self.(mean|rows) shares memory with a parameter or buffer, and would be a "
                                      "constant of a compiled step; make that view in forward")

    def test_one_that_decides_by_values(self):
        self.assertIn("nothing was installed: forward decides by the values of tensors, and a compiled "
                      "step is one path: let it decide by shapes, or train eager",
                      self.refusal(Decides))


if __name__ == "__main__":
    unittest.main()
