"""Tests that modules written by genesis.export train in the worker as in Python, also compiled."""

import itertools
import pathlib
import tempfile
import unittest
from unittest import mock

import compiled_job
import processor
import safetensors.torch
import tiers
import torch
import twin
from exported_jobs import (BATCH, EXAMPLES, FORMATS, GATE, MODULES, STEPS, Attentive, Averaging, Branches, Chosen, Codebook, Compilable, Convolutional, Counting,
                           Differentiated, Dropped, Encoder, ExportedJobs, Filtered, Forgetful, LastState, Masked, Normed, Partial, Reciprocal, Recomputed,
                           Redrawn, Regular, Shuffled, Spectral, Transposed, Varied, Versioned, learnt, loss_of)

# Python and the worker run the same operators in the same order, and only clipping and the update round differently. trainer/kernels may
# compute products and attention in FP32 and then round, which changes the last bit of BF16.
TOLERANCE = {"FP32": 1e-5, "MIXED_BF16": 5e-3}


IN_GATE = [*((net, "FP32") for net in MODULES), *((net, "MIXED_BF16") for net in (Normed, Attentive, Partial, Convolutional))]


class ExportedModules(ExportedJobs):
    def loop(self, module, field, mode="FP32", accumulation=1, max_norm=None):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        data = {name: torch.tensor(self.arrays[name]) for name in (field, "label")}
        torch.manual_seed(3)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            total = 0.0
            for _ in range(accumulation):
                now = next(rows)
                with (torch.autocast("cpu", torch.bfloat16, enabled=FORMATS[mode] is not None),
                      torch.backends.mkldnn.flags(enabled=processor.has_bf16_lstm() or not isinstance(module, LastState))):
                    loss = loss_of(module, {name: values[now] for name, values in data.items()})
                loss = loss.float() / accumulation
                loss.backward()
                total += loss.item()
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
            optimizer.step()
            losses.append(total)
        return losses

    def compare(self, net, mode, accumulation=1, max_norm=None):
        job, module = self.job(net, mode, training={"gradient_accumulation_steps": accumulation,
                                                    "max_grad_norm": max_norm or -1})
        records, last, _ = self.train(job)
        wanted = self.loop(module, MODULES[net], mode, accumulation, max_norm)
        self.assertEqual(len(records), STEPS)
        for record, loss in zip(records, wanted):
            self.assertLess(abs(record["loss"] - loss) / abs(loss), TOLERANCE[mode], record)
        state = last["model_state_dict"]
        self.assertEqual(set(state), set(module.state_dict()))
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.allclose(learnt(name, state[name], mode).double(), learnt(name, tensor, mode).double(), rtol=1e-2,
                                           atol=5e-3), name)
        net().load_state_dict(state)

    def test_losses_and_weights_are_those_of_the_python_loop(self):
        for net, mode in IN_GATE:
            with self.subTest(net.__name__, mode=mode):
                self.compare(net, mode)

    @tiers.nightly
    def test_losses_and_weights_in_the_other_formats_are_too(self):
        for net, mode in itertools.product(MODULES, FORMATS):
            if (net, mode) not in IN_GATE:
                with self.subTest(net.__name__, mode=mode):
                    self.compare(net, mode)

    def test_accumulation_and_clipping(self):
        for net in (Attentive, Partial):
            with self.subTest(net.__name__):
                self.compare(net, "FP32", accumulation=2, max_norm=0.5)

    @tiers.nightly
    def test_what_draws_or_counts_does_as_in_python(self):
        for net in (Dropped, Redrawn, Counting):
            with self.subTest(net.__name__), mock.patch.dict(MODULES, {net: "x"}):
                self.compare(net, "FP32")

    def test_tensors_without_a_gradient_are_left_alone(self):
        job, module = self.job(Partial, optimizer={"weight_decay": 0.5})
        with tempfile.TemporaryDirectory() as checkpoints:
            _, output = twin.run_worker(job, checkpoints, environment=GATE)
            last = torch.load(twin.newest_checkpoint(checkpoints))
        self.assertIn(" 2 of them did not receive a gradient: never.weight, never.bias\n", output)
        for name in ("base.weight", "base.bias", "never.weight", "never.bias"):
            self.assertTrue(torch.equal(last["model_state_dict"][name], module.state_dict()[name]), name)

    def test_resume_is_bit_identical(self):
        for net in (Normed, Dropped):
            for mode in FORMATS:
                with self.subTest(net.__name__, mode=mode):
                    job, _ = self.job(net, mode, checkpoint={"every_steps": 10, "keep_last": 10},
                                      evaluation={"every_steps": 7})
                    whole, last, files = self.train(job)
                    middle = self.path / "middle.pt"
                    middle.write_bytes(files[0])
                    self.assertEqual(torch.load(middle)["genesis"]["step"], 10)
                    rest, last_of_rest, _ = self.train(job, "--resume", middle)
                    self.assertEqual(rest, whole[10:])
                    for name, value in last["model_state_dict"].items():
                        self.assertTrue(torch.equal(value, last_of_rest["model_state_dict"][name]), name)

    def test_evaluations_leave_no_trace(self):
        for net in (Normed, Dropped):
            plain, last, _ = self.train(self.job(net)[0])
            watched, last_watched, _ = self.train(self.job(net, evaluation={"every_steps": 4})[0])
            self.assertEqual(plain, watched)
            for name, value in last["model_state_dict"].items():
                self.assertTrue(torch.equal(value, last_watched["model_state_dict"][name]), name)

    def test_the_held_out_loss_is_that_of_eval_mode(self):
        for net in (Dropped, Recomputed, Transposed, Differentiated):
            with self.subTest(net.__name__), tempfile.TemporaryDirectory() as checkpoints:
                job, module = self.job(net, evaluation={"every_steps": 7})
                _, output = twin.run_worker(job, checkpoints, environment=GATE)
                module.load_state_dict(torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"])
                held_out = {name: torch.tensor(self.arrays[name][-(EXAMPLES // 10):]) for name in ("x", "label")}
                printed = float(output.rsplit("held-out loss ", 1)[1].split()[0])
                self.assertAlmostEqual(loss_of(module.eval(), held_out).item() / printed, 1, delta=1e-5)

    def test_the_held_out_loss_is_taken_in_batches_of_the_job(self):
        job, module = self.job(Varied, dataset={"arrays": {"path": str(self.path / "rows.npz"), "holdout_fraction": 0.5}})
        with tempfile.TemporaryDirectory() as checkpoints:
            _, output = twin.run_worker(job, checkpoints, environment=GATE)
            module.load_state_dict(torch.load(twin.newest_checkpoint(checkpoints))["model_state_dict"])
        rows = [range(first, min(first + BATCH, EXAMPLES)) for first in range(EXAMPLES // 2, EXAMPLES, BATCH)]
        losses = [loss_of(module.eval(), {name: torch.tensor(self.arrays[name][each]) for name in ("x", "label")}).item() for each in rows]
        self.assertGreater(len(rows), 2)
        self.assertAlmostEqual(float(output.rsplit("held-out loss ", 1)[1].split()[0]) / (sum(losses) / len(losses)), 1, delta=1e-5)

    def test_loss_scaling_and_auto(self):
        for mode in ("MIXED_FP16", "AUTO"):
            records, _, _ = self.train(self.job(Normed, mode)[0], *(["--emulate-fp16"] if mode != "AUTO" else []))
            self.assertEqual(len(records), STEPS, mode)

    # A job starts from weights in a file.

    def start(self, net, state, name="start.safetensors", **tensors):
        """Returns a job of two steps that starts from a file with `state`, in which ``tensors`` replaces some entries."""
        path = self.path / name
        state = {**state, **tensors}
        (safetensors.torch.save_file if name.endswith("s") else torch.save)(state, path)
        return self.job(net, model={"initial_weights": str(path)}, training={"max_steps": 2})[0]

    def test_a_job_starts_from_weights_of_a_file(self):
        torch.manual_seed(77)
        for net in (Normed, Attentive, Masked):
            state = net().state_dict()
            trained = []
            # A safetensors file contains a tied tensor only once.
            once = {name: tensor for name, tensor in state.items() if name != "output.weight"}
            for name, some in (("start.pt", state), ("start.safetensors", once),
                               ("start.safetensors", {each: value.double() if value.is_floating_point() else value for each, value in once.items()})):
                records, last, _ = self.train(self.start(net, some, name))
                trained.append((records[0]["loss"], last["model_state_dict"]))
            module = self.job(net)[1]
            module.load_state_dict(state)
            data = {name: torch.tensor(self.arrays[name]) for name in (MODULES.get(net, "x"), "label")}
            rows = next(twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3))
            wanted = loss_of(module, {name: values[rows] for name, values in data.items()}).item()
            for loss, weights in trained:
                self.assertLess(abs(loss - wanted), 1e-5 * wanted, net.__name__)
                for name, value in weights.items():
                    self.assertTrue(torch.equal(value, trained[0][1][name]), name)

    @tiers.nightly
    def test_weights_that_do_not_fit_are_named(self):
        state = Normed().state_dict()
        nan, late = state["layers.3.weight"].clone(), torch.zeros(16)
        nan[2, 7] = torch.nan
        late[15] = torch.inf
        for tensors, message in (
                ({"head.weight": torch.zeros(3, 16), "head.bias": torch.zeros(3)},
                 "2 tensors that the job's model lacks: head.bias float32 [3], head.weight float32 [3, 16]; accepted: "),
                ({"layers.3.bias": torch.zeros(4)}, "layers.3.bias float32 [4] for float32 [3]; accepted"),
                ({"layers.3.bias": torch.zeros(3, dtype=torch.int32)}, "layers.3.bias int32 [3] for float32 [3]; accepted"),
                ({"layers.1.num_batches_tracked": torch.tensor(1.0)}, "layers.1.num_batches_tracked float32 [] for int64 []; accepted"),
                ({"layers.3.weight": nan}, "layers.3.weight is nan at [2, 7]; accepted"),
                ({"layers.1.running_var": late}, "layers.1.running_var is inf at [15]; accepted")):
            for name in ("start.safetensors", "start.pt"):
                with self.subTest(message, file=name):
                    said = self.refused(self.start(Normed, state, name, **tensors))
                    self.assertIn("FAILURE_CAUSE_CONFIG: model.initial_weights ", said)
                    self.assertIn(message, said)
        missing = {name: tensor for name, tensor in state.items() if not name.startswith("layers.1.running")}
        self.assertIn("2 tensors of the job's model are missing: layers.1.running_mean float32 [16], layers.1.running_var float32 [16]; ",
                      self.refused(self.start(Normed, missing)))
        wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
        self.assertIn("; the names begin with module.: remove that", self.refused(self.start(Normed, wrapped)))

    def test_version_numbers_come_back(self):
        job, module = self.job(Versioned, checkpoint={"every_steps": 10, "keep_last": 10}, training={"ema_decay": 0.9})
        _, last, files = self.train(job)
        module.load_state_dict(last["model_state_dict"])
        self.assertEqual(last["model_state_dict"]._metadata, dict(module.state_dict()._metadata))
        self.assertEqual(last["model_state_dict"]._metadata["layers.0"], {"version": 7})
        last["model_state_dict"].update(last["ema_state_dict"])
        module.load_state_dict(last["model_state_dict"])
        # The versions are also kept by a restart from a checkpoint, and by weights that Python wrote.
        (self.path / "middle.pt").write_bytes(files[0])
        _, last, _ = self.train(job, "--resume", self.path / "middle.pt")
        Versioned().load_state_dict(last["model_state_dict"])
        _, last, _ = self.train(self.start(Versioned, module.state_dict(), "start.pt"))
        Versioned().load_state_dict(last["model_state_dict"])

    def test_a_mask_of_infinities_is_in_checkpoints(self):
        job, module = self.job(Masked, checkpoint={"every_steps": 10, "keep_last": 10})
        whole, last, files = self.train(job)
        self.assertTrue(torch.equal(last["model_state_dict"]["mask"], module.mask))
        (self.path / "middle.pt").write_bytes(files[0])
        rest, _, _ = self.train(job, "--resume", self.path / "middle.pt")
        self.assertEqual(rest, whole[10:])

    def test_a_checkpoint_has_what_state_dict_leaves_out_as_it_was(self):
        job, _ = self.job(Averaging, checkpoint={"every_steps": 1, "keep_last": STEPS})
        _, _, files = self.train(job)
        self.assertGreater(len(files), 1)
        for number, content in enumerate(files):
            (self.path / "one.pt").write_bytes(content)
            state = torch.load(self.path / "one.pt")
            self.assertTrue(torch.equal(state["genesis"]["attributes"]["left_out"], state["model_state_dict"]["kept"]), number)

    # Compiled steps.

    @tiers.nightly
    def test_a_compiled_step_trains_as_the_graph_does(self):
        packages = self.path / "packages"
        job, module = self.job(Compilable, "MIXED_BF16", checkpoint={"every_steps": 10, "keep_last": 10})
        made = compiled_job.compile_job(job, packages)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(len(list(packages.glob("*.pt2"))), 2, made.stdout)
        for mode in FORMATS:
            with self.subTest(mode):
                job, module = self.job(Compilable, mode, checkpoint={"every_steps": 10, "keep_last": 10})
                plain, last, _ = self.train(job)
                with tempfile.TemporaryDirectory() as folder:
                    compiled = compiled_job.train_compiled(self, job, folder, packages)
                    first = min(pathlib.Path(folder).glob("*.pt"))
                    with tempfile.TemporaryDirectory() as other:
                        rest = compiled_job.train_compiled(self, job, other, packages, "--resume", first)
                    state = torch.load(twin.newest_checkpoint(folder))["model_state_dict"]
                self.assertEqual(rest, compiled[10:])
                self.assertNotEqual([each["loss"] for each in compiled], [each["loss"] for each in plain])
                self.assertLess(compiled_job.worst(compiled, plain), 1e-4 if mode == "FP32" else 3e-2)
                for name, value in last["model_state_dict"].items():
                    torch.testing.assert_close(state[name], value, rtol=1e-2, atol=5e-3, msg=name)
                self.assertEqual(state["norm.1.num_batches_tracked"], STEPS)
                for name in ("base.weight", "never.weight"):
                    self.assertTrue(torch.equal(state[name], module.state_dict()[name]), name)

    @mock.patch.dict(MODULES, {Encoder: "word"})
    @tiers.nightly
    def test_compiled_steps_compute_what_graphs_do(self):
        for net in (Branches, Regular, Spectral, Codebook, Chosen, Filtered, Shuffled, Encoder):
            with self.subTest(net.__name__):
                packages = self.path / net.__name__
                job, _ = self.job(net)
                made = compiled_job.compile_job(job, packages)
                self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
                plain, _, _ = self.train(job)
                with tempfile.TemporaryDirectory() as folder:
                    compiled = compiled_job.train_compiled(self, job, folder, packages)
                self.assertLess(compiled_job.worst(compiled, plain), 1e-5 if net is Branches else 1e-4)

    @tiers.nightly
    @mock.patch.dict(MODULES, {Reciprocal: "word"})
    def test_a_package_is_compared_on_the_integers_of_the_data(self):
        self.arrays["word"] += 3
        made = compiled_job.compile_job(self.job(Reciprocal)[0], self.path / "packages")
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)

    def test_what_cannot_be_compiled_says_why(self):
        made = compiled_job.compile_job(self.job(Forgetful)[0], self.path / "packages")
        self.assertEqual(made.returncode, 1, made.stdout)
        self.assertIn("FP32: nothing was installed: forward changes calls, which state_dict() leaves out", made.stderr)
        self.assertEqual(list((self.path / "packages").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
