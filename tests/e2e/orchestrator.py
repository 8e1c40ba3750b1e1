"""A client of the gRPC API that appends, trains, watches, checkpoints and reads statistics.

It has no generated code. Reflection describes the messages."""

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

import business_creation as creation

SERVICE = "genesis.training.v1.TrainingService"
FINAL = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")
# Seconds after which a test fails. Not a measurement.
DEADLINE = 180


class Orchestrator:
    """A client of one daemon. Any thread may call it. close() closes its connection."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address)
        self._pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self._channel))
        self._methods = {}
        for method in self._pool.FindServiceByName(SERVICE).methods:
            streams = (method.client_streaming, method.server_streaming)
            kind = {(False, False): self._channel.unary_unary,
                    (False, True): self._channel.unary_stream,
                    (True, False): self._channel.stream_unary}[streams]
            request = message_factory.GetMessageClass(method.input_type)
            response = message_factory.GetMessageClass(method.output_type)
            call = kind(f"/{SERVICE}/{method.name}", request_serializer=request.SerializeToString,
                        response_deserializer=response.FromString)
            self._methods[method.name] = (request, call)

    def close(self):
        self._channel.close()

    def call(self, method, **fields):
        """Calls any method whose request is a single message. Returns the response, or an iterator of responses for WatchJob."""
        request, call = self._methods[method]
        return call(json_format.ParseDict(fields, request()), timeout=DEADLINE)

    def batch(self, dataset, batch_id, recording, **more):
        """Builds one request of AppendTrajectories."""
        request, _ = self._methods["AppendTrajectories"]
        return request(dataset=dataset, batch_id=batch_id,
                       observation_size=len(creation.OBSERVATION), action_size=len(creation.ACTION),
                       observations=recording.observations, actions=recording.actions,
                       next_observations=recording.next_observations, rewards=recording.rewards,
                       terminals=recording.terminals, timeouts=recording.timeouts, **more)

    def append(self, dataset, seeds, **more):
        """Streams the lives of businesses, one batch per seed, named by it."""
        return self.append_batches(
            self.batch(dataset, f"business-{seed}", creation.live(seed), **more) for seed in seeds)

    def append_batches(self, batches):
        _, call = self._methods["AppendTrajectories"]
        return call(batches, timeout=DEADLINE)

    def train(self, job_id, spec):
        return self.call("Train", job_id=job_id, spec=spec).job

    def job(self, job_id):
        return self.call("GetJob", job_id=job_id).job

    def watch(self, job_id):
        """Watches a job until it ends. Returns the job at each change that this watch saw; the last one is final."""
        return [update.job for update in self.call("WatchJob", job_id=job_id)]

    def watch_until(self, job_id, wanted):
        """Watches a job until `wanted` is true for it. Returns the job."""
        updates = self.call("WatchJob", job_id=job_id)
        for update in updates:
            if wanted(update.job):
                updates.cancel()
                return update.job
        raise AssertionError(f"{job_id} ended before what was awaited")

    def checkpoint(self, job_id):
        return self.call("Checkpoint", job_id=job_id).checkpoint

    def cancel(self, job_id):
        return self.call("CancelJob", job_id=job_id).job

    def stats(self):
        return self.call("Stats")


def state_of(job):
    """Returns the name of the job's state, such as "JOB_STATE_RUNNING"."""
    return job.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[job.state].name


def world_model(dataset, **training):
    """Returns a small world model job on the businesses in a replay buffer."""
    settings = {"max_steps": 300, "batch_size": 64, "seed": 11, **training}
    return {"model": {"world_model": {"hidden_size": 48, "latent_size": 24}},
            "dataset": {"replay": {"path": dataset, "holdout_fraction": 0.2}},
            "optimizer": {"learning_rate": 0.002},
            "training": settings}
