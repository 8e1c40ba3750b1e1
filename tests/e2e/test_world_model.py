"""Runs the Python code of the founding documents unchanged, except for the import."""

import ast
import inspect
import json
import logging
import os
import pathlib
import random
import subprocess
import unittest
import warnings
from unittest import mock

import numpy
import torch

import genesis
import harness
import tiers
from genesis import precision_gate
from genesis.training.v1 import precision_pb2

# Code blocks of the founding documents, without most of their comment lines.
VERIFY_FP16 = """
model = WorldModel()
# ... initialize with data ...
await model.train(num_epochs=1, batch_size=16)
if model._fp16_stats:
    print(f"FP16 active: {model._fp16_stats['fp16_enabled_runtime']}")
    print(f"Overflow rate: {model._fp16_stats['overflow_rate']:.2%}")
    print(f"Training steps: {model._fp16_stats['training_steps']}")
"""
VERIFY_FP16_OF_THE_GUIDE = """
model = WorldModel()
# ... initialize with data ...
await model.train(num_epochs=1, batch_size=16)
if model._fp16_stats:
    print(f"FP16 enabled: {model._fp16_stats['fp16_enabled_runtime']}")
    print(f"Overflow rate: {model._fp16_stats['overflow_rate']:.2%}")
"""
THROUGHPUT = """
import time

start = time.perf_counter()
await world_model.train(num_epochs=1, batch_size=32)
duration = time.perf_counter() - start

throughput = num_samples / duration
logger.info(f"Throughput: {throughput:.1f} samples/s")
"""
CONVERGENCE = """
if world_model.training_history:
    final_loss = world_model.training_history[-1]['loss']

    if abs(final_loss - fp32_baseline) / fp32_baseline > 0.05:
        logger.warning(f"Loss divergence: {final_loss:.4f} vs {fp32_baseline:.4f}")
"""
VRAM = """
import torch

if torch.cuda.is_available():
    torch.cuda.reset_peak_memory_stats()

    await world_model.train(num_epochs=1, batch_size=32)

    peak_memory_mb = torch.cuda.max_memory_allocated() / 1024**2
    logger.info(f"Peak VRAM: {peak_memory_mb:.1f} MB")
"""
UNSTABLE = """
for entry in world_model.training_history:
    loss = entry['loss']
    if loss != loss or loss == float('inf'):
        print(f"Unstable loss at step {entry.get('step')}: {loss}")
"""
LARGER_BATCH = """
await world_model.train(num_epochs=3, batch_size=64)  # vs 32
"""
LOAD_EITHER = """
os.environ["ENABLE_FP16_TRAINING"] = "false"
model = WorldModel()
model.load_checkpoint("fp16_checkpoint.pt")  # Works fine

os.environ["ENABLE_FP16_TRAINING"] = "true"
model = WorldModel()
model.load_checkpoint("fp32_checkpoint.pt")  # Also works
"""
VERIFY_FP32 = """
import os

os.environ["ENABLE_FP16_TRAINING"] = "false"

model = WorldModel()
model.replay_buffer = create_test_replay_buffer(50)

await model.train(num_epochs=1, batch_size=16)

assert model.fp16_enabled == False, "FP16 should be disabled"
assert model._fp16_stats is None or model._fp16_stats.get("fp16_enabled_runtime") == False

print("FP32 mode verified")
"""
CONTINUE_IN_FP32 = """
os.environ["ENABLE_FP16_TRAINING"] = "false"

model = WorldModel()
model.load_checkpoint("/data/checkpoints/world_model_fp16.pt")

await model.train(num_epochs=5, batch_size=32)

model.save_checkpoint("/data/checkpoints/world_model_fp32.pt")
"""
VERIFY_INTEGRITY = """
import torch

checkpoint = torch.load("world_model_fp16.pt", map_location="cpu")

assert "model_state_dict" in checkpoint
assert "optimizer_state_dict" in checkpoint

for key, tensor in checkpoint["model_state_dict"].items():
    print(f"{key}: {tensor.dtype}")
    assert tensor.dtype == torch.float32, f"Unexpected dtype for {key}"
"""


def episodes(count):
    """Returns episodes of a linear system, which differ in every run."""
    generator = numpy.random.default_rng()
    move = numpy.linalg.qr(generator.normal(size=(4, 4)))[0] * 0.95
    found = []
    for _ in range(count):
        observations = [generator.normal(size=4)]
        actions = generator.normal(size=(12, 2)) * 0.1
        for action in actions:
            observations.append(move @ observations[-1] + numpy.pad(action, (0, 2)))
        found.append({"observations": numpy.array(observations), "actions": actions, "rewards": actions.sum(1)})
    return found


class WorldModelTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true"})
        environment = mock.patch.dict(os.environ, {"GENESIS_SERVER": self.daemon.grpc, "ENABLE_FP16_TRAINING": "true"})
        environment.start()
        self.addCleanup(environment.stop)
        self.folder = pathlib.Path(self.data_dir)
        self.data = episodes(40)

        def world_model():
            model = genesis.WorldModel(spec={"model": {"world_model": {"hidden_size": 32, "latent_size": 16}}})
            model.replay_buffer = self.data
            return model

        self.names = {"WorldModel": world_model, "os": os, "logger": logging.getLogger("seed"), "num_samples": 400,
                      "fp32_baseline": 1.0, "create_test_replay_buffer": episodes}

    def run_code(self, text, **replaced):
        """Runs a code block like a notebook does, in the folder of the test."""
        for there, here in replaced.items():
            text = text.replace(there.replace("__", "/"), here)
        code = compile(text, "founding document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            ended = eval(code, self.names)  # pylint: disable=eval-used
            if inspect.iscoroutine(ended):
                import asyncio

                asyncio.run(ended)
        finally:
            os.chdir(before)

    def test_verify_that_fp16_works(self):
        for text in (VERIFY_FP16, VERIFY_FP16_OF_THE_GUIDE):
            self.run_code(text)
            stats = self.names["model"]._fp16_stats
            self.assertEqual(set(stats), {"fp16_enabled_runtime", "overflow_rate", "training_steps", "current_scale"})
            # 36 episodes of 12 transitions are for training, and four are held out.
            self.assertEqual(stats["training_steps"], 36 * 12 // 16)
            self.assertTrue(self.names["model"].fp16_enabled)

    def test_reduced_precision_really_runs(self):
        # Emulates a GPU's FP16, because this processor may lack reduced precision.
        self.daemon.stop()
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true", "GENESIS_PRECISION_CPU_FALLBACK": "emulate"})
        with mock.patch.dict(os.environ, {"GENESIS_SERVER": daemon.grpc}):
            self.run_code(VERIFY_FP16)
        model = self.names["model"]
        self.assertTrue(model._fp16_stats["fp16_enabled_runtime"])
        self.assertEqual(model.job.progress.reduced_precision_steps, 36 * 12 // 16)
        self.assertEqual(model.job.progress.mode, precision_pb2.PRECISION_MODE_MIXED_FP16)

    def test_one_gate_for_the_daemon_and_the_client(self):
        for variable, values in (("ENABLE_FP16_TRAINING", (None, "true", "false", "True", "TRUE", "1", "yes", "on", "", " true", "true\n")),
                                 ("FEATURE_FLAGS", (None, "", "fp16_training:true", "fp16_training:false", " fp16_training:true , x:1", "x:false",
                                                    "my_fp16_training:false", "FP16_Training:true", "fp16_training=true", "fp16_training",
                                                    "x:true,fp16_training:false", "\"fp16_training:true\"", "fp16_training:true,fp16_training:0"))):
            for value in values:
                environment = {"ENABLE_FP16_TRAINING": "true", **({} if value is None else {variable: value})}
                if value is None:
                    environment.pop(variable, None)
                with self.subTest(variable=variable, value=value):
                    done = subprocess.run([harness.BIN / "genesisd", "--check-config", "--data-dir", self.folder / "none"],
                                          env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, check=False)
                    enabled = "reduced precision is enabled" in done.stdout + done.stderr
                    self.assertNotEqual(enabled, "reduced precision is disabled" in done.stdout + done.stderr, done)
                    os.environ.pop(variable, None)
                    os.environ.update(environment)
                    with warnings.catch_warnings(record=True) as said:
                        warnings.simplefilter("always")
                        self.assertEqual(precision_gate.allows_reduced_precision(), enabled)
                    self.assertEqual(bool(said), "; accepted: " in done.stdout + done.stderr)

    def test_names_that_were_replaced_lead_to_what_replaces_them(self):
        page = (harness.SOURCE / "docs" / "founding_names.md").read_text()
        for name in ("ExtendedFP16Trainer", "ExtendedFP16Config", "PrecisionMode", "init_distributed", "cleanup_distributed", "FP16Trainer"):
            with self.subTest(name), self.assertRaisesRegex(ImportError, f"genesis has no {name}; use "):
                exec(f"from genesis import {name}")  # pylint: disable=exec-used
            self.assertIn(name, page)
        self.assertFalse(hasattr(genesis, "anything_else"))

    def test_figures_of_training(self):
        self.names["world_model"] = self.names["WorldModel"]()
        self.run_code(THROUGHPUT)
        self.assertGreater(self.names["throughput"], 0)
        self.run_code(CONVERGENCE)
        history = self.names["world_model"].training_history
        self.assertEqual(self.names["final_loss"], history[-1]["loss"])
        self.run_code(VRAM)
        self.run_code(UNSTABLE)
        first = len(history)
        self.run_code(LARGER_BATCH)
        self.assertGreater(len(history), first)
        # Three epochs change the loss less than its noise. A hundred reduce it clearly.
        self.run_code("await world_model.train(num_epochs=100, batch_size=64)")
        self.assertLess(history[-1]["loss"], 0.1 * history[0]["loss"])

    def test_verify_that_fp32_is_back(self):
        self.run_code(VERIFY_FP32)
        self.assertFalse(self.names["model"].fp16_enabled)

    def test_the_daemons_gate_counts_too(self):
        model = self.names["WorldModel"]()
        self.assertTrue(model.fp16_enabled)
        model.client.set_precision_policy(False)
        self.assertFalse(model.fp16_enabled)

    def test_checkpoints_of_either_precision(self):
        for gate, name in (("true", "fp16_checkpoint.pt"), ("false", "fp32_checkpoint.pt")):
            self.run_code(f'os.environ["ENABLE_FP16_TRAINING"] = "{gate}"\nmodel = WorldModel()\n'
                          f'await model.train(num_epochs=1, batch_size=16)\nmodel.save_checkpoint("{name}")\n')
        self.run_code(LOAD_EITHER)
        (self.folder / "fp16_checkpoint.pt").rename(self.folder / "world_model_fp16.pt")
        self.run_code(VERIFY_INTEGRITY)
        before = torch.load(self.folder / "world_model_fp16.pt")["model_state_dict"]
        self.run_code(CONTINUE_IN_FP32, __data__checkpoints__world_model_fp=f"{self.folder}/world_model_fp")
        after = torch.load(self.folder / "world_model_fp32.pt")["model_state_dict"]
        self.assertEqual(list(before), list(after))
        self.assertNotEqual(self.names["model"].job.message.spec.start_from_checkpoint, "")
        # Training continues from the checkpoint: five epochs change a weight much less than a new initialization would.
        for name, value in self.names["model"].state_dict().items():
            self.assertTrue(torch.equal(value, after[name]))
        weight = next(name for name, value in before.items() if value.dim() == 2)
        self.assertLess((before[weight] - after[weight]).norm(), 0.5 * before[weight].norm())

    def test_a_second_training_goes_on_from_the_first(self):
        model = self.names["WorldModel"]()
        import asyncio

        asyncio.run(model.train(num_epochs=20, batch_size=32))
        untrained = model.training_history[0]["loss"]
        newest = model.job.checkpoint().id
        asyncio.run(model.train(num_epochs=1, batch_size=32))
        self.assertEqual(model.job.message.spec.start_from_checkpoint, newest)
        # AdamW starts without moments, so its first steps raise the loss. It stays far below that of a new model.
        self.assertLess(model.training_history[-1]["loss"], 0.2 * untrained)

    def test_buffers_that_are_none(self):
        import asyncio

        transition = (numpy.zeros(3), numpy.zeros(1), 0.0, numpy.zeros(3), True)
        for buffer, words in ((None, "replay_buffer is None"), ([], "the replay buffer is empty"),
                              ({"observations": []}, "has no actions, rewards"),
                              ([transition, transition[:3]], "item 1 of the replay buffer is not a tuple"),
                              ("nowhere", "nowhere"), ([{"observations": numpy.zeros((3, 2)), "actions": numpy.zeros((3, 1)),
                                                         "rewards": numpy.zeros(3)}], "3 observations and 3 rewards")):
            model = self.names["WorldModel"]()
            model.replay_buffer = buffer
            with self.subTest(words), self.assertRaises(genesis.GenesisError) as caught:
                asyncio.run(model.train())
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(FileNotFoundError):
            model.load_checkpoint("/nowhere.pt")
        with self.assertRaisesRegex(genesis.GenesisError, "nothing to save"):
            model.save_checkpoint(self.folder / "x.pt")

    @tiers.nightly
    def test_discrete_actions_are_one_hot_in_every_form_of_a_buffer(self):
        import asyncio

        generator, count = numpy.random.default_rng(3), 60
        observations, actions = generator.normal(size=(count, 3)).astype("float32"), generator.integers(0, 5, count)
        whole = {"observations": observations, "actions": actions, "rewards": generator.normal(size=count).astype("float32"),
                 "next_observations": (observations + actions[:, None] * 0.1).astype("float32"), "terminals": numpy.arange(count) % 10 == 9,
                 "timeouts": numpy.zeros(count, bool)}
        numpy.savez(self.folder / "whole.npz", **whole)
        with open(self.folder / "whole.jsonl", "w") as file:
            for i in range(count):
                file.write(json.dumps({"observation": observations[i].tolist(), "action": int(actions[i]), "reward": float(whole["rewards"][i]),
                                       "next_observation": whole["next_observations"][i].tolist(), "terminal": i % 10 == 9,
                                       "timeout": False}) + "\n")
        rows = [tuple(whole[name][i] for name in ("observations", "actions", "rewards", "next_observations", "terminals")) for i in range(count)]
        episodes = [{name: values[begin:begin + 10] for name, values in whole.items()} for begin in range(0, count, 10)]
        forms = {"npz": self.folder / "whole.npz", "jsonl": self.folder / "whole.jsonl", "dict": whole, "int32": {**whole, "actions": actions.astype("int32")},
                 "tensor": {**whole, "actions": torch.tensor(actions)}, "flags": {**whole, "terminals": whole["terminals"].astype("uint8")},
                 "list": {**whole, "actions": actions.tolist()}, "episodes": episodes, "transitions": rows,
                 "numbers": [(each[0], int(each[1]), float(each[2]), each[3], int(each[4])) for each in rows]}
        first = None
        for form, buffer in forms.items():
            with self.subTest(form):
                model = self.names["WorldModel"]()
                model.replay_buffer = buffer
                asyncio.run(model.train(batch_size=16))
                weights = model.state_dict()
                self.assertEqual(tuple(weights["action_mean"].shape), (5,))
                first = first or weights
                for name, value in weights.items():
                    self.assertTrue(torch.equal(value, first[name]), name)

    def test_actions_that_may_be_numbers_or_discrete_are_refused(self):
        from genesis.world_model import trajectories_of

        whole = {"observations": numpy.zeros((4, 2)), "actions": numpy.arange(4), "rewards": numpy.zeros(4), "next_observations": numpy.zeros((4, 2))}
        real = {**whole, "actions": numpy.zeros(4)}

        def transitions(*actions):
            return [(numpy.zeros(2), action, 0.0, numpy.zeros(2), False) for action in actions]

        for buffer, words in (({**whole, "actions": numpy.zeros((4, 1), int)}, r"actions is int64 of shape \(4, 1\); accepted: floating-point"),
                              ({**whole, "actions": numpy.zeros(4, bool)}, "actions is bool of shape"),
                              ({**whole, "actions": ["a"] * 4}, "actions is <U1 of shape"),
                              ([whole, real], "actions is float32 in episode 1 and int64 in episode 0"),
                              (transitions(0.5, 1), "action is the integer 1 in item 1"), (transitions([1, 0], [0, 1]), "actions is int64 of shape"),
                              ({**whole, "terminals": numpy.full(4, 2.0)}, "terminals is float64 of shape .* accepted: bool")):
            with self.subTest(words), self.assertRaisesRegex(genesis.InvalidArgumentError, words):
                trajectories_of(buffer)
        for actions in (numpy.zeros(4, "float16"), numpy.zeros((4, 3)), [[0.5, 1]] * 4):
            self.assertEqual(trajectories_of({**whole, "actions": actions})["actions"].dtype, numpy.float32)
        self.assertEqual(trajectories_of(transitions([0.5, 1], [0, 1]))["actions"].dtype, numpy.float32)

    def test_a_list_of_transitions(self):
        generator = numpy.random.default_rng()
        self.data = []
        for i in range(300):
            observation, action = generator.normal(size=3), generator.normal(size=1)
            self.data.append((observation, action, random.random(), observation + action, i % 10 == 9))
        self.run_code(VERIFY_FP16)


if __name__ == "__main__":
    unittest.main()
