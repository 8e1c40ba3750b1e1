"""Tests the states that the daemon sends to systemd over $NOTIFY_SOCKET, which is a socket of the test here."""

import pathlib
import signal
import socket
import time
import unittest

import harness
import tiers
import secure


class Notifications(harness.DaemonTest):
    def listen(self, address=None):
        """Opens a socket like systemd's. Returns the environment variable that names it."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(harness.LONG)
        path = address or str(pathlib.Path(self.data_dir) / "notify")
        self.socket.bind(path.replace("@", "\0", 1))
        return {"NOTIFY_SOCKET": path}

    def start(self, *flags, environment=None):
        return super().start("--workers-program", str(secure.FAKE_WORKER), *flags,
                             environment=environment)

    def next(self):
        """Returns the next message that is not a watchdog ping, as a dict."""
        while True:
            text = self.socket.recv(4096).decode()
            if text != "WATCHDOG=1":
                return dict(line.split("=", 1) for line in text.splitlines())

    def test_ready_reloading_ready_stopping(self):
        daemon = self.start(environment=self.listen())
        ready = self.next()
        self.assertEqual(ready["READY"], "1")
        self.assertIn(daemon.grpc, ready["STATUS"])
        self.assertTrue(daemon.ctl("info")["ready"])
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        daemon.process.send_signal(signal.SIGHUP)
        reloading = self.next()
        self.assertEqual(reloading["RELOADING"], "1")
        self.assertGreaterEqual(int(reloading["MONOTONIC_USEC"]), int(before * 1e6))
        self.assertLessEqual(int(reloading["MONOTONIC_USEC"]),
                             int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6))
        self.assertEqual(self.next()["READY"], "1")
        self.assertEqual(daemon.stop(), 0)
        stopping = self.next()
        self.assertEqual(stopping["STOPPING"], "1")
        self.assertGreaterEqual(int(stopping["EXTEND_TIMEOUT_USEC"]), 20_000_000)

    def test_ready_is_said_when_a_client_is_served(self):
        environment = self.listen()
        daemon = self.start(environment=environment)
        self.assertEqual(self.next()["READY"], "1")
        # The message is sent once the listeners are up, so the first attempt succeeds.
        self.assertEqual(daemon.get_json("/readyz")["ready"], True)

    def test_an_abstract_socket_has_no_file(self):
        self.start(environment=self.listen(f"@genesis-test-{pathlib.Path(self.data_dir).name}"))
        self.assertEqual(self.next()["READY"], "1")

    def watched(self, *flags):
        """Starts a daemon with a watchdog interval of 2 s."""
        environment = {**self.listen(), "WATCHDOG_USEC": "2000000"}
        daemon = self.start(*flags, environment=environment)
        self.assertEqual(self.next()["READY"], "1")
        return daemon

    def expect_signs_of_life(self, count):
        for _ in range(count):
            self.assertEqual(self.socket.recv(4096), b"WATCHDOG=1")

    def test_signs_of_life_come_from_a_probe_through_the_listener(self):
        daemon = self.watched()
        self.expect_signs_of_life(4)
        self.assertEqual(daemon.stop(), 0)

    def test_through_tls_and_with_client_certificates_too(self):
        authority = secure.Authority(pathlib.Path(self.data_dir) / "ca")
        certificate, key = authority.issue("daemon.example.org")
        self.watched("--tls-certificate-file", str(certificate), "--tls-key-file", str(key),
                     "--tls-client-ca-file", str(authority.certificate))
        self.expect_signs_of_life(3)

    def test_another_process_watchdog_is_not_fed(self):
        environment = {**self.listen(), "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
        daemon = self.start(environment=environment)
        self.assertEqual(self.next()["READY"], "1")
        self.assertEqual(daemon.stop(), 0)
        self.socket.setblocking(False)
        heard = []
        try:
            while True:
                heard.append(self.socket.recv(4096))
        except BlockingIOError:
            pass
        self.assertNotIn(b"WATCHDOG=1", heard)

    @tiers.nightly
    def test_silence_when_the_listener_takes_nobody(self):
        # The only connection is in use, so the probe fails.
        daemon = self.watched("--grpc-max-connections", "1")
        host, port = daemon.grpc.rsplit(":", 1)

        def occupied():
            """Takes the only connection unless the probe has it. Returns whether it succeeded."""
            holder = socket.create_connection((host, int(port)))
            self.addCleanup(holder.close)
            holder.settimeout(0.5)
            try:
                # gRPC sends its settings on each connection that it accepts.
                return holder.recv(1) != b""
            except (TimeoutError, ConnectionError):
                return False

        harness.wait_for("the only place", occupied)
        harness.wait_for("the failed probe", lambda: "the self-probe failed" in daemon.log())
        self.socket.setblocking(False)

        def heard():
            try:
                return self.socket.recv(4096)
            except BlockingIOError:
                return None

        while heard():
            pass

        # The connection's owner sends nothing that gRPC understands, so gRPC closes the connection after 20 s. Then the probe passes, and
        # only then systemd receives a ping again.
        def passes_again():
            sign = heard()
            passed = "the self-probe passes again" in daemon.log()
            self.assertTrue(passed or sign is None)
            return sign

        self.assertEqual(harness.wait_for("a sign of life", passes_again), b"WATCHDOG=1")


if __name__ == "__main__":
    unittest.main()
