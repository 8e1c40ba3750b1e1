"""Tests the standard gRPC services with their standard Python clients."""

import re
import unittest

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

import harness

TRAINING = "genesis.training.v1.TrainingService"


class Standards(harness.DaemonTest):
    def test_health_of_the_process_and_of_the_service(self):
        daemon = self.start()
        with grpc.insecure_channel(daemon.grpc) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            def status(service):
                return health.Check(health_pb2.HealthCheckRequest(service=service)).status

            self.assertEqual(status(""), health_pb2.HealthCheckResponse.SERVING)
            harness.wait_for(
                "the training service",
                lambda: status(TRAINING) == health_pb2.HealthCheckResponse.SERVING)

    def test_reflection_describes_the_training_service(self):
        daemon = self.start()
        with grpc.insecure_channel(daemon.grpc) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            self.assertIn(TRAINING, database.get_services())
            service = DescriptorPool(database).FindServiceByName(TRAINING)
            proto = harness.SOURCE / "proto/genesis/training/v1/training_service.proto"
            self.assertEqual([method.name for method in service.methods],
                             re.findall(r"^  rpc (\w+)\(", proto.read_text(), re.MULTILINE))
            # The other services can be described too.
            for name in database.get_services():
                self.assertTrue(DescriptorPool(database).FindServiceByName(name).methods)

    def test_both_versions_of_reflection_say_the_same(self):
        daemon = self.start()
        ask = reflection_pb2.ServerReflectionRequest
        requests = [
            ask(list_services=""), ask(file_containing_symbol=TRAINING), ask(file_by_filename="google/api/http.proto"),
            ask(all_extension_numbers_of_type="google.protobuf.MethodOptions"), ask(file_by_filename="no.proto"), ask(),
            ask(file_containing_extension={"containing_type": "google.protobuf.FieldOptions", "extension_number": 50101})]
        with grpc.insecure_channel(daemon.grpc) as channel:
            # The messages of both are the same on the wire.
            first, second = (list(channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=ask.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)(iter(requests), timeout=harness.LONG))
                for version in ("v1", "v1alpha"))
        self.assertEqual(first, second)
        self.assertEqual([answer.WhichOneof("message_response") for answer in first],
                         ["list_services_response", "file_descriptor_response", "file_descriptor_response",
                          "all_extension_numbers_response", "error_response", "error_response", "file_descriptor_response"])

    def test_reflection_says_what_there_is_not(self):
        daemon = self.start()
        with grpc.insecure_channel(daemon.grpc) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            self.assertEqual(list(database.FindAllExtensionNumbers(f"{TRAINING[:-15]}Job")), [])
            for ask in (database.FindFileByName, database.FindFileContainingSymbol):
                with self.assertRaises(KeyError):
                    ask("genesis.training.v1.NoSuchThing")


if __name__ == "__main__":
    unittest.main()
