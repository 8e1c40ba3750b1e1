"""Tests that Python loads the checkpoints of genesis-worker, and that genesis-worker reads files written by Python."""

import collections
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import picklescan.scanner
import safetensors.torch
import torch
from torch import nn

DRIVER = os.environ["GENESIS_CHECKPOINT_DRIVER"]
SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
NUMPY_TYPES = {"float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "u2", "int64": "i8",
               "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1", "bool": "?"}


class Model(nn.Module):
    """The model of tests/trainer/state_for_test.h, whose output layer is tied to its first layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2)
        self.output = nn.Linear(3, 4, bias=False)
        self.output.weight = self.first.weight
        self.register_buffer("mean", torch.zeros(3))

    def groups(self):
        weights, biases = [self.first.weight, self.second.weight], [self.first.bias,
                                                                    self.second.bias]
        return [{"params": weights, "weight_decay": 0.5}, {"params": biases}]


OPTIMIZERS = {
    "ADAMW": lambda groups: torch.optim.AdamW(groups, lr=1.0),
    "ADAM": lambda groups: torch.optim.Adam(groups, lr=1.0),
    "SGD": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=0.5, nesterov=True),
}


def step_by_hand(kind, group, state, weight, gradient):
    """Returns the weight after one step by the textbook formula, in float64."""
    weight, gradient = weight.double(), gradient.double()
    lr, decay = group["lr"], group["weight_decay"]
    if kind == "SGD":
        gradient = gradient + decay * weight
        momentum = group["momentum"] * state["momentum_buffer"].double() + gradient
        return weight - lr * (gradient + group["momentum"] * momentum)
    if kind == "ADAMW":
        weight = weight * (1 - lr * decay)
    else:
        gradient = gradient + decay * weight
    (beta1, beta2), t = group["betas"], state["step"].item() + 1
    first = beta1 * state["exp_avg"].double() + (1 - beta1) * gradient
    second = beta2 * state["exp_avg_sq"].double() + (1 - beta2) * gradient**2
    deviation = (second / (1 - beta2**t)).sqrt() + group["eps"]
    return weight - lr * (first / (1 - beta1**t)) / deviation


class CheckpointCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def drive(self, *arguments):
        done = subprocess.run([DRIVER, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fault(self, *arguments):
        done = subprocess.run([DRIVER, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def written(self, kind, seed=1, name="x.pt"):
        path = self.folder / name
        self.drive("write", path, kind, seed)
        return path

    def save(self, value, name="python.pt", **options):
        path = self.folder / name
        torch.save(value, path, **options)
        return path

    def rewritten(self, path):
        self.drive("rewrite", path, self.folder / "rewritten.pt")
        return torch.load(self.folder / "rewritten.pt")

    def read(self, path, kind="model"):
        """Returns the tensors that ReadWeights found, by name, and the storage of each."""
        raw = self.folder / "raw"
        lines = [json.loads(line) for line in self.drive("weights", path, kind, raw).splitlines()]
        data = raw.read_bytes()
        tensors = {}
        for line in lines:
            count = int(numpy.prod(line["shape"], dtype=int))
            array = numpy.frombuffer(data, NUMPY_TYPES[line["type"]], count, line["offset"])
            tensor = torch.from_numpy(array.copy()).reshape(line["shape"])
            if line["type"] == "bfloat16":
                tensor = tensor.view(torch.bfloat16)
            tensors[line["name"]] = tensor
        return tensors, {line["name"]: line["storage"] for line in lines}

    def same(self, a, b, path=""):
        """Checks that both trees have equal types and bitwise equal values."""
        if isinstance(a, torch.Tensor):
            self.assertIsInstance(b, torch.Tensor, path)
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), path)
            self.assertTrue(torch.equal(a, b), path)
        elif isinstance(a, dict):
            self.assertEqual(list(a), list(b), path)
            for key in a:
                self.same(a[key], b[key], f"{path}.{key}")
        elif isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b), path)
            for i, (x, y) in enumerate(zip(a, b)):
                self.same(x, y, f"{path}.{i}")
        else:
            self.assertEqual((type(a), a), (type(b), b), path)


class OursInPython(CheckpointCase):
    def test_default_load_opens_and_the_model_takes_it(self):
        for kind in OPTIMIZERS:
            checkpoint = torch.load(self.written(kind))
            weights = checkpoint["model_state_dict"]
            self.assertTrue(all(w.dtype == torch.float32 for w in weights.values()))
            self.assertEqual(weights["output.weight"].data_ptr(),
                             weights["first.weight"].data_ptr())
            model = Model()
            model.load_state_dict(weights)
            self.same(weights["second.bias"], model.second.bias.data)
            model.load_state_dict({**weights, **checkpoint["ema_state_dict"]})
            self.same(checkpoint["ema_state_dict"]["first.weight"], model.first.weight.data)

    def test_map_location_and_mmap_work(self):
        path = self.written("ADAMW")
        plain = torch.load(path, map_location="cpu")
        self.same(plain, torch.load(path, mmap=True, weights_only=True))

    def test_optimizer_takes_its_next_step_as_the_textbook_says(self):
        for kind, make in OPTIMIZERS.items():
            for fused in (True, False):
                checkpoint = torch.load(self.written(kind))
                saved = checkpoint["optimizer_state_dict"]
                for group in saved["param_groups"]:
                    self.assertTrue(group["fused"])
                    group["fused"] = fused
                model = Model()
                model.load_state_dict(checkpoint["model_state_dict"])
                optimizer = make(model.groups())
                optimizer.load_state_dict(copy.deepcopy(saved))
                wanted = {}
                torch.manual_seed(5)
                for group, kept in zip(optimizer.param_groups, saved["param_groups"]):
                    for parameter, number in zip(group["params"], kept["params"]):
                        parameter.grad = torch.randn_like(parameter)
                        wanted[parameter] = step_by_hand(kind, kept, saved["state"][number],
                                                         parameter.data, parameter.grad)
                optimizer.step()
                for parameter, value in wanted.items():
                    torch.testing.assert_close(parameter.data, value.float(), rtol=2e-6,
                                               atol=2e-7, msg=f"{kind} fused={fused}")

    def test_groups_have_every_key_of_pythons_own(self):
        for kind, make in OPTIMIZERS.items():
            own = make(Model().groups()).state_dict()["param_groups"]
            ours = torch.load(self.written(kind))["optimizer_state_dict"]["param_groups"]
            self.assertEqual({*own[0], "initial_lr"}, set(ours[0]))
            self.assertEqual([g["weight_decay"] for g in ours], [0.1, 0.0])
            self.assertEqual((ours[0]["lr"], ours[0]["initial_lr"]), (1.5e-3, 2e-3))
            self.assertEqual([g["params"] for g in ours], [[0, 2], [1, 3]])

    def test_a_schedule_of_python_continues(self):
        model = Model()
        optimizer = OPTIMIZERS["ADAMW"](model.groups())
        optimizer.load_state_dict(torch.load(self.written("ADAMW"))["optimizer_state_dict"])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5, last_epoch=7)
        self.assertEqual(schedule.get_last_lr(), [1e-3, 2e-3])

    def test_scaler_takes_its_state(self):
        scaler = torch.amp.GradScaler("cpu")
        scaler.load_state_dict(torch.load(self.written("ADAM"))["scaler_state_dict"])
        self.assertEqual(scaler.get_scale(), 4096.0)
        self.assertEqual(scaler.state_dict()["_growth_tracker"], 17)
        scaler.scale(torch.zeros(1))
        self.assertEqual(scaler.state_dict(),
                         torch.load(self.written("ADAM"))["scaler_state_dict"])

    def test_the_generators_state_is_torchs(self):
        torch.set_rng_state(torch.load(self.written("SGD", seed=3))["genesis"]["rng_state"])

    def test_equal_states_give_equal_files(self):
        self.assertEqual(self.written("SGD", name="a.pt").read_bytes(),
                         self.written("SGD", name="b.pt").read_bytes())

    def test_picklescan_finds_nothing(self):
        for kind in OPTIMIZERS:
            result = picklescan.scanner.scan_file_path(str(self.written(kind)))
            self.assertEqual((result.scan_err, result.issues_count, result.infected_files),
                             (False, 0, 0))
            self.assertGreater(result.scanned_files, 0)
            self.assertEqual({g.safety.name for g in result.globals}, {"Innocuous"})


class Verification(CheckpointCase):
    def verify(self, *arguments):
        done = subprocess.run([sys.executable, SOURCE / "deploy/verify_checkpoint.py",
                               *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout

    def test_the_script_agrees_with_the_program(self):
        path = self.written("ADAMW")
        self.assertEqual(self.verify(path),
                         (0, f"{path}: ok: step 9, MIXED_FP16, held-out loss None\n"))
        whole = path.read_bytes()
        cases = {"cut off": whole[:-100], "a bit of a tensor": bytearray(whole),
                 "a bit between the records": bytearray(whole)}
        cases["a bit of a tensor"][whole.index(b"Z" * 20) + 70] ^= 4
        cases["a bit between the records"][whole.index(b"Z" * 10) + 5] ^= 4
        for name, damaged in cases.items():
            path.unlink()
            path.write_bytes(damaged)
            code, said = self.verify(path)
            self.assertEqual((code, "DAMAGED" in said), (1, True), name)
            self.assertIn(str(path), self.fault("verify", path), name)
        self.assertIn("is damaged between its records", self.fault("verify", path))
        torch.save(torch.load(path), self.folder / "again.pt")
        path.unlink()
        os.rename(self.folder / "again.pt", path)
        self.assertIn("was written for another file", self.drive("verify", path))
        code, said = self.verify(path)
        self.assertEqual((code, "written for another file" in said), (0, True), said)

    def test_two_files_one_damaged(self):
        good, bad = self.written("SGD", name="good.pt"), self.written("SGD", name="bad.pt")
        os.truncate(bad, 5000)
        code, said = self.verify("--quick", good, bad, self.folder / "none.pt")
        self.assertEqual(code, 1)
        self.assertEqual([line.split(": ")[1] for line in said.splitlines()],
                         ["ok", "DAMAGED", "DAMAGED"])


class Page(CheckpointCase):
    def test_the_blocks_of_the_page_run(self):
        page = (SOURCE / "docs/checkpoints.md").read_text()
        load, groups, _ = [block.split("```")[0] for block in page.split("```python\n")[1:]]
        for kind, make in OPTIMIZERS.items():
            path = self.written(kind)
            names = {"path": str(path), "model": Model(), "torch": torch,
                     "checkpoint": torch.load(path)}
            if kind == "ADAMW":
                exec(groups, names)
            else:
                names["optimizer"] = make(names["model"].groups())
            exec(load, names)
            average = names["checkpoint"]["ema_state_dict"]["second.weight"]
            self.same(average, names["model"].second.weight.data)
            self.assertEqual(names["optimizer"].param_groups[0]["weight_decay"], 0.1)
            self.assertEqual(names["scaler"].get_scale(), 4096.0)
            numbers = names["checkpoint"]["genesis"]["parameter_groups"]
            first = names["optimizer"].param_groups[0]["params"]
            self.assertEqual([id(p) for p in first],
                             [id(names["model"].first.weight), id(names["model"].second.weight)])
            self.assertEqual(numbers, [[0, 2], [1, 3]])

    def test_the_page_names_every_entry(self):
        page = (SOURCE / "docs/checkpoints.md").read_text()
        checkpoint = torch.load(self.written("ADAMW"))
        for name in [*checkpoint, *checkpoint["genesis"], *checkpoint["genesis"]["scaler"],
                     *checkpoint["genesis"]["policy"], *checkpoint["genesis"]["evaluation"]]:
            self.assertIn(name, page)


class PythonsInOurs(CheckpointCase):
    def test_a_checkpoint_comes_back_whole(self):
        for kind in OPTIMIZERS:
            path = self.written(kind)
            self.same(torch.load(path), self.rewritten(path))

    def test_after_torch_save_with_every_protocol(self):
        checkpoint = torch.load(self.written("ADAMW"))
        for protocol in (2, 3, 4, 5):
            path = self.save(checkpoint, pickle_protocol=protocol)
            self.same(checkpoint, self.rewritten(path))

    def test_after_training_on_in_python(self):
        for kind, make in OPTIMIZERS.items():
            checkpoint = torch.load(self.written(kind))
            model = Model()
            model.load_state_dict(checkpoint["model_state_dict"])
            optimizer = make(model.groups())
            optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
            scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
            for _ in range(2):
                optimizer.zero_grad()
                loss = model.second(model.first(torch.randn(5, 3))).square().sum()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            # Python orders the weights by module and numbers the parameters by group.
            checkpoint["model_state_dict"] = model.state_dict()
            checkpoint["optimizer_state_dict"] = saved = optimizer.state_dict()
            checkpoint["scaler_state_dict"] = scaler.state_dict()
            self.assertEqual([g["params"] for g in saved["param_groups"]], [[0, 1], [2, 3]])
            read = self.rewritten(self.save(checkpoint))
            for name, weight in model.state_dict().items():
                self.same(weight, read["model_state_dict"][name], name)
            self.assertEqual(read["scaler_state_dict"], scaler.state_dict())
            names = read["genesis"]["parameters"]
            numbers = {id(p): names.index(n) for n, p in model.named_parameters()}
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.same(dict(optimizer.state[parameter]),
                              read["optimizer_state_dict"]["state"][numbers[id(parameter)]])

    def test_a_parameter_that_never_had_a_gradient_has_no_state(self):
        for kind, make in OPTIMIZERS.items():
            checkpoint = torch.load(self.written(kind))
            model = Model()
            optimizer = make(model.groups())
            model.first(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
            checkpoint["model_state_dict"] = model.state_dict()
            checkpoint["optimizer_state_dict"] = saved = optimizer.state_dict()
            self.assertLess(len(saved["state"]), len(list(model.parameters())))
            read = self.rewritten(self.save(checkpoint))["optimizer_state_dict"]["state"]
            names = checkpoint["genesis"]["parameters"]
            for name, parameter in model.named_parameters():
                ours = read[names.index(name)]
                if parameter in optimizer.state:
                    self.same(dict(optimizer.state[parameter]), ours, name)
                else:
                    self.assertEqual([value.abs().sum().item() for value in ours.values()],
                                     [0.0] * len(ours), name)

    def test_sgd_without_momentum_and_a_run_without_scaler(self):
        checkpoint = torch.load(self.written("SGD"))
        optimizer = torch.optim.SGD(Model().groups(), lr=0.5)
        checkpoint["optimizer_state_dict"] = optimizer.state_dict()
        checkpoint["scaler_state_dict"] = {}
        checkpoint["genesis"]["scaler"] = None
        read = self.rewritten(self.save(checkpoint))
        self.assertEqual(read["optimizer_state_dict"]["state"], {})
        self.assertEqual(read["optimizer_state_dict"]["param_groups"][0]["momentum"], 0)
        self.assertEqual(read["scaler_state_dict"], {})

    def test_format_1_of_release_0_1_0(self):
        model = nn.Linear(3, 2)
        model.register_buffer("mean", torch.ones(3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        state = {n: model.state_dict()[n] for n in ("weight", "bias", "mean")}
        first = {
            "model_state_dict": state, "optimizer_state_dict": optimizer.state_dict(),
            "scaler_state_dict": {},
            "genesis": {"format_version": 1, "step": 12, "samples": 768, "skipped_steps": 2,
                        "reduced_precision_steps": 0, "epoch": 1, "batch_in_epoch": 4,
                        "seed": str(2**64 - 1), "loss": 0.5, "mode": "FP32",
                        "rng_state": torch.get_rng_state()}}
        read = self.rewritten(self.save(first))
        self.same(state, read["model_state_dict"])
        self.same(optimizer.state_dict()["state"], read["optimizer_state_dict"]["state"])
        group = read["optimizer_state_dict"]["param_groups"][0]
        self.assertEqual((group["lr"], group["initial_lr"], group["params"]), (0.01, 0.01, [0, 1]))
        self.assertEqual(read["genesis"]["format_version"], 2)
        self.assertEqual(read["genesis"]["applied_steps"], 10)
        for key, value in first["genesis"].items():
            if key != "format_version":
                self.same(value, read["genesis"][key], key)

    def test_faults_name_entry_value_and_what_is_accepted(self):
        def broken(change):
            checkpoint = torch.load(self.written("ADAMW"))
            change(checkpoint)
            return self.fault("rewrite", self.save(checkpoint), self.folder / "y.pt")

        def model(c):
            return c["model_state_dict"]

        def optimizer(c):
            return c["optimizer_state_dict"]

        cases = {
            "entry genesis is missing": lambda c: c.pop("genesis"),
            "genesis.format_version is 3; accepted: 1 to 2": (
                lambda c: c["genesis"].update(format_version=3)),
            'genesis.step is the string "nine"; accepted: an integer': (
                lambda c: c["genesis"].update(step="nine")),
            "genesis.step is -1; accepted: 0 or more": lambda c: c["genesis"].update(step=-1),
            'genesis.mode is "FP8"; accepted: FP32, FP16': (
                lambda c: c["genesis"].update(mode="FP8")),
            "model_state_dict.mean is a float16 tensor of shape [3]; accepted: float32": (
                lambda c: model(c).update(mean=torch.zeros(3).half())),
            "model_state_dict lacks a name that genesis.parameters lists": (
                lambda c: model(c).pop("second.bias")),
            "state.2.exp_avg is a float32 tensor of shape [4, 2]; accepted: that of a float32 "
            "tensor of shape [2, 4], parameter \"second.weight\"": (
                lambda c: optimizer(c)["state"][2].update(exp_avg=torch.zeros(4, 2))),
            "optimizer_state_dict.state.0.exp_avg is missing": (
                lambda c: optimizer(c)["state"][0].pop("exp_avg")),
            "param_groups.1.params has 1 parameters; accepted: 2": (
                lambda c: optimizer(c)["param_groups"][1].update(params=[1])),
            "scaler_state_dict.scale is not above 0": (
                lambda c: c["scaler_state_dict"].update(scale=0.0)),
        }
        for wanted, change in cases.items():
            self.assertIn(wanted, broken(change))


class Weights(CheckpointCase):
    def tensors(self):
        shared = torch.arange(12, dtype=torch.float32)
        return collections.OrderedDict(
            half=torch.tensor([1.5, -2.0], dtype=torch.float16),
            brain=torch.tensor([[1.5], [3e38]], dtype=torch.bfloat16),
            double=torch.tensor([1 / 3], dtype=torch.float64),
            long=torch.tensor([2**62, -1]), flag=torch.tensor([True, False, True]),
            small=torch.tensor([-7], dtype=torch.int8), byte=torch.tensor([255], dtype=torch.uint8),
            scalar=torch.tensor(2.5), count=torch.tensor(3), empty=torch.empty(0, 4),
            transposed=shared.view(3, 4).t(), middle=shared[4:8], every=shared[::3],
            expanded=torch.tensor([[1.0], [2.0]]).expand(2, 3), shared=shared,
            parameter=nn.Parameter(torch.randn(2, 2)))

    def check(self, saved, path, kind="model"):
        read, storages = self.read(path, kind)
        self.assertEqual(list(read), list(saved))
        for name, tensor in saved.items():
            self.same(tensor.detach().contiguous(), read[name], name)
        return storages

    def test_every_type_view_and_wrapping(self):
        tensors = self.tensors()
        for protocol in (2, 4, 5):
            for wrapped in (tensors, {"model_state_dict": tensors, "epoch": 3},
                            {"state_dict": tensors, "best": 0.5, "args": {"lr": [1, None]}}):
                storages = self.check(tensors, self.save(wrapped, pickle_protocol=protocol))
                self.assertEqual(storages["middle"], storages["shared"])
                self.assertNotEqual(storages["transposed"], storages["shared"])

    def test_state_dict_of_a_module(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LSTM(4, 2))
        model = model.to(memory_format=torch.channels_last)
        self.assertIn("_metadata", dir(model.state_dict()))
        self.check(model.state_dict(), self.save(model.state_dict()))

    def test_our_checkpoint_and_its_average(self):
        path = self.written("ADAMW")
        checkpoint = torch.load(path)
        storages = self.check(checkpoint["model_state_dict"], path)
        self.assertEqual(storages["output.weight"], storages["first.weight"])
        self.check(checkpoint["ema_state_dict"], path, "average")

    def test_safetensors_both_ways(self):
        path = self.written("SGD")
        for kind, key in (("model", "model_state_dict"), ("average", "ema_state_dict")):
            exported = self.folder / f"{kind}.safetensors"
            self.drive("export", path, exported, kind)
            wanted = torch.load(path)[key]
            read = safetensors.torch.load_file(exported)
            self.same({n: wanted[n] for n in sorted(wanted)}, {n: read[n] for n in sorted(read)})
            self.check({n: wanted[n] for n in sorted(wanted)}, exported)
        tensors = {n: t.detach().clone().contiguous() for n, t in sorted(self.tensors().items())}
        safetensors.torch.save_file(tensors, self.folder / "theirs.safetensors")
        self.check(tensors, self.folder / "theirs.safetensors")

    def test_what_is_refused_says_how_to_convert_it(self):
        model = nn.Linear(2, 2)
        raw = self.folder / "raw"
        legacy = self.save(model.state_dict(), "legacy.pt", _use_new_zipfile_serialization=False)
        said = self.fault("weights", legacy, "model", raw)
        self.assertIn(f"{legacy}: is in the format that torch.save wrote before version 1.6", said)
        self.assertIn("torch.save(torch.load(PATH, weights_only=True), NEW_PATH)", said)
        torch.save(torch.load(legacy, weights_only=True), self.folder / "new.pt")
        self.check(model.state_dict(), self.folder / "new.pt")

        script = self.folder / "script.pt"
        with warnings.catch_warnings(action="ignore"):
            torch.jit.script(model).save(script)
        self.assertIn("is a TorchScript module; accepted: a state dict. In Python: torch.save("
                      "torch.jit.load(PATH).state_dict(), NEW_PATH)",
                      self.fault("weights", script, "model", raw))

        cases = {
            "wants to call torch.nn.modules.linear.Linear": model,
            "wants to call argparse.Namespace in entry args": {
                "model_state_dict": {}, "args": __import__("argparse").Namespace(a=1)},
            "holds a dict of model, epoch; accepted: a dict of tensors, alone or as "
            "model_state_dict or state_dict": {"model": model.state_dict(), "epoch": 1},
            "holds a list": [torch.zeros(1)],
            "entry step is the integer 3; accepted: a tensor": {"w": torch.zeros(1), "step": 3},
            "wants to call torch.ComplexFloatStorage in entry w": {"w": torch.zeros(1) * 1j},
            "wants to call numpy": {"w": torch.zeros(1), "loss": numpy.float32(1)},
            "has a key that is neither a string nor an integer": {(1, 2): torch.zeros(1)},
        }
        for wanted, value in cases.items():
            self.assertIn(wanted, self.fault("weights", self.save(value), "model", raw))
        self.assertIn("has no central directory; the file is cut off or of another kind",
                      self.fault("weights", SOURCE / "README.md", "model", raw))
        self.assertIn("No such file", self.fault("weights", "/nowhere.pt", "model", raw))
        self.assertIn("ema_state_dict is missing",
                      self.fault("weights", self.save(model.state_dict()), "average", raw))


if __name__ == "__main__":
    unittest.main()
