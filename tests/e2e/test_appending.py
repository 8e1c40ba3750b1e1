"""Tests AppendTrajectories while the daemon is killed, and with requests over its limits."""

import unittest

import grpc

import business_creation as creation
import harness
from orchestrator import Orchestrator


class Appending(harness.DaemonTest):
    def connect(self, daemon):
        client = Orchestrator(daemon.grpc)
        self.addCleanup(client.close)
        return client

    def test_a_killed_daemon_keeps_every_batch_and_the_stream_can_be_sent_again(self):
        daemon = self.start()
        client = self.connect(daemon)
        self.assertEqual(client.append("shop", range(10)).appended_batches, 10)
        recordings = {seed: creation.live(seed) for seed in range(60)}

        def batches():
            for seed, recording in recordings.items():
                if seed == 40:
                    daemon.kill()
                yield client.batch("shop", f"business-{seed}", recording)

        with self.assertRaises(grpc.RpcError) as refused:
            client.append_batches(batches())
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)

        again = self.connect(self.start())
        answer = again.append("shop", range(60))
        # Acknowledged batches are reported as repeated. The others are stored once.
        self.assertGreaterEqual(answer.repeated_batches, 10)
        self.assertEqual(answer.repeated_batches + answer.appended_batches, 60)
        self.assertEqual(answer.buffer_transitions, sum(map(len, recordings.values())))

    def test_a_message_above_the_limit_is_refused_and_the_daemon_goes_on(self):
        client = self.connect(self.start())
        recording = creation.live(0)
        many = creation.Recording()
        for name in vars(many):
            setattr(many, name, getattr(recording, name) * 1000)
        batch = client.batch("shop", "too-large", many)
        self.assertGreater(batch.ByteSize(), 4 << 20)
        with self.assertRaises(grpc.RpcError) as refused:
            client.append_batches(iter([batch]))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("larger than max", refused.exception.details())
        self.assertEqual(client.append("shop", range(3)).appended_batches, 3)


if __name__ == "__main__":
    unittest.main()
