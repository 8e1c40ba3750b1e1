"""Tests that each built-in model agrees with its Python twin: names, initial weights, loss, gradients, metrics."""

import contextlib
import copy
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

import compiled_job  # noqa: F401 - says where the twins are.
import genesis
import tensor_files
from twins import radio_unet, transformer, world_model

DRIVER = os.environ["GENESIS_MODEL_DRIVER"]
SEED = 5
LOSS_SEED = 77  # Same as in model_driver.cc.
EXAMPLES = 16

torch.set_num_threads(1)


def of_models(tensors):
    """Returns the tensors in the types that models take: int64 and float32."""
    return {name: tensor if tensor.dtype == torch.int64 else tensor.float() for name, tensor in tensors.items()}


class Ran:
    """The output of model_driver for a job."""

    def __init__(self, spec, fields, weights=None):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "spec.json").write_text(json.dumps(spec))
            tensor_files.write(folder / "fields", of_models(fields))
            if weights is not None:
                tensor_files.write(folder / "weights", of_models(weights))
            for part in ("initial", "fp32", "bf16", "pure_bf16", "metrics"):
                (folder / part).mkdir()
            done = subprocess.run([DRIVER, folder], capture_output=True, text=True)
            self.code, self.error = done.returncode, done.stderr
            if done.returncode != 0:
                return
            self.initial = tensor_files.read(folder / "initial")
            self.fp32 = tensor_files.read(folder / "fp32")
            self.bf16 = tensor_files.read(folder / "bf16")
            self.pure_bf16 = tensor_files.read(folder / "pure_bf16")
            self.metrics = tensor_files.read(folder / "metrics")
            self.tied = dict(line.split()
                             for line in (folder / "tied.txt").read_text().splitlines())


def loss_and_gradients(module, fields, autocast):
    module.zero_grad()
    torch.manual_seed(LOSS_SEED)
    loss = module.loss(fields, autocast)
    loss.backward()
    return {"loss": loss.detach().double(),
            **{name: p.grad.double() for name, p in module.named_parameters()}}


class ModelsTest(unittest.TestCase):
    def compare(self, spec, twin, fields, draws=False, initial=True):
        """Compares a model with its twin.

        Args:
            draws: whether the loss draws random numbers.
            initial: whether the twin was created with SEED, so that the initial weights must be equal.
        """
        torch.manual_seed(1)
        weights = {name: p.detach() + 0.05 * torch.randn(p.shape)
                   for name, p in twin.named_parameters()}
        ran = Ran(spec, fields, weights)
        self.assertEqual(ran.code, 0, ran.error)

        state = twin.state_dict()
        self.assertEqual(set(ran.initial) | set(ran.tied), set(state))
        self.assertEqual([name for name in ran.fp32 if name != "loss"],
                         [name for name, _ in twin.named_parameters()])
        for name, same in ran.tied.items():
            self.assertEqual(state[name].data_ptr(), state[same].data_ptr())
        if initial:
            for name, parameter in twin.named_parameters():
                self.assertTrue(torch.equal(parameter.double(), ran.initial[name]), name)

        buffers = {name for name, _ in twin.named_buffers()}
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter.copy_(weights[name])
            for name, buffer in twin.named_buffers():
                buffer.copy_(ran.initial[name])
        self.assertEqual(buffers, set(ran.initial) - set(dict(twin.named_parameters())))

        if hasattr(twin, "metrics"):
            with torch.no_grad():
                for name, value in twin.metrics(fields).items():
                    self.assertAlmostEqual(
                        (ran.metrics[name].item() / EXAMPLES) / value.item(), 1, delta=1e-5)
        wanted = loss_and_gradients(copy.deepcopy(twin), fields, contextlib.nullcontext())
        for name, value in wanted.items():
            error = (ran.fp32[name] - value).abs().max()
            self.assertLessEqual(error, 1e-5 * value.abs().max(), name)
            self.assertGreater(value.abs().max(), 0, name)
        if not draws:
            self.assertAlmostEqual(
                (ran.metrics["loss"].item() / EXAMPLES) / wanted["loss"].item(), 1, delta=1e-5)

        mixed = loss_and_gradients(copy.deepcopy(twin), fields,
                                   torch.autocast("cpu", torch.bfloat16))
        self.assertAlmostEqual(ran.bf16["loss"].item() / mixed["loss"].item(), 1, delta=1e-2)
        self.assertNotEqual(ran.bf16["loss"].item(), ran.fp32["loss"].item())
        for name, value in mixed.items():
            cosine = F.cosine_similarity(value.flatten(), ran.bf16[name].flatten(), 0)
            self.assertGreater(cosine, 0.99, name)
        self.assertAlmostEqual(ran.pure_bf16["loss"].item() / wanted["loss"].item(), 1,
                               delta=0.05)
        for name, value in ran.pure_bf16.items():
            self.assertTrue(value.isfinite().all(), name)
        return ran

    # World models.

    def world(self, steps=1, gru=False, members=1):
        torch.manual_seed(2)
        lead = (EXAMPLES,) if steps == 1 else (EXAMPLES, steps)
        fields = {"observation": 2 * torch.randn(*lead, 5) + 1, "action": torch.randn(*lead, 3)}
        fields["change"] = 0.1 * fields["observation"].roll(1, -1)
        fields["reward"] = fields["observation"][..., :1] - 3
        fields["done"] = (fields["observation"][..., 1:2] > 2).float()
        spec = {"model": {"world_model": {
                    "hidden_size": 24, "latent_size": 8, "ensemble_size": members,
                    "rollout_steps": steps, "dynamics":
                    "WORLD_MODEL_DYNAMICS_GRU" if gru else "WORLD_MODEL_DYNAMICS_MLP"}},
                "training": {"seed": SEED}}
        torch.manual_seed(SEED)
        return self.compare(spec, world_model.WorldModel(5, 3, 24, 8, gru, members), fields)

    def test_world_model(self):
        self.world()

    def test_world_model_with_gru(self):
        self.world(gru=True)

    def test_world_model_ensemble(self):
        self.world(members=3)
        self.world(members=2, steps=3, gru=True)

    def test_world_model_rollout(self):
        self.world(steps=4)
        self.world(steps=4, gru=True)

    # Transformers.

    def tokens(self, untied):
        torch.manual_seed(2)
        fields = {"tokens": torch.randint(50, (EXAMPLES, 13))}
        spec = {"model": {"transformer": {
                    "vocabulary_size": 50, "context_length": 12, "layers": 3, "heads": 4,
                    "embedding_size": 32, "untied_output": untied}},
                "training": {"seed": SEED}}
        twin = transformer.Transformer(50, 12, 3, 4, 32, untied, SEED)
        return self.compare(spec, twin, fields)

    def test_transformer(self):
        self.assertEqual(self.tokens(False).tied, {"lm_head.weight": "token_embedding.weight"})

    def test_transformer_with_untied_output(self):
        self.assertEqual(self.tokens(True).tied, {})

    # Radio maps.

    def maps(self, condition):
        torch.manual_seed(2)
        fields = {"image": torch.rand(EXAMPLES, 2, 16, 8) * 2 - 1}
        if condition:
            fields["condition"] = torch.rand(EXAMPLES, 3, 16, 8)
        return fields

    # With 16 channels, each group of the norms has two channels. With one channel per group, the bias before a norm would have no gradient.

    def test_diffusion(self):
        for condition, base, multipliers in ((0, 16, [1, 2, 3]), (3, 64, [1, 2])):
            spec = {"model": {"radio_unet": {
                        "base_channels": base, "channel_multipliers": multipliers,
                        "diffusion_steps": 30}},
                    "training": {"seed": SEED}}
            torch.manual_seed(SEED)
            twin = radio_unet.Diffusion(2, condition, base, multipliers, 30)
            self.compare(spec, twin, self.maps(condition), draws=True)

    def test_autoencoder(self):
        for condition in (0, 3):
            spec = {"model": {"radio_unet": {
                        "part": "RADIO_UNET_PART_VAE", "base_channels": 16,
                        "channel_multipliers": [1, 2], "latent_channels": 3, "kl_weight": 0.1}},
                    "training": {"seed": SEED}}
            torch.manual_seed(SEED)
            twin = radio_unet.Autoencoder(2, 16, [1, 2], 3, 0.1)
            self.compare(spec, twin, self.maps(condition), draws=True)

    def test_a_seed_gives_the_same_weights_again_and_another_one_others(self):
        fields = self.maps(0)
        spec = {"model": {"radio_unet": {"base_channels": 8, "channel_multipliers": [1]}},
                "training": {"seed": 1}}
        one, again = Ran(spec, fields).initial, Ran(spec, fields).initial
        spec["training"]["seed"] = 2
        other = Ran(spec, fields).initial
        self.assertTrue(all(torch.equal(one[name], again[name]) for name in one))
        self.assertFalse(torch.equal(one["input.weight"], other["input.weight"]))


class Net(nn.Module):
    """A user's module with a buffer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
        self.head = nn.Linear(8, 4)
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, image):
        return self.head(self.features(image).mean((2, 3))) * self.scale


class OwnLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, image, target):
        return F.huber_loss(self.net(image), target)


class ExportedTest(unittest.TestCase):
    LOSSES = {"mse": F.mse_loss, "huber": F.huber_loss, "cross_entropy": F.cross_entropy}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/net.pt2"
        torch.manual_seed(3)
        self.fields = {"image": torch.randn(EXAMPLES, 2, 6, 6)}

    def compare(self, net, loss):
        """Exports a module, and compares the graphs of the file with the module itself in Python."""
        genesis.export(net, self.fields, self.path, loss=loss, precisions=["FP32", "MIXED_BF16", "BF16"])
        ran = Ran({"model": {"exported": {"path": self.path}}}, self.fields)
        self.assertEqual(ran.code, 0, ran.error)
        self.assertEqual(set(ran.initial), set(net.state_dict()))
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value.double(), ran.initial[name]), name)

        def python(autocast, format=torch.float32):
            module = copy.deepcopy(net).train().to(format)
            torch.manual_seed(LOSS_SEED)
            with autocast:
                if loss is None:
                    output = module(self.fields["image"].to(format),
                                    self.fields["target"].to(format))
                else:
                    output = module(self.fields["image"].to(format))
            value = output.float()
            if loss is not None:
                value = self.LOSSES[loss](value, self.fields["target"])
            value.backward()
            return {"loss": value.detach().double(),
                    **{name: p.grad.double() for name, p in module.named_parameters()}}

        wanted = python(contextlib.nullcontext())
        self.assertEqual(list(ran.fp32), list(wanted))
        for name, value in wanted.items():
            self.assertLessEqual((ran.fp32[name] - value).abs().max(), 1e-5 * value.abs().max(),
                                 name)
        mixed = python(torch.autocast("cpu", torch.bfloat16))
        self.assertAlmostEqual(ran.bf16["loss"].item() / mixed["loss"].item(), 1, delta=1e-2)
        for name, value in mixed.items():
            self.assertGreater(
                F.cosine_similarity(value.flatten(), ran.bf16[name].flatten(), 0), 0.99, name)
        pure = python(contextlib.nullcontext(), torch.bfloat16)
        self.assertAlmostEqual(ran.pure_bf16["loss"].item() / pure["loss"].item(), 1, delta=1e-2)
        return ran

    def test_losses(self):
        for loss in self.LOSSES:
            torch.manual_seed(4)
            net = Net()
            self.fields["target"] = (torch.randint(4, (EXAMPLES,)) if loss == "cross_entropy"
                                     else torch.randn(EXAMPLES, 4))
            ran = self.compare(net, loss)
            self.assertAlmostEqual(
                (ran.metrics["loss"] / EXAMPLES / ran.fp32["loss"]).item(), 1, delta=1e-5)

    def test_a_loss_of_the_modules_own(self):
        self.fields["target"] = torch.randn(EXAMPLES, 4)
        self.compare(OwnLoss(), None)

    def test_dropout_and_batch_norm(self):
        net = nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.BatchNorm1d(8), nn.ReLU(),
                            nn.Dropout(0.3), nn.Linear(8, 4))
        self.fields["target"] = torch.randn(EXAMPLES, 4)
        self.compare(net, "mse")


if __name__ == "__main__":
    unittest.main()
