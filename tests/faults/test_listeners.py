"""Tests clients that do harm, intentionally or not: storms of connections, readers that do not read, oversized messages, invalid bytes,
requests that never end. The daemon must serve the other clients."""

import os
import pathlib
import random
import re
import resource
import socket
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))


import harness  # noqa: E402
import secure  # noqa: E402
from harness import spec  # noqa: E402

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
LIMIT = 1024
STORM = 1200


class Listeners(harness.DaemonTest):
    def start(self, *flags):
        # The storm needs file handles in this process too.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return super().start("--workers-program", str(secure.FAKE_WORKER), *flags)

    def client(self, daemon, options=()):
        channel = secure.plain_channel(daemon.grpc, options)
        self.addCleanup(channel.close)
        return secure.Client(channel)

    def connect(self, address):
        host, port = address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=harness.LONG)
        self.addCleanup(connection.close)
        return connection

    def metric(self, daemon, name, labels=""):
        found = re.search(rf'^{name}{{deployment="stable"{labels}}} (\S+)$', daemon.get("/metrics"),
                          re.MULTILINE)
        return float(found[1])

    def handles(self, daemon):
        return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))

    def resident_bytes(self, daemon):
        pages = pathlib.Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def test_a_storm_of_idle_connections_ends_and_the_next_client_is_served(self):
        daemon = self.start()
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        early = self.client(daemon)
        early.call("Stats")
        self.assertLess(self.handles(daemon), 100)
        storm = []
        for number in range(STORM):
            connection = self.connect(daemon.grpc)
            if number % 2:
                try:
                    connection.sendall(PREFACE)
                except ConnectionError:
                    pass  # The daemon closed it, because it exceeds the limit.
            storm.append(connection)
        harness.wait_for("the refusals", lambda: self.metric(
            daemon, "genesis_connections_refused_total", ',reason="file_handles"') >=
            STORM - LIMIT * 3 // 4)
        self.assertLess(self.handles(daemon), LIMIT * 4 // 5)
        # The earlier client is served, and the daemon's own work that needs file handles succeeds.
        early.call("Stats")
        self.assertTrue(daemon.get("/healthz"))
        request, response = secure.messages("Train")
        job = request(job_id="ok-during-the-storm")
        job.spec.model.world_model.SetInParent()
        job.spec.dataset.trajectories.path = "pendulum.npz"
        job.spec.training.max_steps = 10
        early.channel.unary_unary(
            f"/{secure.TRAINING}/Train", request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)(job, timeout=harness.LONG)
        harness.wait_for("the job", lambda: early.call(
            "GetJob", job_id="ok-during-the-storm").job.HasField("end_time"))
        for connection in storm:
            connection.close()
        end = time.monotonic()
        # A new client, which has to connect first.
        self.client(daemon).call("Stats", timeout=harness.LONG)
        served = time.monotonic() - end
        print(f"served {served:.3f} s after the end of the storm", file=sys.stderr)
        self.assertLess(served, 1.0)
        harness.wait_for("the handles", lambda: self.handles(daemon) < 100)

    def test_the_limit_of_open_files_is_raised_at_the_start(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.assertGreater(hard, 300)
        # The daemon inherits this limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        try:
            daemon = harness.DaemonTest.start(self)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE),
                         (hard, hard))

    def test_connections_beyond_the_limit_are_closed_and_room_is_seen(self):
        daemon = self.start("--grpc-max-connections", "10")
        held = [self.connect(daemon.grpc) for _ in range(10)]
        for connection in held:
            self.assertNotEqual(connection.recv(1), b"")  # These are the server's settings.
        extra = self.connect(daemon.grpc)
        self.assertEqual(self.read_to_end(extra), b"")
        self.assertEqual(self.metric(daemon, "genesis_connections_refused_total",
                                     ',reason="max_connections"'), 1)
        held[3].close()
        harness.wait_for("room", lambda: self.client(daemon).code("Stats", timeout=20) == "OK")

    def read_to_end(self, connection):
        try:
            return connection.recv(1 << 16)
        except ConnectionError:
            return b""

    def test_readers_that_do_not_read_hold_nobody(self):
        daemon = self.start()
        daemon.train("hold-watched", spec(max_steps=10))
        harness.wait_for("the job to run", lambda: daemon.job("hold-watched")["state"] ==
                         "JOB_STATE_RUNNING")
        stalled = []
        for _ in range(100):
            watch = self.client(daemon).stream("WatchJob", job_id="hold-watched")
            next(watch)
            stalled.append(watch)
        before = self.resident_bytes(daemon)
        client = self.client(daemon)
        slowest = 0
        for _ in range(300):
            client.call("Checkpoint", job_id="hold-watched")
            begin = time.monotonic()
            client.call("GetJob", job_id="hold-watched")
            slowest = max(slowest, time.monotonic() - begin)
        grown = self.resident_bytes(daemon) - before
        print(f"slowest GetJob {slowest * 1e3:.1f} ms, {grown / 2**20:.1f} MiB more memory",
              file=sys.stderr)
        self.assertLess(grown, 64 * 2**20)
        client.call("CancelJob", job_id="hold-watched")
        harness.wait_for("the end", lambda: client.call(
            "GetJob", job_id="hold-watched").job.HasField("end_time"))
        final = client.call("GetJob", job_id="hold-watched").job.state
        for watch in stalled:
            *_, last = watch
            self.assertEqual(last.job.state, final)

    def test_messages_too_large_are_refused(self):
        daemon = self.start()
        client = self.client(daemon, [("grpc.max_send_message_length", -1)])
        self.assertEqual(client.code("Stats"), "OK")
        before = self.resident_bytes(daemon)
        bomb = "x" * (5 * 2**20)
        for _ in range(20):
            self.assertEqual(client.code("GetJob", job_id=bomb), "RESOURCE_EXHAUSTED")
        # A header larger than 16 KiB.
        swollen = self.client(daemon, [("grpc.max_metadata_size", 1 << 20)])
        swollen.metadata = [("x-padding", "y" * (64 * 1024))]
        self.assertNotEqual(swollen.code("Stats"), "OK")
        self.assertEqual(client.code("Stats"), "OK")
        self.assertLess(self.resident_bytes(daemon) - before, 64 * 2**20)

    def test_bytes_that_mean_nothing_do_no_harm(self):
        daemon = self.start()
        chance = random.Random(7)
        openings = [b"", PREFACE, PREFACE[:9], b"GET / HTTP/1.1\r\n\r\n"]
        for number in range(200):
            connection = self.connect(daemon.grpc)
            try:
                connection.sendall(openings[number % 4] + chance.randbytes(chance.randrange(4096)))
                if number % 3 == 0:
                    connection.shutdown(socket.SHUT_WR)
            except ConnectionError:
                pass  # The daemon has closed the connection.
            if number % 2:
                connection.close()
        self.assertEqual(self.client(daemon).code("Stats"), "OK")
        self.assertIsNone(daemon.process.poll())

    def test_slow_http_clients_do_not_hold_healthz(self):
        daemon = self.start()
        for _ in range(200):
            self.connect(daemon.http).sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        begin = time.monotonic()
        daemon.get("/healthz")
        answered = time.monotonic() - begin
        print(f"/healthz after {answered * 1e3:.1f} ms", file=sys.stderr)
        self.assertLess(answered, 1.0)
        self.assertTrue(self.client(daemon).call("GetServerInfo").ready)


if __name__ == "__main__":
    unittest.main()
