#!/usr/bin/env python3
"""Trains a job from Python: submits, watches, checkpoints, reads stats. Needs grpcio and
grpcio-reflection; the daemon describes its messages itself.

    examples/orchestrator.py 127.0.0.1:50051 JOB_ID job.json [TOKEN]
"""

import json
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

SERVICE = "genesis.training.v1.TrainingService"


class Trainer:
    def __init__(self, address, token=""):
        self.channel = grpc.insecure_channel(address)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.methods = {m.name: m for m in pool.FindServiceByName(SERVICE).methods}

    def call(self, name, /, **fields):
        """Calls a method. Returns its response, or for a server stream an iterator of responses."""
        method = self.methods[name]
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        stub = kind(f"/{SERVICE}/{name}", request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString)
        return stub(json_format.ParseDict(fields, request()), metadata=self.metadata)


def main(address, job_id, spec_file, token=""):
    trainer = Trainer(address, token)
    with open(spec_file) as file:
        job = trainer.call("Train", job_id=job_id, spec=json.load(file)).job
    print(f"{job.id}: accepted")
    kept = None
    for update in trainer.call("WatchJob", job_id=job_id):
        job, progress = update.job, update.job.progress
        print(f"{job.id}: {job.state_reason}, step {progress.step}, loss {progress.loss:.4g}")
        if progress.step > 0 and kept is None:
            try:
                kept = trainer.call("Checkpoint", job_id=job_id, name="first").checkpoint.id
            except grpc.RpcError as error:  # The job may have ended meanwhile.
                kept = error.details()
            print(f"checkpoint: {kept}")
    stats = trainer.call("Stats")
    print(f"{stats.training_steps} steps, overflow rate {stats.overflow_rate:.2%}")
    return 0 if job.state_reason.startswith("training complete") else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
