"""Tests that a client that opens calls and resets them immediately (HTTP/2 "rapid reset", CVE-2023-44487) loses its connection.

The daemon's memory must not grow, and other callers must not wait."""

import concurrent.futures
import contextlib
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

import grpc

import harness
import secure

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
CANCEL = struct.pack("!I", 8)
SERVICE = "/genesis.training.v1.TrainingService/"
# Maximum growth of the daemon's memory in MiB during a flood. Without a limit it grows by hundreds.
GROWTH = 20
# Maximum delay of other callers in seconds, generous for a busy machine. Without a limit it is ten times as long.
SOON = 2


def frame(kind, flags, stream, payload=b""):
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def header_block(fields):
    """Encodes headers by HPACK (RFC 7541), without its table and without Huffman coding."""
    block = b""
    for name, value in fields:
        for text in (name, value):
            assert len(text) < 127
        block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return block


class Flood:
    """A raw HTTP/2 connection."""

    def __init__(self, server):
        host, port = server.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=harness.LONG)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.stream = -1
        self.ended = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while self.socket.recv(1 << 16):
                pass
        self.ended.set()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.join()
        self.socket.close()

    def call(self, method, body=b""):
        """Returns the bytes of a call and its reset. If the body is None, the reset comes before the request is complete."""
        self.stream += 2
        block = header_block([
            (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers")])
        call = frame(HEADERS, END_HEADERS, self.stream, block)
        if body is not None:
            call += frame(DATA, END_STREAM, self.stream, b"\0" + struct.pack("!I", len(body)) + body)
        return call + frame(RST_STREAM, 0, self.stream, CANCEL)

    def attack(self, calls, make, pause):
        """Sends up to `calls` calls, 50 at a time, until the connection ends. Returns the number sent."""
        for done in range(0, calls, 50):
            if self.ended.is_set():
                return done
            try:
                self.socket.sendall(b"".join(make() for _ in range(50)))
            except OSError:
                return done
            time.sleep(pause)
        return calls


class Resets(harness.DaemonTest):
    def start(self, *flags, environment=None):
        return super().start("--workers-program", str(harness.FAKE_WORKER), *map(str, flags), environment=environment)

    def client(self, daemon):
        channel = secure.plain_channel(daemon.grpc, [("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return secure.Client(channel, None)

    def flood(self, daemon):
        flood = Flood(daemon.grpc)
        self.addCleanup(flood.close)
        return flood

    def memory(self, daemon):
        """Returns the resident memory of the daemon in MiB."""
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def refused(self, daemon):
        name = 'genesis_connections_refused_total{deployment="stable",reason="resets"}'
        return next(float(line.split()[-1]) for line in daemon.get("/metrics").splitlines() if line.startswith(name))

    def slowest(self, client, until):
        """Returns the longest delay, in seconds, of calls by another caller."""
        slowest = 0
        while not until.is_set():
            begin = time.monotonic()
            client.call("GetServerInfo", timeout=harness.LONG)
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.01)
        return slowest

    def assert_withstood(self, daemon, make, calls=30000, pause=0.01, connections=1):
        client = self.client(daemon)
        client.call("GetServerInfo", timeout=harness.LONG)
        before, refused = self.memory(daemon), self.refused(daemon)
        floods = [self.flood(daemon) for _ in range(connections)]
        over = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(connections + 1) as pool:
            other = pool.submit(self.slowest, client, over)
            attacks = [pool.submit(flood.attack, calls, lambda flood=flood: make(flood), pause) for flood in floods]
            for flood, attack in zip(floods, attacks):
                self.assertLess(attack.result(), calls)
                harness.wait_for("the end of the connection", flood.ended.is_set)
            over.set()
            waited = other.result()
        self.assertLess(waited, SOON)
        harness.wait_for("the memory", lambda: self.memory(daemon) - before < GROWTH)
        self.assertEqual(self.refused(daemon), refused + connections)
        client.call("GetServerInfo", timeout=harness.LONG)

    def test_calls_that_are_reset_at_once_end_the_connection_alone(self):
        daemon = self.start()
        self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "GetServerInfo"))
        self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "Train", b"\x0a\x02hi"))
        self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "WatchJob", b"\x0a\x02hi"))
        log = (pathlib.Path(self.data_dir) / "log" / "orchestrator.log").read_text()
        self.assertRegex(log, r"warning ipv4:127\.0\.0\.1:\d+ opened and abandoned \d+ calls or more.*is closed")

    def test_calls_without_a_message_and_of_other_services(self):
        daemon = self.start()
        self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "ListJobs", body=None))
        self.assert_withstood(daemon, lambda flood: flood.call("/grpc.health.v1.Health/Watch"))
        self.assert_withstood(daemon, lambda flood: flood.call("/no.such/Method"))
        self.assert_withstood(daemon, lambda flood: flood.call("/genesis.training.v1.WorkerService/Attach", body=None))

    def test_as_many_as_a_client_can_send(self):
        daemon = self.start()
        for method in ("GetServerInfo", "WatchJob"):
            self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + method), calls=1_000_000, pause=0)

    def test_by_several_clients_of_a_machine_that_is_busy(self):
        daemon = self.start()
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
        try:
            self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "GetServerInfo"), calls=1_000_000,
                                  pause=0, connections=3)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def test_over_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            harness.not_run(f"no IPv6 here: {error}")
        daemon = self.start("--grpc-listen", "[::1]:0")
        self.assert_withstood(daemon, lambda flood: flood.call(SERVICE + "GetJob", b"\x0a\x01x"))

    def test_callers_who_give_up_now_and_then_keep_their_connection(self):
        daemon = self.start()
        daemon.train("hold-1", harness.PENDULUM)
        client = self.client(daemon)
        for _ in range(3):
            streams = [client.stream("WatchJob", job_id="hold-1") for _ in range(150)]
            for stream in streams:
                next(stream)
            for stream in streams:
                stream.cancel()
        for _ in range(50):
            with contextlib.suppress(grpc.RpcError):
                client.call("ListJobs", timeout=0.001)
        self.assertEqual(client.code("GetServerInfo"), "OK")
        self.assertEqual(self.refused(daemon), 0)
