"""The standard gRPC services, asked by the standard Python clients."""

import unittest

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
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
            self.assertEqual([method.name for method in service.methods],
                             ["Train", "GetJob", "ListJobs", "WatchJob", "CancelJob", "Checkpoint",
                              "ListCheckpoints", "Stats", "GetServerInfo", "AppendTrajectories"])


if __name__ == "__main__":
    unittest.main()
