"""Tests Predict: predictions as the model's twin in Python makes them, while jobs train and afterwards."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import unittest
import urllib.request

import grpc
import numpy
import torch
from torch import nn

import genesis
import harness
import tiers
from genesis.training.v1 import prediction_pb2

sys.path.insert(0, str(harness.SOURCE / "trainer" / "compiled" / "python"))
from twins.transformer import Transformer  # noqa: E402
from twins.world_model import WorldModel  # noqa: E402

OBSERVATION, ACTION = 3, 1
LONG_JOB = 10**7
LANGUAGE = {"vocabulary_size": 64, "context_length": 16, "layers": 2, "heads": 2, "embedding_size": 32}


class Dynamics(nn.Module):
    """A user's world model with discrete actions, and a part that differs between training and evaluation."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4, 8)
        self.layers = nn.Sequential(nn.Linear(11, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.3), nn.Linear(32, 4))

    def forward(self, observation, action):
        change, reward = self.layers(torch.cat([observation, self.embedding(action)], -1)).split([3, 1], -1)
        return observation + change, reward


def dynamics_loss(module, batch):
    following, reward = module(batch["observation"], batch["action"])
    return nn.functional.mse_loss(following, batch["next_observation"]) + nn.functional.mse_loss(reward, batch["reward"])


def predict(module, batch):
    following, reward = module(batch["observation"], batch["action"])
    return {"next_observation": following, "reward": reward}


@torch.no_grad()
def expected(twin, observation, action, trained_steps=1):
    """Returns what a world model predicts: [N, columns] of one step, or [N, K, columns] of a rollout."""
    observation, action = torch.tensor(observation), torch.tensor(action)
    outputs = []
    for steps in (action.unsqueeze(1) if action.dim() == 2 else action).split(trained_steps, 1):
        members = twin.predictions({"observation": observation.unsqueeze(1), "action": steps})
        change, reward, done = (torch.stack(heads).mean(0) for heads in zip(*members))
        following = observation.unsqueeze(1) + (change * twin.change_std + twin.change_mean).cumsum(1)
        outputs.append((following, reward * twin.reward_std + twin.reward_mean, done.sigmoid()))
        observation = following[:, -1]
    joined = [torch.cat(each, 1) for each in zip(*outputs)]
    return dict(zip(("next_observation", "reward", "done"), (each[:, 0] if action.dim() == 2 else each for each in joined)))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 5)

    def forward(self, image):
        return self.layer(image.flatten(1).float() / 255)


def pictures_loss(module, batch):
    return nn.functional.cross_entropy(module(batch["image"]), batch["key"] % 5) + 0 * batch["mask"].sum()


def classify(module, batch):
    scores = module(batch["image"])
    return {"scores": scores, "half": scores.half(), "brain": scores.bfloat16(), "class": scores.argmax(1), "next_key": batch["key"] + 1,
            "any": batch["mask"].any(1)}


class PredictionTest(harness.DaemonTest):
    def begin(self, *flags):
        self.daemon = self.start(*(flags or ("--workers-predictors", "8")))
        self.client = genesis.Client(self.daemon.grpc)
        self.addCleanup(self.client.close)
        self.random = numpy.random.default_rng(7)

    def submit(self, job_id, steps=200, **model):
        spec = harness.spec(max_steps=steps)
        spec["model"]["world_model"].update(model)
        return self.client.submit(spec, job_id=job_id)

    def learning(self):
        job = self.submit("learner", LONG_JOB)
        harness.wait_for("its steps", lambda: job.refresh().progress.step > 0)
        return job

    def trained(self, job_id="done", **model):
        job = self.submit(job_id, **model)
        job.watch(progress=False)
        return job

    def twin(self, weights, gru=False, members=1):
        twin = WorldModel(OBSERVATION, ACTION, 32, 16, gru, members)
        twin.load_state_dict(weights)
        return twin

    def inputs(self, rows, *steps):
        return {"observation": self.random.normal(size=(rows, OBSERVATION)).astype("float32"),
                "action": self.random.normal(size=(rows, *steps, ACTION)).astype("float32")}

    def check(self, found, wanted):
        self.assertEqual(found.keys(), wanted.keys())
        for name, value in wanted.items():
            numpy.testing.assert_allclose(found[name], value.numpy(), rtol=2e-5, atol=2e-5, err_msg=name)

    def predictors(self):
        def is_one(pid):
            try:
                return b"--predict" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return False

        return [pid for pid in self.daemon.worker_pids() if is_one(pid)]

    def refused(self, error, message, call):
        with self.assertRaisesRegex(error, message):
            call()


class Models(PredictionTest):
    def test_a_world_model_predicts_as_its_twin(self):
        self.begin()
        job = self.trained()
        twin = self.twin(job.checkpoint().model_state_dict)
        for rows in (1, 3, 257, 1025, 3000):
            inputs = self.inputs(rows)
            found = job.predict(inputs)
            self.assertEqual((found.version, found.step), (0, 200))
            self.check(found, expected(twin, **inputs))
        for steps in (1, 5, 40):
            inputs = self.inputs(17, steps)
            self.check(job.predict(inputs), expected(twin, **inputs))
        one = self.inputs(1)["observation"]
        plans = self.inputs(30, 4)["action"]
        self.check(job.predict({"observation": one.tolist(), "action": torch.tensor(plans)}),
                   expected(twin, numpy.repeat(one, 30, 0), plans))

    def test_a_rollout_goes_as_far_in_latent_space_as_it_was_trained(self):
        self.begin()
        for job_id, model in (("gru", {"dynamics": "GRU", "rollout_steps": 4}), ("ensemble", {"ensemble_size": 3, "rollout_steps": 2})):
            job = self.trained(job_id, **model)
            twin = self.twin(job.checkpoint().model_state_dict, job_id == "gru", model.get("ensemble_size", 1))
            for steps in (1, 4, 11):
                inputs = self.inputs(9, steps)
                self.check(job.predict(inputs), expected(twin, **inputs, trained_steps=model["rollout_steps"]))
            inputs = self.inputs(9)
            self.check(job.predict(inputs), expected(twin, **inputs))

    def test_a_transformer_predicts_the_next_token(self):
        self.begin()
        for untied in (False, True):
            job = self.client.submit({"model": {"transformer": {**LANGUAGE, "untied_output": untied}}, "training": {"max_steps": 20, "batch_size": 8},
                                      "dataset": {"synthetic": {"tokens": {"size": 4096}}}}, job_id=f"untied-{untied}".lower())
            job.watch(progress=False)
            twin = Transformer(64, 16, 2, 2, 32, untied, 0)
            weights = dict(job.checkpoint().model_state_dict)
            weights.setdefault("lm_head.weight", weights["token_embedding.weight"])
            twin.load_state_dict(weights)
            for length in (1, 7, 16):
                tokens = self.random.integers(0, 64, (5, length))
                with torch.no_grad():
                    logits = twin(torch.tensor(tokens))[:, -1]
                self.check(job.predict({"tokens": tokens}), {"logits": logits})
            for bad in ([[64]], [[-1]], [[0.5]], [[0] * 17], [0]):
                self.refused(genesis.InvalidArgumentError, "accepted: ", lambda: job.predict({"tokens": bad}))

    def test_an_exported_module_predicts_as_in_python(self):
        self.begin()
        torch.manual_seed(3)
        data = {"observation": self.random.normal(size=(512, 3)).astype("float32"), "action": self.random.integers(0, 4, 512),
                "next_observation": self.random.normal(size=(512, 3)).astype("float32"), "reward": self.random.normal(size=(512, 1)).astype("float32")}
        for dynamic in (True, False):
            module = Dynamics()
            job = self.client.train(module, data, loss=dynamics_loss, predict=predict, max_steps=60, batch_size=32, dynamic_batch=dynamic)
            job.watch(progress=False)
            module.load_state_dict(job.checkpoint().model_state_dict)
            module.eval()
            for rows in (1, 32, 77):
                inputs = {name: data[name][:rows] for name in ("observation", "action")}
                at = torch.tensor(inputs["observation"])
                with torch.no_grad():
                    wanted = predict(module, {name: torch.tensor(value) for name, value in inputs.items()})
                self.check(job.predict(inputs), wanted)
                plans = self.random.integers(0, 4, (rows, 6))
                steps = []
                with torch.no_grad():
                    for action in torch.tensor(plans).unbind(1):
                        steps.append(predict(module, {"observation": at, "action": action}))
                        at = steps[-1]["next_observation"]
                self.check(job.predict({**inputs, "action": plans}), {name: torch.stack([step[name] for step in steps], 1) for name in steps[0]})
            for bad, message in (([4], "Index|index|out of range"), ([0.5], "inputs.action has 0.5; accepted: values of int64"),
                                 ([[[0]]], r"accepted: \[N\], or \[N, K\] with K from 1 to 1024")):
                self.refused(genesis.InvalidArgumentError, message, lambda: job.predict({"observation": [[0, 0, 0]], "action": bad}))
            job.predict({"observation": [[0, 0, 0]], "action": [3]})
        silent = self.client.train(nn.Linear(3, 1), {"x": data["observation"], "target": data["reward"]}, loss="mse", max_steps=2, batch_size=32)
        silent.watch(progress=False)
        self.refused(genesis.FailedPreconditionError, "predict=", lambda: silent.predict({"x": [[0, 0, 0]]}))

    def test_numbers_keep_their_types(self):
        self.begin()
        data = {"image": self.random.integers(0, 256, (64, 3, 4, 4), "uint8"), "key": self.random.integers(2**40, 2**41, 64),
                "mask": self.random.random((64, 2)) > 0.5}
        module = Pictures()
        job = self.client.train(module, data, loss=pictures_loss, predict=classify, max_steps=5, batch_size=16)
        job.watch(progress=False)
        module.load_state_dict(job.checkpoint().model_state_dict)
        with torch.no_grad():
            wanted = classify(module, {name: torch.tensor(value) for name, value in data.items()})
        found = job.predict(data)
        for name in ("class", "next_key", "any"):
            self.assertEqual(found[name].dtype, wanted[name].numpy().dtype)
            numpy.testing.assert_array_equal(found[name], wanted[name].numpy())
        self.assertEqual((found["half"].dtype, found["brain"].dtype), ("float16", "float32"))
        for name, tolerance in (("scores", 2e-5), ("half", 2e-3), ("brain", 2e-2)):
            numpy.testing.assert_allclose(found[name], wanted[name].float().numpy(), atol=tolerance, rtol=tolerance)
        # Other types whose values fit are the same; others are named.
        for name, type_ in (("image", "float64"), ("image", "uint16"), ("key", "uint64"), ("mask", "int8")):
            same = job.predict({**data, name: data[name].astype(type_)})
            numpy.testing.assert_array_equal(same["next_key"], found["next_key"])
        for name, value, message in (("image", 256, "has 256; accepted: values of uint8"), ("image", -1, "has -1; accepted: values of uint8"),
                                     ("mask", 2, "has 2; accepted: values of bool")):
            self.refused(genesis.InvalidArgumentError, message, lambda: job.predict({**data, name: numpy.full_like(data[name], value, "int32")}))
        values = {name: {"shape": value[:1].shape, "values": value[:1].ravel().tolist()} for name, value in data.items()}
        self.refused(genesis.InvalidArgumentError, "which float32 does not hold; accepted: inputs in data",
                     lambda: self.client.connection.call("Predict", job_id=job.id, inputs=values))

    def test_a_file_that_has_become_a_link_to_elsewhere_is_not_opened(self):
        self.begin()
        job = self.client.train(Pictures(), {"image": numpy.zeros((64, 3, 4, 4), "uint8"), "key": numpy.zeros(64, "int64"), "mask": numpy.zeros((64, 2), bool)},
                                loss=pictures_loss, predict=classify, max_steps=2, batch_size=16)
        job.watch(progress=False)
        file = self.daemon.data_dir / "datasets" / job.message.spec.model.exported.path
        moved = file.rename(self.daemon.data_dir / "elsewhere.pt2")
        file.symlink_to(moved)
        self.refused(genesis.InvalidArgumentError, "model.exported.path is .*, which leads to .*; accepted: what lies beneath the dataset root",
                     lambda: job.predict({"image": numpy.zeros((1, 3, 4, 4), "uint8"), "key": [0], "mask": [[True, False]]}))

    def test_a_checkpoint_predicts_as_it_was(self):
        self.begin()
        job = self.trained()
        early = next(each for each in job.checkpoints() if each.step < 200)
        inputs = self.inputs(4)
        found = job.predict(inputs, checkpoint=early)
        self.assertEqual((found.version, found.step), (0, early.step))
        self.check(found, expected(self.twin(early.load()["model_state_dict"]), **inputs))
        self.trained("other")
        self.refused(genesis.NotFoundError, "is of job \"done\"; accepted: one of job \"other\"",
                     lambda: self.client.job("other").predict(inputs, checkpoint=early))


class Training(PredictionTest):
    def test_each_response_is_of_one_version_that_only_grows(self):
        self.begin()
        job = self.learning()
        published, ended = {}, threading.Event()

        def read():
            versions = job.weights(interval=0)
            for version in versions:
                published[version.number] = {name: tensor.clone() for name, tensor in version.tensors().items()}
                if ended.is_set():
                    versions.close()
                    return

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reader = pool.submit(read)
            found = []
            try:
                while len({prediction.version for _, prediction in found}) < 6:
                    inputs = self.inputs(50)
                    found.append((inputs, job.predict(inputs)))
            finally:
                ended.set()
            reader.result(harness.LONG)
        numbers = [prediction.version for _, prediction in found]
        self.assertEqual(numbers, sorted(numbers))
        seen = [(inputs, prediction) for inputs, prediction in found if prediction.version in published]
        self.assertGreater(len({prediction.version for _, prediction in seen}), 1)
        for inputs, prediction in seen:
            self.check(prediction, expected(self.twin(published[prediction.version]), **inputs))
        # A job that is paused predicts on with its newest version, and resumed with later ones.
        job.pause()
        harness.wait_for("the pause", lambda: job.refresh().state == "PAUSED")
        self.assertGreaterEqual(job.predict(self.inputs(1)).version, numbers[-1])
        job.resume()
        harness.wait_for("a version of the next attempt", lambda: job.predict(self.inputs(1)).version > 2 * 10**9)

    def test_a_killed_worker_costs_no_prediction(self):
        self.begin()
        job = self.learning()
        before = job.predict(self.inputs(1))
        harness.wait_for("a checkpoint", lambda: job.refresh().progress.step > 60)
        worker = next(each for each in self.daemon.ctl("workers")["workers"] if each.get("job_id") == "learner")
        os.kill(worker["pid"], signal.SIGKILL)
        after = before
        while after.version < 2 * 10**9:
            following = job.predict(self.inputs(1))
            self.assertGreaterEqual(following.version, after.version)
            after = following

    def test_many_callers_get_their_own_predictions(self):
        self.begin()
        job = self.trained()
        twin = self.twin(job.checkpoint().model_state_dict)
        calls = [self.inputs(1 + number % 5) if number % 3 else self.inputs(2, 3) for number in range(400)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for inputs, found in zip(calls, pool.map(job.predict, calls)):
                self.check(found, expected(twin, **inputs))
        self.assertEqual(len(self.predictors()), 1)

        async def ask():
            async with genesis.AsyncClient(self.daemon.grpc) as client:
                same = await client.job("done")
                return await asyncio.gather(*(same.predict(inputs) for inputs in calls[:40]))

        for inputs, found in zip(calls, asyncio.run(ask())):
            self.check(found, expected(twin, **inputs))

    def test_one_that_is_killed_is_started_again(self):
        self.begin()
        job = self.trained()
        inputs = self.inputs(2)
        wanted = job.predict(inputs)
        (predictor,) = self.predictors()
        os.kill(predictor, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            # The client repeats the call that the kill ended.
            again = pool.submit(job.predict, inputs)
            self.client.job("done")
            os.kill(predictor, signal.SIGKILL)
            found = again.result(harness.LONG)
        numpy.testing.assert_array_equal(found["reward"], wanted["reward"])
        (predictor,) = self.predictors()
        os.kill(predictor, signal.SIGKILL)  # While no call waits.
        numpy.testing.assert_array_equal(job.predict(inputs)["reward"], wanted["reward"])
        self.assertNotIn("Broken pipe", self.daemon.log())


class Limits(PredictionTest):
    def test_calls_too_many_are_refused_at_once(self):
        self.begin()
        job = self.trained()
        job.predict(self.inputs(1))
        (predictor,) = self.predictors()
        os.kill(predictor, signal.SIGSTOP)
        request = self.client.connection.request("Predict", job_id="done", inputs={
            name: {"shape": value.shape, "values": value.ravel()} for name, value in self.inputs(1).items()})
        calls = []
        for _ in range(16):  # A connection has a limit of its own.
            channel = grpc.insecure_channel(self.daemon.grpc, options=[("grpc.use_local_subchannel_pool", 1)])
            self.addCleanup(channel.close)
            method = channel.unary_unary("/genesis.training.v1.TrainingService/Predict", request_serializer=type(request).SerializeToString,
                                         response_deserializer=prediction_pb2.PredictResponse.FromString)
            calls += [method.future(request) for _ in range(90)]
        harness.wait_for("a refusal", lambda: any(call.done() for call in calls))
        os.kill(predictor, signal.SIGCONT)
        codes = [call.code().name for call in calls]
        self.assertEqual(set(codes), {"OK", "RESOURCE_EXHAUSTED"})
        self.assertGreaterEqual(codes.count("OK"), 1024)
        details = next(call.details() for call in calls if call.code().name == "RESOURCE_EXHAUSTED")
        self.assertIn("1024 predictions of job \"done\" wait already; accepted: at most 1024", details)

    @tiers.nightly
    def test_the_job_unused_for_longest_makes_room(self):
        self.begin("--workers-predictors", "1")
        jobs = [self.trained(f"job-{number}") for number in range(2)]
        inputs = self.inputs(1)

        def predicted(job):
            with contextlib.suppress(genesis.ResourceExhaustedError):
                return job.predict(inputs)

        for job in (*jobs, *jobs):
            found = harness.wait_for("room", lambda: predicted(job))
            self.check(found, expected(self.twin(job.checkpoint().model_state_dict), **inputs))
            self.assertEqual(len(self.predictors()), 1)

        def is_refused():
            jobs[1].predict(inputs)
            try:
                jobs[0].predict(inputs)  # Five seconds later, on a slow machine.
            except genesis.ResourceExhaustedError as error:
                return "workers.predictors is 1, and as many jobs and checkpoints were asked in the last 5s" in str(error)
            harness.wait_for("room", lambda: predicted(jobs[1]))
            return False

        harness.wait_for("a refusal", is_refused)

    def test_a_daemon_that_makes_no_predictions_says_so(self):
        self.begin("--workers-predictors", "0")
        job = self.trained()
        self.refused(genesis.FailedPreconditionError, "workers.predictors is 0; accepted: 1 or more", lambda: job.predict(self.inputs(1)))

    def test_bad_input_is_refused_and_the_next_call_works(self):
        self.begin()
        job = self.trained()
        good = self.inputs(2)
        number = float("nan")
        cases = [
            ({}, "inputs: required"),
            ({"observation": good["observation"]}, "inputs lack action; accepted: observation and action"),
            ({**good, "reward": [[1.0]]}, 'inputs have "reward"; accepted: observation and action'),
            ({**good, "observation": [[1.0, 2.0]]}, r"inputs.observation is \[2, 2\]; accepted: \[N, 3\]"),
            ({**good, "action": [[1.0, 2.0]] * 2}, r"inputs.action is \[2, 2\]; accepted: \[N, 1\], or \[N, K, 1\] with K from 1 to 1024"),
            ({**good, "action": [[[0.0]] * 1025]}, "K from 1 to 1024"),
            ({**good, "action": [[1.0]] * 3}, 'inputs."observation" has a batch of 2 and another input one of 3; accepted: 3 or 1'),
            ({**good, "action": [[number], [1.0]]}, "inputs.action has nan; accepted: finite values of float32"),
            ({**good, "action": [[1e300], [1.0]]}, r"inputs.action has 1e\+300; accepted: finite values of float32"),
            ({**good, "action": 1.0}, "in at least one dimension"),
            ({"observation": good["observation"][:1], "action": [[[0.0]] * 1000] * 300}, "the outputs would have 6000000 bytes; accepted: at most"),
            ({"observation": numpy.zeros((70000, 3)), "action": [[1.0]]}, "a batch of 70000; accepted: at most 65536"),
        ]
        for inputs, message in cases:
            self.refused(genesis.InvalidArgumentError, message, lambda: job.predict(inputs))
            job.predict(good)
        for odd in ("x", [[2**63]], [[1j]], [[1], [2, 3]], None):
            self.refused(genesis.InvalidArgumentError, "accepted: real numbers", lambda: job.predict({"observation": odd}))
        tensor = torch.tensor(good["observation"], dtype=torch.bfloat16, requires_grad=True)
        job.predict({**good, "observation": tensor})
        self.refused(genesis.InvalidArgumentError, "accepted: a dict", lambda: job.predict([1]))
        self.refused(genesis.NotFoundError, "none", lambda: job.predict(good, checkpoint="none"))
        call = self.client.connection.call
        for tensor in ({"shape": [2, 3], "values": [1.0] * 5}, {"shape": [2, 3], "data": b"123"}, {"shape": [1], "values": [1.0], "data": b"1234"},
                       {"shape": [-1, -6], "values": [1.0] * 6}, {"shape": [2**62, 4], "values": [1.0]}, {"values": [1.0]}, {"shape": [0, 3]}, {},
                       {"shape": [1, 3], "data": b"123", "type": "uint8"}, {"shape": [1, 3], "values": [1.0] * 3, "type": "U8"},
                       {"shape": [1, 3], "data": b"1234", "type": "U8"}, {"shape": [1, 3], "data": b"1234", "type": "\n" * 1000}):
            self.refused(genesis.InvalidArgumentError, 'inputs."observation" has .*; accepted: ',
                         lambda: call("Predict", job_id="done", inputs={"observation": tensor}))
        job.predict(good)

    def test_what_cannot_predict_says_why(self):
        self.begin()
        map_model = {"model": {"radio_unet": {"part": "VAE", "base_channels": 8, "channel_multipliers": [1]}}, "training": {"max_steps": 2, "batch_size": 2},
                     "dataset": {"synthetic": {"maps": {"maps": 8, "size": 8}}}}
        job = self.client.submit(map_model, job_id="maps")
        job.watch(progress=False)
        self.refused(genesis.FailedPreconditionError, "makes no predictions; accepted: ", lambda: job.predict({"image": [[1.0]]}))
        learner = self.learning()
        queued = self.submit("queued", LONG_JOB)
        self.refused(genesis.FailedPreconditionError, 'job "queued" is QUEUED and has no checkpoint; retry when it trains',
                     lambda: queued.predict(self.inputs(1)))
        self.assertGreater(learner.predict(self.inputs(1)).version, 0)

    def test_a_job_that_failed_before_its_first_checkpoint_has_no_predictions(self):
        self.begin()
        spec = harness.spec(max_steps=200)
        spec["optimizer"] = {"learning_rate": 1e30}
        job = self.client.submit(spec, job_id="diverges")
        with self.assertRaises(genesis.JobFailedError):
            job.watch(progress=False)
        self.refused(genesis.FailedPreconditionError, 'job "diverges" is FAILED and has no checkpoint; accepted: a job that has trained',
                     lambda: job.predict(self.inputs(1)))

    def test_numbers_by_http(self):
        self.begin()
        job = self.trained()
        inputs = self.inputs(2)
        body = {"inputs": {name: {"shape": value.shape, "values": value.ravel().tolist()} for name, value in inputs.items()}}
        request = urllib.request.Request(f"http://{self.daemon.http}/v1/jobs/done:predict", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=harness.LONG) as response:
            found = json.load(response)
        reward = found["outputs"]["reward"]
        self.assertEqual((found["step"], reward["shape"]), ("200", ["2", "1"]))
        numpy.testing.assert_allclose(numpy.array(reward["values"], "float32"), job.predict(inputs)["reward"].ravel(), rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
