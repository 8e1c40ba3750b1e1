"""Tests the Python client with a real daemon: what its page promises, and errors on the way."""

import asyncio
import contextlib
import hashlib
import inspect
import io
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import typing
import unittest
import warnings
from unittest import mock

import numpy
import pyarrow
import torch
from PIL import Image
from pyarrow import parquet
from torch import nn

import genesis
import harness
import secure
import tiers
from genesis import connection, readings, transfer
from genesis.crc32c import crc32c
from genesis.optimizers import matches, patterns
from genesis.training.v1 import training_service_pb2

ALLOWED = {"ENABLE_FP16_TRAINING": "true"}


def net():
    torch.manual_seed(random.randrange(1 << 30))
    return nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 3))


def classes(count=600):
    """Returns three clouds of points, which differ in every run."""
    generator = numpy.random.default_rng()
    target = generator.integers(0, 3, count)
    centers = generator.normal(size=(3, 5)) * 3
    return {"x": centers[target] + generator.normal(size=(count, 5)), "target": target}


class Endless(torch.utils.data.Dataset):
    """A dataset of unknown size."""

    def __getitem__(self, index):
        return torch.full((5,), float(index))


warnings.filterwarnings("ignore", "TF32 acceleration")


class ClientTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start(environment=ALLOWED)
        self.client = self.client_of(self.daemon.grpc)

    def client_of(self, server, **options):
        client = genesis.Client(server, **options)
        self.addCleanup(client.close)
        return client

    def restart(self):
        """Kills the daemon and starts another at the same address."""
        self.daemon.kill()
        self.daemon = self.start("--grpc-listen", self.daemon.grpc, environment=ALLOWED)


class ThreeLines(ClientTest):
    def test_an_optimizer_of_torch_with_groups_and_a_frozen_base(self):
        """Training gives the same weights as a loop in Python, with one group for the adapter, one for the head, and a frozen base."""
        torch.manual_seed(4)
        module = nn.ModuleDict({"base": nn.Linear(5, 24), "down": nn.Linear(5, 4, bias=False), "up": nn.Linear(4, 24),
                                "head": nn.Linear(24, 3)})

        class Adapted(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = module
                self.layers["base"].requires_grad_(False)

            def forward(self, x):
                both = self.layers["base"](x) + self.layers["up"](self.layers["down"](x))
                return self.layers["head"](torch.tanh(both))

        adapted, data = Adapted(), classes(80)  # 8 examples are held out.
        groups = [{"params": [*module["down"].parameters(), module["up"].weight]},
                  {"params": [module["up"].bias, *module["head"].parameters()], "lr": 0.02, "weight_decay": 0.0}]
        make = lambda: torch.optim.AdamW(groups, lr=0.05, betas=(0.8, 0.99), weight_decay=0.2, fused=True)
        before = {name: value.clone() for name, value in adapted.state_dict().items()}
        schedule = {0: 0.25, 4: 1.0, 10: 0.5}
        job = self.client.train(adapted, data, loss="cross_entropy", max_steps=12, batch_size=72, optimizer=make(), schedule=schedule,
                                spec={"training": {"max_grad_norm": -1}}).watch()
        x, target = torch.tensor(data["x"][:72], dtype=torch.float32), torch.tensor(data["target"][:72])
        optimizer = make()
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(numpy.interp(step, list(schedule), list(schedule.values()))))
        for _ in range(12):
            optimizer.zero_grad()
            nn.functional.cross_entropy(adapted(x), target).backward()
            optimizer.step()
            rates.step()
        trained = job.checkpoint().model_state_dict
        for name, value in adapted.state_dict().items():
            torch.testing.assert_close(trained[name], value, rtol=1e-3, atol=1e-5, msg=name)
        self.assertTrue(torch.equal(trained["layers.base.weight"], before["layers.base.weight"]))
        saved = job.checkpoint().load()["optimizer_state_dict"]["param_groups"]
        self.assertEqual(sorted(group["initial_lr"] for group in saved), [0.02, 0.05])

    def test_a_file_that_was_exported_is_submitted_without_torch(self):
        export = self.data_dir + "/net.pt2"
        data = {"x": numpy.ones((40, 3), "float32"), "target": numpy.zeros(40, "int64")}
        genesis.export(torch.nn.Linear(3, 2), {name: torch.from_numpy(rows[:5]) for name, rows in data.items()}, export, loss="cross_entropy",
                       precisions=("FP32",))
        numpy.savez(self.data_dir + "/rows.npz", **data)
        script = """
import sys
sys.modules["torch"] = None  # An import fails, as where torch is not installed.
import genesis
print(genesis.Client(sys.argv[1]).train(sys.argv[2], sys.argv[3], batch_size=4, epochs=1).watch(progress=False).state)
"""
        done = subprocess.run([sys.executable, "-c", script, self.daemon.grpc, export, self.data_dir + "/rows.npz"], capture_output=True, text=True)
        self.assertIn("SUCCEEDED", done.stdout, done.stderr)

    def test_an_optimizer_that_no_job_has_is_refused(self):
        module, data = net(), classes(30)
        weights = [module[0].weight, module[2].weight]
        used = torch.optim.Adam(module.parameters())
        nn.functional.mse_loss(module(torch.ones(1, 5)), torch.ones(1, 3)).backward()
        used.step()
        scheduled, hooked = torch.optim.Adam(module.parameters()), torch.optim.Adam(module.parameters())
        torch.optim.lr_scheduler.LinearLR(scheduled, start_factor=0.01)
        hooked.register_step_post_hook(lambda *_: None)
        for optimizer, text in (
                (torch.optim.RMSprop(module.parameters()), "RMSprop; accepted: torch.optim.AdamW, Adam or SGD"),
                (torch.optim.Adam(module.parameters(), amsgrad=True), "amsgrad=True; accepted: False"),
                (torch.optim.SGD(module.parameters(), lr=0.0), "lr=0.0; accepted: above 0"),
                (torch.optim.SGD(weights, lr=0.1), "0.bias the first"),
                (torch.optim.SGD(net().parameters(), lr=0.1), "not one of the module's"),
                (torch.optim.Adam([{"params": weights}, {"params": [module[0].bias, module[2].bias], "betas": (0.1, 0.2)}]),
                 "one value for all groups"),
                (scheduled, "has a schedule of torch.optim.lr_scheduler"), (hooked, "has hooks around step()"),
                (used, "has already run steps")):
            with self.subTest(text), self.assertRaisesRegex(genesis.InvalidArgumentError, text):
                self.client.train(module, data, loss="cross_entropy", epochs=1, optimizer=optimizer)
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "give one of the two"):
            self.client.train(module, data, loss="cross_entropy", epochs=1, learning_rate=1.0, optimizer=torch.optim.Adam(module.parameters()))

    def test_names_become_few_patterns(self):
        names = [f"layers.{i}.{kind}.{which}" for i in range(90) for kind in ("norm", "linear") for which in ("weight", "bias")]
        norms = [name for name in names if "norm" in name or name.endswith("bias")]
        rest = [name for name in names if name not in norms]
        self.assertEqual(patterns(norms, rest), ["layers.*.norm.weight", "*.bias"])
        self.assertEqual(patterns(["a.1.w", "a.3.w"], ["a.2.w"]), ["a.1.w", "a.3.w"])
        self.assertTrue(matches("why?.*", "whyx.weight"))
        self.assertFalse(matches("why?.*", "why.weight"))

    def assert_updated_as_in_torch(self, module, groups, job):
        """Checks that one step of SGD moved each parameter by its own learning rate times its gradient."""
        trained = job.watch().checkpoint().model_state_dict
        rates = {id(tensor): group["lr"] for group in groups for tensor in group["params"]}
        for name, tensor in module.named_parameters():
            torch.testing.assert_close(trained[name], tensor.detach() - rates[id(tensor)] * tensor.grad, msg=name)

    def test_a_name_of_a_parameter_is_no_pattern(self):
        class Starred(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = nn.ParameterDict({name: nn.Parameter(torch.randn(5, 3))
                                               for name in ("k*", "k1", "k*2", "k?", "kx", "k\\*", "k\\")})

            def forward(self, x):
                return sum(x @ part for part in self.parts.values())

        module, data = Starred(), classes(80)
        names = list(module.parts)
        x, target = torch.tensor(data["x"][:72], dtype=torch.float32), torch.tensor(data["target"][:72])
        nn.functional.cross_entropy(module(x), target).backward()
        # The largest group becomes the default. Each of the others is matched by its name.
        groups = [{"params": [module.parts[name] for name in names if name not in ("k*", "k?", "k\\*")], "lr": 0.25}] + [
            {"params": [module.parts[name]], "lr": lr} for name, lr in (("k*", 0.5), ("k?", 0.125), ("k\\*", 1.0))]
        job = self.client.train(module, data, loss="cross_entropy", max_steps=1, batch_size=72, optimizer=torch.optim.SGD(groups),
                                spec={"training": {"max_grad_norm": -1}})
        self.assert_updated_as_in_torch(module, groups, job)

    @tiers.nightly
    def test_a_rate_for_each_of_many_layers(self):
        module, data = nn.Sequential(nn.Linear(5, 3), *[nn.Linear(3, 3) for _ in range(149)]), classes(80)
        with torch.no_grad():
            for layer in module[1:]:
                layer.weight.copy_(torch.eye(3))
        x, target = torch.tensor(data["x"][:72], dtype=torch.float32), torch.tensor(data["target"][:72])
        nn.functional.cross_entropy(module(x), target).backward()
        groups = [{"params": [tensor], "lr": 0.001 * (1 + number)} for number, tensor in enumerate(module.parameters())]
        job = self.client.train(module, data, loss="cross_entropy", max_steps=1, batch_size=72, optimizer=torch.optim.SGD(groups),
                                spec={"training": {"max_grad_norm": -1}})
        self.assert_updated_as_in_torch(module, groups, job)

    def test_the_specification_is_checked_before_anything_is_exported_or_sent(self):
        module, data = net(), classes(40)
        groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1 + number} for number in range(1100)]
        many = nn.ParameterList([group["params"][0] for group in groups])
        # Too many groups, a number out of range, and a list, a name and a file that the daemon rejects.
        for what, optimizer, spec, text in (
                (many, torch.optim.SGD(groups), {}, "optimizer.parameter_groups: has 1099 values; accepted: at most 1024"),
                (module, None, {"optimizer": {"momentum": 2}}, "optimizer.momentum is 2"),
                (module, None, {"scheduling": {"labels": {str(number): "x" for number in range(70)}}}, "scheduling.labels: has 70 keys"),
                (module, None, {"model": {"initial_weights": "no-such.pt"}}, '"no-such.pt"; accepted: a file beneath the dataset root')):
            with (self.subTest(text), mock.patch("genesis.exporting.export") as export, mock.patch("genesis.transfer.upload") as upload,
                  self.assertRaisesRegex(genesis.InvalidArgumentError, re.escape(text)) as raised):
                self.client.train(what, data, loss="cross_entropy", epochs=1, optimizer=optimizer, spec=spec)
            self.assertNotIn("not-sent", str(raised.exception))
            export.assert_not_called()
            upload.assert_not_called()
        with mock.patch("genesis.exporting.export") as export, self.assertRaisesRegex(genesis.InvalidArgumentError, "job_id"):
            self.client.train(module, data, loss="cross_entropy", epochs=1, job_id="a/b")
        export.assert_not_called()

    def test_train_watch_load(self):
        module, data = net(), classes()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        job = self.client.train(module, data, loss="cross_entropy", epochs=30, learning_rate=0.01)
        job.watch()
        self.assertEqual(job.state, "SUCCEEDED")
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        module.load_state_dict(job.checkpoint().model_state_dict)
        self.assertEqual(job.checkpoint().model_state_dict._metadata, dict(module.state_dict()._metadata))
        with torch.no_grad():
            right = module(torch.tensor(data["x"], dtype=torch.float32)).argmax(1).numpy() == data["target"]
        self.assertGreater(right.mean(), 0.8)
        self.assertEqual(job.checkpoint().step, job.progress.total_steps)

    def test_the_page(self):
        page = (harness.SOURCE / "docs" / "python_client.md").read_text()
        first, optimizer, second = (block.split("```")[0] for block in page.split("```python\n")[1:4])
        code = first + optimizer + "async def main():\n" + textwrap.indent(second, "    ") + "import asyncio\nasyncio.run(main())\n"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "GENESIS_SERVER": self.daemon.grpc}, check=True,
                              capture_output=True, text=True, timeout=harness.LONG)
        self.assertIn("state_changed", done.stdout)
        self.assertEqual([job.state for job in self.client.jobs()], ["SUCCEEDED"] * 3)

    def test_the_recording_of_the_page_and_the_lines_of_the_readme(self):
        page = (harness.SOURCE / "docs" / "python_client.md").read_text().split("<!-- first-module: begin -->")[1].split("<!--")[0]
        typed = re.findall(r"^\[ *[\d.]+ s\] (?:>>>|\.\.\.) ?(.*)$", page, re.MULTILINE)
        self.assertTrue(typed)
        readme = (harness.SOURCE / "README.md").read_text().split("## From Python\n")[1].split("```python\n")[1].split("```")[0]
        lines = [re.split("  +#", line)[0] for line in readme.splitlines()]
        first = typed.index(lines[0])
        self.assertEqual(typed[first:first + len(lines)], lines)
        code = "\n".join(typed[:-1]) + f"\nprint('right', {typed[-1]})\n"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "GENESIS_SERVER": self.daemon.grpc}, check=True,
                              capture_output=True, text=True, timeout=harness.LONG)
        self.assertGreater(float(done.stdout.split("right ")[1]), 0.9)

    @tiers.nightly
    def test_data_in_the_forms_that_torch_has(self):
        module, data = net(), classes(96)
        x, target = torch.tensor(data["x"], dtype=torch.float32), torch.tensor(data["target"])
        dataset = torch.utils.data.TensorDataset(x, target)

        class Named(torch.utils.data.Dataset):
            def __len__(self):
                return len(x)

            def __getitem__(self, i):
                return {"x": x[i], "target": target[i]}

        class Pair(typing.NamedTuple):
            target: torch.Tensor
            x: torch.Tensor

        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(zip(x, target))

        path = pathlib.Path(self.data_dir) / "mine.npz"
        numpy.savez(path, x=x.numpy(), target=target.numpy())
        losses = set()
        swapped = {"x": x.numpy().astype(">f4"), "target": target.numpy().astype(">i8")}
        doubles = pathlib.Path(self.data_dir) / "doubles.npz"
        numpy.savez(doubles, x=x.numpy().astype(">f8"), target=target.numpy())
        odd = {"x": numpy.ma.masked_array(x.numpy().astype(numpy.longdouble), mask=False), "target": target}
        conjugated = {"x": torch.complex(x, -x).conj().imag, "target": target}  # A view that negates.
        for each in (data, (x, target), [data["x"], data["target"]], dataset, Named(), path, Stream(), swapped, Pair(target, x), (x, target.tolist()),
                     (x.tolist(), target.tolist()), doubles, odd, conjugated,
                     [Pair(*each) for each in zip(target, x)],
                     torch.utils.data.DataLoader(dataset, 7, shuffle=True), torch.utils.data.DataLoader(Stream(), 7)):
            job = self.client.train(module, each, loss="cross_entropy", max_steps=5, batch_size=16).watch()
            losses.add(job.progress.loss)
        self.assertEqual(len(losses), 1, losses)

    def test_files_and_arrays_that_hold_no_numbers_are_refused_with_their_field(self):
        folder, x = pathlib.Path(self.data_dir), numpy.ones((8, 5), "float32")
        masked = numpy.ma.masked_array(x, mask=numpy.eye(8, 5))
        numpy.savez(folder / "scalar.npz", x=x, weight=numpy.float32(3))
        numpy.savez(folder / "objects.npz", x=numpy.array([None] * 8, dtype=object))
        (folder / "text.npz").write_text("x,y")
        with open(folder / "one.npz", "wb") as file:
            numpy.save(file, x)
        rows = [{"x": row} for row in masked]
        for data, words in (
                (folder / "scalar.npz", "field weight is not an array of numbers whose first dimension counts examples (shape (), float32)"),
                (folder / "objects.npz", "which cannot be read as an .npz file of numbers"),
                (folder / "text.npz", "which cannot be read as an .npz file of numbers"),
                (folder / "one.npz", "which cannot be read as an .npz file of numbers"),
                ({"x": masked}, "field x cannot be read as an array in the data: some of its values are masked"),
                ((masked, x[:, 0]), "field x cannot be read as an array in the data: some of its values are masked"),
                (rows, "field x cannot be read as an array in example 0: some of its values are masked"),
                ({"x": [list(row) for row in masked]}, "field x cannot be read as an array in the data"),
                ({"x": torch.eye(8).to_sparse()}, "field x cannot be read as an array in the data"),
                ({"x": torch.zeros(8, 5, dtype=torch.complex64).conj()}, "field x is not an array of numbers"),
                (([[1.0] * 5] * 3, [0.0] * 2), "fields have different numbers of examples: {'x': 3, 'target': 2}")):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                self.client.train(net(), data, loss=lambda module, batch: module(batch["x"]).mean(), epochs=1)
            self.assertIn(words, str(caught.exception))

    def test_a_loader_is_followed_or_refused(self):
        module, data = net(), classes(96)
        x, target = torch.tensor(data["x"], dtype=torch.float32), torch.tensor(data["target"])
        dataset = torch.utils.data.TensorDataset(x, target)
        loader = torch.utils.data.DataLoader
        doubled = loader(dataset, 7, collate_fn=lambda rows: {"x": torch.stack([row[0] for row in rows]) * 2,
                                                              "target": torch.stack([row[1] for row in rows])})
        # The dataset yields whole batches.
        whole = [(x[i:i + 12], target[i:i + 12]) for i in range(0, 96, 12)]
        doubled_each = loader(whole, None, collate_fn=lambda batch: {"x": batch[0] * 2, "target": batch[1]})
        jobs = [self.client.train(module, each, loss="cross_entropy", max_steps=5, **options).watch() for each, options in (
            (doubled, {}), ({"x": 2 * x, "target": target}, {"batch_size": 7}), (doubled_each, {"batch_size": 7}), (dataset, {"batch_size": 7}))]
        self.assertEqual(jobs[0].message.spec.training.batch_size, 7)
        self.assertEqual(jobs[0].progress.loss, jobs[1].progress.loss)
        self.assertEqual(jobs[0].progress.loss, jobs[2].progress.loss)
        self.assertNotEqual(jobs[0].progress.loss, jobs[3].progress.loss)
        data = torch.utils.data
        for chosen in ({"sampler": data.WeightedRandomSampler([1.0] * 48 + [0.0] * 48, 96)},
                       {"sampler": data.SubsetRandomSampler(range(10))}, {"sampler": data.RandomSampler(dataset, num_samples=10)},
                       {"batch_sampler": data.BatchSampler(data.SubsetRandomSampler(range(50)), 10, False)}):
            name = type(next(iter(chosen.values()))).__name__
            with self.subTest(name), self.assertRaisesRegex(genesis.InvalidArgumentError, f"the DataLoader has a {name}, and each example"):
                self.client.train(module, loader(dataset, **chosen), loss="cross_entropy", epochs=1)

    def test_a_dataset_with_random_transforms_is_read_several_times(self):
        x, target = torch.arange(20.0).reshape(20, 1).repeat(1, 5), torch.arange(20) % 3

        class Noisy(torch.utils.data.Dataset):
            def __len__(self):
                return 20

            def __getitem__(self, i):
                return x[i] + 0.5 * torch.rand(5), target[i]

        options = {"loss": "cross_entropy", "batch_size": 8}
        with self.assertWarnsRegex(UserWarning, "Noisy gives example 0 another x each time, as random transforms do; .*data_passes=8"):
            job = self.client.train(net(), Noisy(), epochs=2, **options).watch()
        self.assertEqual(job.progress.total_steps, 2 * 2)  # Batches that are full, of 18 examples.
        loader = torch.utils.data.DataLoader(Noisy(), 8, shuffle=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            job = self.client.train(net(), loader, epochs=2, data_passes=3, holdout_fraction=0.2, loss="cross_entropy").watch()
            self.client.train(net(), torch.utils.data.TensorDataset(x, target), max_steps=1, **options)
        self.assertEqual(job.progress.total_steps, 2 * 6)
        chunks, fraction = readings.several(loader, 3, 0.2)
        rows = numpy.concatenate([chunk["x"] for chunk in chunks])
        # Three readings of the 16 examples to train on, all different, and one of the 4 that are held out.
        self.assertEqual(rows.astype(int)[:, 0].tolist(), [*range(16)] * 3 + [16, 17, 18, 19])
        self.assertEqual(round(fraction * len(rows)), 4)
        self.assertEqual(len(numpy.unique(rows[:48, 0])), 48)
        for data, kind in (((x, target), "tuple"), (torch.utils.data.DataLoader([(x, target)], None), "DataLoader")):
            with self.assertRaisesRegex(genesis.InvalidArgumentError, f"data_passes is 2 and data is a {kind}, which is read once"):
                self.client.train(net(), data, epochs=1, data_passes=2, **options)

    def test_a_module_that_takes_batches_of_one_size(self):
        class Pairs(nn.Module):
            def __init__(self):
                super().__init__()
                self.left, self.right = nn.Linear(5, 4), nn.Linear(3, 4)

            def forward(self, left, right):
                logits = self.left(left) @ self.right(right).T
                return nn.functional.cross_entropy(logits, torch.arange(len(logits)))

        data = {"left": torch.randn(150, 5), "right": torch.randn(150, 3)}
        with self.assertRaisesRegex(genesis.ExportError, "exported with dynamic_batch=False"):
            self.client.train(Pairs(), data, epochs=1, batch_size=12)
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "batch_size is 512 and the data has 150 examples; dynamic_batch=False needs as many"):
            self.client.train(Pairs(), data, epochs=1, batch_size=512, dynamic_batch=False)
        job = self.client.train(Pairs(), data, epochs=3, batch_size=12, dynamic_batch=False).watch()
        # There are 135 training examples: 11 batches, and 3 examples that are left out.
        self.assertEqual((job.progress.step, job.progress.samples), (33, 396))
        path = genesis.export(Pairs(), {name: each[:14] for name, each in data.items()}, pathlib.Path(self.data_dir) / "pairs.pt2", dynamic_batch=False)
        job = self.client.train(path, data, epochs=2)
        self.assertEqual(job.message.spec.training.batch_size, 14)
        self.assertEqual(job.watch().progress.samples, 2 * 9 * 14)
        # Without a batch size in the job file, the worker uses that of the exported file.
        spec = {"model": {"exported": {"path": self.client.upload(path)}}, "dataset": {"arrays": {"path": job.message.spec.dataset.arrays.path}},
                "training": {"max_steps": 4}}
        self.assertEqual(self.client.submit(spec).watch().progress.samples, 4 * 14)
        for options, message in (({"batch_size": 7}, "batch_size is 7; accepted: 14, the size of the batches that"),
                                 ({"dynamic_batch": False}, "which has been exported; give dynamic_batch to genesis.export"),
                                 ({"predict": print}, "which has been exported; give predict to genesis.export")):
            with self.subTest(message), self.assertRaisesRegex(genesis.InvalidArgumentError, message):
                self.client.train(path, data, epochs=1, **options)

    def test_a_daemon_that_is_not_there_is_told_in_time(self):
        rows = pathlib.Path(self.data_dir) / "rows.npy"
        numpy.save(rows, numpy.zeros(3))
        with genesis.Client("127.0.0.1:9", timeout=1) as client, self.assertRaisesRegex(
                genesis.UnavailableError, "the daemon at 127.0.0.1:9 is not available"):
            client.upload(rows)

    def test_a_daemon_that_hangs_is_told_in_time(self):
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.daemon.process.pid, signal.SIGCONT)
        with genesis.Client(self.daemon.grpc, timeout=1) as client, self.assertRaisesRegex(
                genesis.DeadlineExceededError, f"the daemon at {self.daemon.grpc} did not respond in time") as caught:
            client.job("any")
        self.assertIsInstance(caught.exception, TimeoutError)

    def test_a_proxy_for_the_web_is_not_asked(self):
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            with mock.patch.dict(os.environ, {name: "http://127.0.0.1:9", "no_proxy": ""}):
                client = self.client_of(self.daemon.grpc, timeout=harness.LONG)
                self.assertEqual(list(client.jobs()), [])

    @tiers.nightly
    def test_data_of_other_tools(self):
        folder, data = pathlib.Path(self.data_dir), classes(96)
        columns = {f"c{i}": data["x"][:, i] for i in range(5)}
        parquet.write_table(pyarrow.table({**columns, "kind": data["target"]}), folder / "rows.parquet")
        module = net()
        found = [self.client.train(module, each, loss="cross_entropy", max_steps=5, batch_size=16).watch().progress.loss
                 for each in (data, genesis.from_parquet(folder / "rows.parquet", {"x": list(columns), "target": "kind"}))]
        self.assertEqual(found[0], found[1])
        for name in ("left", "right"):
            (folder / "images" / name).mkdir(parents=True)
            for number in range(20):
                pixels = numpy.zeros((8, 8), "uint8")
                pixels[:, :4] = 255 if name == "left" else 0
                pixels[number % 8, number % 8] ^= 255
                Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
        sides = genesis.from_images(folder / "images", mode="L")
        job = self.client.train(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), sides, loss="cross_entropy", epochs=60, batch_size=8,
                                learning_rate=0.01)
        self.assertLess(job.watch().progress.loss, 0.2)
        (folder / "text.txt").write_text("abcabcab" * 300)
        words = nn.Sequential(nn.Embedding(256, 16), nn.Linear(16, 256))
        following = lambda model, batch: nn.functional.cross_entropy(model(batch["ids"][:, :-1]).flatten(0, 1), batch["ids"][:, 1:].flatten())
        job = self.client.train(words, genesis.from_text(folder / "text.txt", 13), loss=following, epochs=30, learning_rate=0.05)
        self.assertLess(job.watch().progress.loss, 0.8)

    def test_a_loss_of_ones_own_in_reduced_precision_with_more_of_the_job_file(self):
        job = self.client.train(
            net(), {"point": classes(64)["x"]}, loss=lambda module, batch: module(batch["point"]).square().mean(), max_steps=12,
            precision="mixed_bf16", job_id="mine", predict=lambda module, batch: {"y": module(batch["point"])},
            spec={"optimizer": {"kind": "SGD", "momentum": 0.5}, "scheduling": {"labels": {"who": "me"}}})
        job.watch()
        self.assertEqual(job.id, "mine")
        self.assertEqual(dict(job.message.labels), {"who": "me"})
        self.assertEqual(job.message.spec.optimizer.momentum, 0.5)
        self.assertEqual(job.progress.reduced_precision_steps, 12)
        self.assertEqual(job.predict({"point": classes(3)["x"]})["y"].shape[0], 3)

    def test_what_cannot_be_meant_is_one_message(self):
        x = numpy.zeros((8, 5), "float32")
        for data, options, words in (
                ({"x": x}, {}, "give one of the two"),
                ({"x": x}, {"epochs": 1, "max_steps": 1}, "give one of the two"),
                ({"x": x}, {"epochs": 0}, "epochs is 0; accepted: whole numbers from 1"),
                ({"x": x}, {"max_steps": -3}, "max_steps is -3; accepted: whole numbers from 1"),
                ({"x": x}, {"epochs": 1, "batch_size": 0}, "batch_size is 0; accepted: whole numbers from 1"),
                ({"x": x}, {"epochs": 1, "batch_size": "32"}, "batch_size is '32'; accepted: whole numbers from 1"),
                ({"x": x}, {"epochs": 2.5}, "epochs is 2.5; accepted: whole numbers from 1"),
                ({"x": x}, {"epochs": 1, "learning_rate": 0}, "learning_rate is 0; accepted: a number above 0"),
                ({"x": x}, {"epochs": 1, "ranks": 0}, "ranks is 0; accepted: whole numbers from 1"),
                ({"x": x}, {"max_steps": True}, "max_steps is True; accepted: whole numbers from 1"),
                ({"x": x}, {"epochs": 1, "precision": "FP8"}, "precision is 'FP8'; accepted: FP32"),
                ({"x": x}, {"epochs": 1, "schedule": [(0, 1.0)]}, "schedule is [(0, 1.0)]; accepted: a dict from steps"),
                ({"x": x}, {"epochs": 1, "schedule": {0.5: 1.0}}, "schedule is {0.5: 1.0}; accepted: a dict from steps"),
                ({"x": x}, {"epochs": 1, "schedule": {0: float("nan")}}, "optimizer.schedule.points[0].factor is nan"),
                ({"x": x}, {"epochs": 1, "learning_rate": float("inf")}, "optimizer.learning_rate is inf"),
                ({}, {"epochs": 1}, "data has no example"),
                ([], {"epochs": 1}, "data has no example"),
                (7, {"epochs": 1}, "data is a int; accepted"),
                ({"x": x, "y": x[:5]}, {"epochs": 1}, "different numbers of examples: {'x': 8, 'y': 5}"),
                ({"no name": x}, {"epochs": 1}, "a field is called 'no name'"),
                ({"x": numpy.array(["a", None], dtype=object)}, {"epochs": 1}, "field x is not an array"),
                ({"x": numpy.full((8, 5), 1e300)}, {"epochs": 1}, "field x has 1e+300, which float32 cannot hold"),
                ((torch.zeros(3, 5), [0.0] * 30), {"epochs": 1}, "has the fields x0, x1, x2, x3, x4, x5, x6, x7, x8, x9 ..., the first one x; "),
                ({"x": x}, {"epochs": 1, "ranks": 1000}, "distributed.ranks is 1000; accepted: 1 to "),
                ({"\u00fcber": x}, {"epochs": 1}, "a field is called '\u00fcber'; accepted: names of letters from a to z"),
                ({"x": x[:1]}, {"epochs": 1}, "data has 1 example; accepted: 2 or more"),
                (Endless(), {"epochs": 1}, "data is a Endless with __getitem__ and without __len__"),
                ({"x": x}, {"epochs": 1, "spec": {"training": {"epochs": 9}}}, "spec has training.epochs, which is the argument epochs; give "),
                ({"x": x}, {"epochs": 1, "spec": {"training": {"max_steps": 9}}}, "spec has training.max_steps, which is the argument"),
                ({"x": x}, {"epochs": 1, "batch_size": 4, "spec": {"training": {"batch_size": 8}}}, "spec has training.batch_size, which is the"),
                ({"x": x}, {"epochs": 1, "spec": {"trainig": {}}}, "spec has 'trainig', which no job has; did you mean training?"),
                ({"x": x}, {"epochs": 1, "spec": {"amp": True}}, "spec has 'amp', which no job has; did you mean precision.mode?"),
                ({"x": x}, {"epochs": 1, "spec": {"optimizer": {"lr": 1}}}, "spec has 'optimizer.lr', which no job has; did you mean optimizer.learn"),
                ({"x": x}, {"epochs": 1, "spec": {"checkpoint": {"every": 3}}}, "spec has 'checkpoint.every', which no job has; did you mean every_"),
                ({"x": x}, {"epochs": 1, "spec": "training"}, "spec is a str; accepted: a dict"),
                ({"x": x}, {"epochs": 1, "holdout_fraction": 0}, "holdout_fraction is 0; accepted: above 0, at most 0.5"),
                ({"x": x}, {"epochs": 1, "seed": -1}, "seed is -1; accepted: whole numbers from 0"),
                ({"x": x}, {"epochs": 1, "precision": torch.bfloat16}, "precision is torch.bfloat16; accepted: FP32"),
                ({"x": x}, {"epochs": 1, "learning_rate": "1e-3"}, "learning_rate is '1e-3'; accepted: a number above 0"),
                (torch.utils.data.DataLoader(Endless(), sampler=range(3)), {"epochs": 1}, "data is a Endless with __getitem__ and without"),
                (pathlib.Path("absent.npz"), {"epochs": 1}, "data is 'absent.npz', and the file does not exist"),
                ({"x": x}, {"epochs": 1, "spec": {"training": {"batch_size": -4}}}, "training.batch_size is -4")):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                self.client.train(net(), data, **{"loss": lambda module, batch: module(batch["x"]).mean(), **options})
            self.assertIn(words, str(caught.exception))
        self.assertEqual(list(self.client.jobs()), [])

    def test_a_failed_job_says_why(self):
        data = classes(64)
        data["target"][40] = 17
        job = self.client.train(net(), data, loss="cross_entropy", epochs=40)
        with self.assertRaises(genesis.JobFailedError) as caught:
            job.watch()
        self.assertIn(f"job {job.id} FAILED: ", str(caught.exception))
        self.assertIs(caught.exception.job, job)


class Watching(ClientTest):
    @staticmethod
    def fast_job(max_steps, checkpoint):
        return {**harness.spec(max_steps=max_steps), "checkpoint": checkpoint, "precision": {"mode": "FP32"}}

    def long_job(self, **training):
        return self.client.submit(harness.spec(max_steps=100_000_000, **training))

    def test_events_go_on_through_a_killed_daemon_each_once(self):
        job = self.client.submit(self.fast_job(12_000, {"every_steps": 2000}))
        events, kills = [], 0
        for event in job.events():
            events.append(event)
            if kills < 2 and event.state == "RUNNING" and event.step > 1000 * (kills + 1):
                kills += 1
                self.restart()
        self.assertEqual((job.state, kills), ("SUCCEEDED", 2))
        sequences = [event.sequence for event in events if event.sequence]
        self.assertEqual(sequences, sorted(set(sequences)))
        kept = [event.sequence for event in self.client.job(job.id).events() if event.sequence]
        self.assertEqual(sequences, kept)
        self.assertEqual(events[-1].kind, "state_changed")
        past = [(event.kind, event.step, event.state) for event in self.client.job(job.id).events()]
        self.assertEqual([step for kind, step, _ in past if kind == "checkpoint_written"], list(range(2000, 12_001, 2000)))
        self.assertEqual([state for kind, _, state in past if kind == "state_changed"][:3], ["QUEUED", "STARTING", "RUNNING"])

    @tiers.nightly
    def test_events_of_all_jobs_go_on_through_a_killed_daemon(self):
        jobs = [self.client.submit({**self.fast_job(4000, {"every_steps": 2000}), "scheduling": {"labels": {"team": team}}})
                for team in ("a", "b")]
        events, killed, ended = [], False, set()
        for event in self.client.events():
            events.append(event)
            if not killed and event.kind == "checkpoint_written":
                killed = True
                self.restart()
            if event.kind == "state_changed" and event.state == "SUCCEEDED":
                ended.add(event.job.id)
            if len(ended) == 2:
                break
        self.assertEqual(ended, {job.id for job in jobs})
        sequences = [event.sequence for event in events if event.kind != "update"]
        self.assertEqual(sequences, list(range(1, len(sequences) + 1)), "each event once, without gaps")
        of_a = self.client.events(labels={"team": "a"}, kinds=["state_changed"], states=["SUCCEEDED"])
        self.assertEqual(next(of_a).job.id, jobs[0].id)
        last = next(self.client.events(kinds="state_changed", states="SUCCEEDED", job_id=jobs[1].id))
        self.assertEqual((last.job.owner, last.kind), ("anonymous", "state_changed"))
        paged, cursor = [], 0
        while len(paged) < len(sequences):
            page, cursor = self.client.events_page(cursor, page_size=3, wait_seconds=1)
            paged += [event.sequence for event in page]
        self.assertEqual(paged[:len(sequences)], sequences)
        with self.assertRaises(genesis.InvalidArgumentError) as caught:
            next(self.client.events(kinds=["log_line"]))
        self.assertIn("state_changed, precision_changed", str(caught.exception))

    def test_nobody_answers(self):
        job = self.long_job()
        self.daemon.stop()
        with self.assertRaises(genesis.UnavailableError) as caught:
            for _ in job.events(timeout=1):
                pass
        self.assertIn(f"the daemon at {self.daemon.grpc} is not available", str(caught.exception))

    def test_the_life_of_a_job(self):
        job = self.long_job()
        event = next(event for event in job.events() if event.step > 3)
        self.assertRegex(repr(event), rf"^Event\(kind='\w+', job='{job.id}', state='RUNNING', step={event.step}, loss=\S+\)$")
        kept = job.checkpoint("mine")
        self.assertEqual(kept.record.name, "mine")
        self.assertIn(job.pause().state, ("PAUSING", "PAUSED"))
        next(event for event in job.events() if event.state == "PAUSED")
        self.client.delete_checkpoint(kept.id)
        with self.assertRaises(genesis.FailedPreconditionError):
            self.client.delete_checkpoint(job.refresh().checkpoint().id)
        job.update(priority=7, labels={"a": "b"})
        self.assertEqual((job.message.priority, dict(job.message.labels)), (7, {"a": "b"}))
        self.assertEqual([each.id for each in self.client.jobs(states=["PAUSED"], labels={"a": "b"})], [job.id])
        job.resume()
        job.cancel()
        with self.assertRaises(genesis.JobFailedError):
            job.watch()
        with self.assertRaises(genesis.FailedPreconditionError) as caught:
            job.checkpoint("late")
        self.assertIn("'late'", str(caught.exception))
        self.assertIn("step", job.history()[0])
        # The row of the end may come between the two readings.
        steps = set(job.history_frame()["step"])
        self.assertTrue(steps and steps <= {row["step"] for row in job.history()}, steps)
        self.assertEqual(job.curves(["loss"])["last_step"], list(range(1, job.progress.step + 1)))
        self.assertEqual(list(job.curves_frame(["loss"], from_step=3, to_step=8, points=1)["steps"]), [6])
        self.assertGreaterEqual(len(job.checkpoints()), 1)
        self.assertGreaterEqual(job.delete(checkpoints=True), 1)
        with self.assertRaises(genesis.NotFoundError) as caught:
            self.client.job(job.id)
        self.assertIn(job.id, str(caught.exception))

    @tiers.nightly
    def test_a_bar_without_tqdm_and_with(self):
        for present in (True, False):
            said = io.StringIO()
            hidden = {} if present else {"tqdm.auto": None, "tqdm": None}
            with mock.patch.dict(sys.modules, hidden), contextlib.redirect_stderr(said):
                job = self.client.submit(self.fast_job(3000, {})).watch(progress=True)
            self.assertIn(job.id, said.getvalue())
            self.assertIn("3000/3000", said.getvalue())


class Files(ClientTest):
    def write(self, size, name="rows.npz"):
        path = pathlib.Path(self.data_dir) / name
        path.write_bytes(random.randbytes(size))
        return path

    def test_an_upload_through_killed_daemons_and_the_same_again(self):
        most, size = int(os.environ.get("GENESIS_UPLOAD_KILLS", "4")), int(os.environ.get("GENESIS_UPLOAD_MIB", "48"))
        path = pathlib.Path(self.data_dir) / "rows.npz"
        with open(path, "wb") as file:
            for _ in range(size):
                file.write(random.randbytes(1 << 20))
            file.write(random.randbytes(random.randrange(1, 1000)))
        kills, grown, before = 0, 0, self.memory("VmRSS")

        def seen(there, size):
            nonlocal kills, grown, before
            grown = max(grown, self.memory("VmHWM") - before)
            if kills < most and there > (kills + 1) * size / (most + 1):
                kills += 1
                self.restart()
                before = self.memory("VmRSS")

        found = self.client.upload(path, on_progress=seen)
        self.assertEqual(kills, most)
        # Under a sanitizer, half of the memory belongs to the sanitizer.
        most_grown = (64 if os.environ.get("GENESIS_SANITIZED") else 32) << 10
        self.assertLess(grown, most_grown, "kB that the daemon grew by")
        stored = self.daemon.data_dir / "datasets" / found
        self.assertEqual(hashlib.sha256(stored.read_bytes()).hexdigest(), transfer.sha256_of(path))
        self.assertEqual([each.name for each in stored.parent.iterdir()], [stored.name])
        self.assertIn(found, [each.name for each in self.client.datasets()])
        sent = []
        real = self.client.connection.call

        def counted(method, request=None, **fields):
            sent.append(fields)
            return real(method, request, **fields)

        self.client.connection.call = counted
        self.assertEqual(self.client.upload(path), found)
        self.assertLess(len(repr(sent)), 1024)
        self.client.delete_dataset(found)
        self.assertFalse(stored.exists())

    def memory(self, what):
        """Returns the daemon's memory in KiB. `what` is a name in /proc/PID/status."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(f"{what}:")).split()[1])

    def test_a_full_disk_refuses_an_upload_before_any_of_it_is_there(self):
        disk = self.daemon.data_dir / "disk"
        disk.mkdir()
        harness.mount_disk(disk, "24m", self.addCleanup)
        self.daemon.stop()
        (self.daemon.data_dir / "genesisd.yaml").write_text(f"datasets: {{root: {disk}}}\n")
        self.daemon = self.start("--config", str(self.daemon.data_dir / "genesisd.yaml"))
        client = self.client_of(self.daemon.grpc)
        with self.assertRaisesRegex(genesis.ResourceExhaustedError, r"the disk has \d+ bytes free and file .* needs 41943040; free some"):
            client.upload(self.write(40 << 20))
        self.assertEqual(list((disk / "uploads").iterdir()), [])
        self.assertEqual(list(client.datasets()), [])
        self.assertIn(client.upload(self.write(1 << 20)), [each.name for each in client.datasets()])

    def test_several_senders_of_one_file(self):
        path = self.write(9_000_001)
        found = []
        threads = [threading.Thread(target=lambda: found.append(self.client_of(self.daemon.grpc).upload(path))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(harness.LONG)
        self.assertEqual(len(found), 4)
        self.assertEqual(len(set(found)), 1)

    def test_files_that_cannot_be_sent(self):
        with self.assertRaises(FileNotFoundError):
            self.client.upload("/nowhere/rows.npz")
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "the name has no ending"):
            self.client.upload(self.write(10, "rows"))
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "size_bytes is 0"):
            self.client.upload(self.write(0))
        self.assertEqual(list((self.daemon.data_dir / "datasets").glob("uploads/*")), [])

    def test_a_full_quota_names_the_setting(self):
        self.daemon.stop()
        (self.daemon.data_dir / "genesisd.yaml").write_text("datasets: {max_uploads_bytes: 1000000}\n")
        self.daemon = self.start("--config", str(self.daemon.data_dir / "genesisd.yaml"))
        client = self.client_of(self.daemon.grpc)
        client.upload(self.write(600_000))
        with self.assertRaisesRegex(genesis.ResourceExhaustedError, "datasets.max_uploads_bytes"):
            client.upload(self.write(600_000))

    def test_genesisctl_sends_what_a_job_file_names(self):
        folder = pathlib.Path(self.data_dir) / "laptop"
        folder.mkdir()
        data = classes(64)
        numpy.savez(folder / "rows.npz", **{name: value.astype("float32") if name == "x" else value for name, value in data.items()})
        batch = {"x": torch.zeros(4, 5), "target": torch.zeros(4, dtype=torch.int64)}
        genesis.export(net(), batch, folder / "net.pt2", loss="cross_entropy", precisions=["FP32"])
        (folder / "job.yaml").write_text(json.dumps({
            "model": {"exported": {"path": "net.pt2"}}, "dataset": {"arrays": {"path": "rows.npz"}}, "training": {"max_steps": 5, "batch_size": 16}}))
        job = self.daemon.ctl("train", "--upload", "-f", str(folder / "job.yaml"))
        self.assertRegex(job["spec"]["model"]["exported"]["path"], "^uploads/[0-9a-f]{64}.pt2$")
        self.assertEqual(self.daemon.wait_for_end(job["id"])["state"], "JOB_STATE_SUCCEEDED")
        done = self.daemon.ctl("upload", str(folder / "rows.npz"), check=False)
        self.assertEqual(done.stdout.strip(), job["spec"]["dataset"]["arrays"]["path"])
        missing = self.daemon.ctl("upload", str(folder / "none.npz"), check=False)
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("none.npz: No such file", missing.stderr)

    def test_checkpoints_come_and_go(self):
        job = self.client.submit(harness.spec(max_steps=20)).watch()
        path = pathlib.Path(self.data_dir) / "there.pt"
        job.checkpoint().download(path)
        again = self.client.import_checkpoint(path, "from-elsewhere")
        self.assertEqual(again.record.size_bytes, path.stat().st_size)
        for name, value in job.checkpoint().model_state_dict.items():
            self.assertTrue(torch.equal(value, again.model_state_dict[name]))
        with self.assertRaises(FileExistsError):
            again.download(path)
        # An earlier attempt is continued. If its part belongs to another file, that is reported and the part is removed.
        whole = path.read_bytes()
        path.unlink()
        part = path.with_name("there.pt.part")
        part.write_bytes(whole[:1000])
        again.download(path)
        self.assertEqual(path.read_bytes(), whole)
        path.unlink()
        part.write_bytes(bytes(1000))
        with self.assertRaises(genesis.DataLossError):
            again.download(path)
        self.assertFalse(path.exists() or part.exists())
        self.client.delete_checkpoint("from-elsewhere")

    def test_the_checksum(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        data = random.randbytes(5000)
        cut = random.randrange(5000)
        self.assertEqual(crc32c(data[cut:], crc32c(data[:cut])), crc32c(data))
        from genesis import crc32c as module
        self.assertEqual(crc32c(data), module._plain(0xFFFFFFFF, data) ^ 0xFFFFFFFF)


class Environment:
    """A gymnasium environment in which a point is pushed."""

    def reset(self):
        self.at, self.left = numpy.random.default_rng().normal(size=2), 20
        return self.at.copy(), {}

    def step(self, action):
        self.at = 0.9 * self.at + action
        self.left -= 1
        return self.at.copy(), -float(self.at @ self.at), bool(abs(self.at).max() > 3), self.left == 0, {}


class Trajectories(ClientTest):
    def test_an_environment_is_recorded_and_trained_on(self):
        environment, generator, steps = Environment(), numpy.random.default_rng(), 0
        with self.client.append("points", capacity=10_000) as buffer:
            for episode in range(30):
                observation, _ = environment.reset()
                over = False
                while not over:
                    action = generator.normal(size=2) * 0.3
                    following, reward, terminated, truncated, _ = environment.step(action)
                    buffer.add(observation, action, reward, following, terminated, truncated)
                    observation, over, steps = following, terminated or truncated, steps + 1
                if episode == 10:
                    self.restart()
            environment.reset()
            buffer.add(observation, action, 0.0, following)
        self.assertEqual((buffer.transitions, buffer.buffer_transitions), (steps + 1, steps + 1))
        self.assertEqual({each.name: each.transitions for each in self.client.datasets()}["points"], steps + 1)
        self.client.submit({"model": {"world_model": {"hidden_size": 16}}, "dataset": {"replay": {"path": "points"}},
                            "training": {"max_steps": 20}}).watch()

    def test_priorities_are_those_of_the_transitions(self):
        buffer = self.client.append("ranked")
        rows = numpy.ones((4, 2), "f4")
        with mock.patch.object(buffer, "_send"):
            buffer.extend(rows, rows, numpy.zeros(4), rows, [False, True, False, False], priorities=[3, 1e-3, 2, 0.5])
            buffer.add(rows[0], rows[0], 0.0, rows[0], True, priority=7)
        sent = [training_service_pb2.AppendTrajectoriesRequest.FromString(each.requests[0].encoded) for each in buffer._unsent]
        self.assertEqual([[round(value, 6) for value in each.priorities] for each in sent], [[3, 0.001], [2, 0.5, 7]])
        buffer.flush()
        self.assertEqual(buffer.buffer_transitions, 5)
        for priorities, words in (([1], "priorities has 1 numbers for 4 transitions; accepted: one for each"),
                                  ([1, 0, 1, 1], "transition 1: priority is 0; accepted: a finite number > 0, or none")):
            with self.assertRaisesRegex(genesis.InvalidArgumentError, words):
                buffer.extend(rows, rows, numpy.zeros(4), rows, [False, False, False, True], priorities=priorities)
        buffer.add(rows[0], rows[0], 0.0, rows[0], priority=1)
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "some transitions of the episode have a priority and some have none"):
            buffer.add(rows[0], rows[0], 0.0, rows[0])

    def test_transitions_of_another_size(self):
        buffer = self.client.append("sizes")
        buffer.add([1.0, 2.0], 3.0, 0.0, [1.0, 2.0])
        with self.assertRaisesRegex(ValueError, "accepted: 2, 1 and 2, as before"):
            buffer.add([1.0], 3.0, 0.0, [1.0])

    def test_transitions_that_are_no_numbers_are_refused(self):
        buffer, masked = self.client.append("values"), numpy.ma.masked_array([1.0, 2.0], mask=[False, True])
        for transition, words in (((masked, 0.0, 0.0, [1.0, 2.0]), "observation is masked_array"),
                                  (([1.0, 2.0], numpy.ma.masked, 0.0, [1.0, 2.0]), "action is masked: some of its values are masked"),
                                  (([1.0, 2.0], 0.0, "much", [1.0, 2.0]), "reward is 'much'"),
                                  (([1.0, None], 0.0, 0.0, [1.0, 2.0]), "observation is None"),
                                  (([1.0, 2.0], 0.0, [1.0, 2.0], [1.0, 2.0]), "reward is [1.0, 2.0]; accepted: one number")):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                buffer.add(*transition)
            self.assertIn(words, str(caught.exception))
        self.assertEqual(buffer.transitions, 0)
        buffer.add(numpy.ma.masked_array([1.0, 2.0], mask=False), torch.tensor([0.5], dtype=torch.bfloat16), numpy.float16(1), (1, 2), True)
        self.assertEqual(buffer.transitions, 1)


class Secured(harness.DaemonTest):
    def test_tls_and_tokens(self):
        authority = secure.Authority(pathlib.Path(self.data_dir) / "tls")
        certificate, key = authority.issue("localhost")
        token, line = secure.new_token("ann", "viewer")
        tokens = secure.write_secret(pathlib.Path(self.data_dir) / "tokens", line + "\n")
        daemon = self.start("--tls-certificate-file", str(certificate), "--tls-key-file", str(key), "--auth-tokens-file", str(tokens))
        with genesis.Client(daemon.grpc, token=token, tls_ca=authority.certificate) as client:
            self.assertTrue(client.server_info().ready)
            with self.assertRaises(genesis.PermissionDeniedError) as caught:
                client.submit(harness.spec())
            self.assertIn("submitter", str(caught.exception))
        with genesis.Client(daemon.grpc, token="wrong", tls_ca=authority.certificate) as client:
            with self.assertRaises(genesis.UnauthenticatedError):
                client.stats()
        token_file = secure.write_secret(pathlib.Path(self.data_dir) / "token", "expired\n")
        with genesis.Client(daemon.grpc, token_file=token_file, tls_ca=authority.certificate) as client:
            with self.assertRaises(genesis.UnauthenticatedError):
                client.stats()
            secure.write_secret(token_file, token + "\n")
            client.stats()
        with self.assertRaisesRegex(ValueError, "unencrypted to trainer.example:50051"):
            genesis.Client("trainer.example:50051", token=token)
        with self.assertRaisesRegex(ValueError, "belong together"):
            genesis.Client(tls_ca=authority.certificate, tls_cert=certificate)


class Asyncio(ClientTest):
    @tiers.nightly
    def test_several_jobs_at_once(self):
        async def one(client, number):
            job = await client.submit(harness.spec(max_steps=200 + number))
            kinds = [event.kind async for event in job.events()]
            await job.watch()
            checkpoint = await job.checkpoint()
            self.assertEqual(checkpoint.step, 200 + number)
            return kinds

        async def all_of_them():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                found = await asyncio.gather(*(one(client, number) for number in range(3)))
                self.assertEqual(len(await client.jobs()), 3)
                with self.assertRaises(genesis.NotFoundError):
                    await client.job("nobody")
                return found

        for kinds in asyncio.run(all_of_them()):
            self.assertEqual(kinds[-1], "state_changed")

    def test_events_of_all_jobs_may_be_left_early(self):
        async def first_end():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                job = await client.submit(harness.spec(max_steps=50))
                async for event in client.events(kinds=["state_changed"], states=["SUCCEEDED"]):
                    return job.id, event.job.id

        submitted, ended = asyncio.run(first_end())
        self.assertEqual(submitted, ended)


class Whole(ClientTest):
    def test_every_method_of_the_service_has_a_caller(self):
        source = "".join(inspect.getsource(each) for each in (genesis.client, genesis.dashboard, genesis.job, genesis.predictions, genesis.sweep,
                                                                genesis.transfer, genesis.trajectories, genesis.weights))
        for method in connection.SERVICE.methods:
            self.assertTrue(f'"{method.name}"' in source, method.name)

    def test_what_operators_ask(self):
        self.assertTrue(self.client.server_info().ready)
        self.assertTrue(self.client.precision_policy().reduced_precision_enabled)
        self.assertFalse(self.client.set_precision_policy(False, reason="a test", application="AT_ONCE").reduced_precision_enabled)
        self.assertTrue(self.client.set_precision_policy(True).reduced_precision_enabled)
        self.assertIn("grpc.listen", [each.key for each in self.client.config()])
        self.assertEqual(self.client.reload_config(), [])
        self.assertGreater(self.client.backup().size_bytes, 0)
        self.assertEqual(self.client.stats().training_steps, 0)
        self.assertEqual(list(self.client.history()), [])
        self.assertEqual(list(self.client.webhook_deliveries()), [])
        worker = harness.wait_for("a worker", lambda: list(self.client.workers().workers))[0]
        self.assertTrue(self.client.drain_worker(worker.id).draining)
        with self.assertRaises(genesis.NotFoundError):
            self.client.checkpoint("none")
        self.assertEqual(list(self.client.checkpoints()), [])

    def test_a_value_of_another_type_is_named(self):
        client, folder = self.client, tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        missing, small = pathlib.Path(folder.name) / "none.pt", pathlib.Path(folder.name) / "small.pt"
        small.write_bytes(b"x")
        for call, told in (
                (lambda: client.job(5), "job_id is 5; accepted: text"),
                (lambda: client.job(None), "job_id is None; accepted: text"),
                (lambda: client.delete_dataset(b"\xff"), r"name is b'\xff'; accepted: text"),
                (lambda: list(client.jobs(owner=5)), "owner is 5; accepted: text"),
                (lambda: list(client.jobs(labels={"a": 1})), "labels is {'a': 1}; accepted: a dict of text to text"),
                (lambda: list(client.jobs(states=["NOPE"])), "states is 'NOPE'; accepted: QUEUED, STARTING, RUNNING, "),
                (lambda: list(client.jobs(order="BAD")), "order is 'BAD'; accepted: NEWEST_FIRST, "),
                (lambda: client.set_precision_policy(True, application="X"), "application is 'X'; accepted: NEW_ATTEMPTS, "),
                (lambda: client.set_precision_policy("no"), "reduced_precision_allowed is 'no'; accepted: True or False"),
                (lambda: client.stats(2 ** 80), f"window_seconds is {2 ** 80}; accepted: a whole number of "),
                (lambda: client.submit(None), "the specification is a NoneType; accepted: a dict "),
                (lambda: client.submit({"training": 5}), "spec has training = 5; accepted: a dict of "),
                (lambda: client.import_checkpoint(small, 5), "checkpoint_id is 5; accepted: text"),
                (lambda: genesis.Client(5), "server is 5; accepted: HOST:PORT"),
                (lambda: genesis.Client("127.0.0.1:99999"), "server is '127.0.0.1:99999'; accepted: HOST:PORT with a port from 1 to 65535"),
                (lambda: genesis.Client(timeout=-1), "timeout is -1; accepted: a number of seconds above 0"),
                (lambda: genesis.Client(timeout="x"), "timeout is 'x'; accepted: ")):
            with self.subTest(told), self.assertRaises(genesis.InvalidArgumentError) as caught:
                call()
            self.assertIn(told, str(caught.exception))
        with self.assertRaises(FileNotFoundError) as caught:
            client.import_checkpoint(missing, "a")
        self.assertIn(str(missing), str(caught.exception))
        self.assertEqual(list(client.jobs(states="RUNNING")), [])

    def test_messages_have_types(self):
        package = pathlib.Path(genesis.__file__).parent
        self.assertTrue((package / "py.typed").exists())
        self.assertIn("class JobSpec", (package / "training" / "v1" / "job_pb2.pyi").read_text())
        self.assertFalse((package / "training" / "v1" / "worker_service_pb2.py").exists())


if __name__ == "__main__":
    unittest.main()
