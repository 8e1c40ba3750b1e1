"""A user's module, compiled: it trains as its graph does."""

import json
import pathlib
import tempfile
import unittest

import compiled_job
import exported_jobs
import numpy
import module_kinds
import tiers
import torch
import twin
from torch import nn

import genesis

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


class Folder:
    """A temporary folder with data, an exported module and jobs."""

    def __init__(self, name):
        self.path = pathlib.Path(name)
        generator = numpy.random.default_rng(5)
        label = generator.integers(0, 4, 128)
        image = generator.normal(size=(128, 2, 6, 6)) + label[:, None, None, None]
        numpy.savez(self.path / "data.npz", image=image.astype("float32"), target=label)
        self.batch = {"image": torch.tensor(image[:5], dtype=torch.float32), "target": torch.tensor(label[:5])}
        self.packages = self.path / "packages"
        self.exported = {}

    def job(self, net, mode="FP32", **more):
        if net not in self.exported:
            torch.manual_seed(1)
            genesis.export(net(), self.batch, self.path / "net.pt2", loss="cross_entropy", precisions=["FP32", "BF16"])
            self.exported[net] = (self.path / "net.pt2").read_bytes()
        (self.path / "net.pt2").write_bytes(self.exported[net])
        job = self.path / "job.yaml"
        job.write_text(json.dumps({
            "model": {"exported": {"path": str(self.path / "net.pt2")}},
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


def with_silu():
    return Net(nn.SiLU())


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
        job = self.folder.job(with_silu)
        _, how = self.folder.run("other", job)
        self.assertIn("has no package for this step", how[0])

    def test_steps_after_pure_bf16_have_weights_in_fp32(self):
        job = self.folder.job(
            with_relu, "BF16", rehearsals=[{"kind": "SPIKE", "at_step": 60, "steps": 60}],
            precision={"fallbacks": ["FP32"],
                       "baseline_file": str(self.folder.path / "eager" / "telemetry.jsonl")})
        compiled, how = self.folder.run("fallback", job)
        self.assertIn("exported graph, because ", how[0])
        self.assertIn("has no package for this step", how[0])
        self.assertIn("compiled (", how[1])
        eager, _ = self.folder.run("fallback eager", job, compiled=False)
        self.assertEqual([record["mode"] for record in compiled],
                         [record["mode"] for record in eager])
        self.assertEqual((eager[0]["mode"], eager[-1]["mode"]), ("BF16", "FP32"))
        self.assertNotEqual(compiled, eager)
        self.assertLess(compiled_job.worst(compiled, eager), TOLERANCE)


class KindsOfModules(exported_jobs.ExportedJobs):
    exports_few = True

    @tiers.nightly
    def test_they_train_as_their_graphs_do(self):
        for net in module_kinds.LastStates, module_kinds.Follower:
            with self.subTest(net.__name__), tempfile.TemporaryDirectory() as folder:
                packages = self.path / net.__name__
                job, module = self.job(net)
                made = compiled_job.compile_job(job, packages)
                self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
                plain, last, _ = self.train(job)
                compiled = compiled_job.train_compiled(self, job, folder, packages)
                self.assertLess(compiled_job.worst(compiled, plain), TOLERANCE)
                ours = torch.load(twin.newest_checkpoint(folder))["model_state_dict"]
                for name, tensor in ours.items():
                    torch.testing.assert_close(tensor, last["model_state_dict"][name], rtol=1e-3, atol=1e-4)
                    self.assertFalse(torch.equal(tensor, module.state_dict()[name]), name)


if __name__ == "__main__":
    unittest.main()
