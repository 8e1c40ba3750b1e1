"""Tests that no caller can stop the daemon, slow down other callers, or exceed its role. After each attack of a hostile client on loopback,
the daemon still responds."""

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

import grpc

import harness
import secure

# Maximum delay in seconds that another caller may cause, generous for a busy machine.
SOON = 10


class HostileTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.data_dir) / "of-the-test"
        self.folder.mkdir()

    def start(self, *flags, environment=None):
        return super().start("--workers-program", str(harness.FAKE_WORKER), *map(str, flags),
                             environment=environment)

    def client(self, daemon, token=None):
        channel = secure.plain_channel(daemon.grpc, [("grpc.max_send_message_length", 8 << 20)])
        self.addCleanup(channel.close)
        return secure.Client(channel, token)

    def tokens(self, *roles):
        made = {role: secure.new_token(f"a-{role}", role) for role in roles}
        self.tokens_file = secure.write_secret(
            self.folder / "tokens", "".join(line + "\n" for _, line in made.values()))
        return {role: token for role, (token, _) in made.items()}

    def refusal(self, client, method, code, **fields):
        """Makes a call that must fail with this code. Returns the message."""
        with self.assertRaises(grpc.RpcError) as caught:
            client.call(method, timeout=harness.LONG, **fields)
        self.assertEqual(caught.exception.code().name, code, caught.exception.details())
        return caught.exception.details()

    def assert_serves(self, daemon, client=None):
        self.assertIsNone(daemon.process.poll())
        begin = time.monotonic()
        (client or self.client(daemon)).call("GetServerInfo", timeout=SOON)
        self.assertEqual(daemon.get("/healthz"), "ok\n")
        self.assertLess(time.monotonic() - begin, SOON)

    def connect(self, daemon):
        host, port = daemon.http.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=harness.LONG)
        self.addCleanup(connection.close)
        return connection

    def exchange(self, daemon, request):
        """Sends these bytes. Returns the whole response."""
        connection = self.connect(daemon)
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
        connection.close()
        return answer

    def post(self, daemon, path, body, content_type="application/json"):
        return self.exchange(daemon, (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body)


class PageTokens(HostileTest):
    def test_that_are_forged_are_refused_and_end_nothing(self):
        daemon = self.start()
        client = self.client(daemon)

        def old_form(place):  # A place, and a constant instead of the hash that tokens once ended in.
            return base64.urlsafe_b64encode(place.encode() + b"." + b"0123456789abcdef").decode()

        for method in ("ListJobs", "ListCheckpoints", "GetHistory", "ListDatasets", "ListWebhookDeliveries"):
            for token in ("x", "", "AAAA" * 100, old_form("7"), old_form(""), old_form("1,2,3"),
                          base64.urlsafe_b64encode(bytes(32)).decode(),
                          base64.urlsafe_b64encode(bytes(32) + b"99").decode(), "A" * 8000):
                expected = "INVALID_ARGUMENT" if token else "OK"
                self.assertEqual(client.code(method, page_token=token), expected, token)
        self.assert_serves(daemon)
        for i in range(3):
            daemon.train(f"ok-{i}", harness.PENDULUM)
        page = client.call("ListJobs", page_size=2)
        self.assertEqual(len(client.call("ListJobs", page_size=2,
                                         page_token=page.next_page_token).jobs), 1)
        self.assertEqual(client.code("ListCheckpoints", page_token=page.next_page_token),
                         "INVALID_ARGUMENT")


class Amplification(HostileTest):
    def test_lists_of_faulty_values_are_counted_not_read(self):
        daemon = self.start()
        client = self.client(daemon)
        request, _ = secure.messages("Train")
        attacks = []
        for grow in (lambda s: s.precision.fallbacks.extend([6] * 2_000_000),
                     lambda s: [s.rehearsals.add() for _ in range(400_000)],
                     lambda s: s.model.radio_unet.channel_multipliers.extend([99] * 1_500_000),
                     lambda s: s.optimizer.parameter_groups.add().parameters.extend([""] * 1_000_000),
                     lambda s: s.scheduling.labels.update({f"?{i}": "" for i in range(200_000)}),
                     lambda s: setattr(s.dataset.replay, "path", "\n" * 100_000)):
            train = request()
            grow(train.spec)
            attacks.append(train)
        for train in attacks:
            begin = time.monotonic()
            words = self.refusal(client, "Train", "INVALID_ARGUMENT", spec=train.spec)
            self.assertLess(time.monotonic() - begin, SOON)
            self.assertIn("accepted: at most", words)
            self.assertLess(len(words), 2500)
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
        self.assertLess(peak, 1024, "MiB that the daemon used at most")
        update, _ = secure.messages("UpdateJob")
        many = update(job_id="ok-1")
        many.update_mask.paths.extend(["labels"] * 100_000)
        self.assertEqual(client.code("UpdateJob", job_id="ok-1", update_mask=many.update_mask),
                         "INVALID_ARGUMENT")
        self.assert_serves(daemon)

    def test_filters_that_repeat_make_nobody_wait(self):
        daemon = self.start()
        codes = []
        clients = [self.client(daemon) for _ in range(5)]
        threads = [threading.Thread(target=lambda each=each: codes.append(
            each.code("ListJobs", states=[1 + i % 10 for i in range(240_000)]))) for each in clients]
        for thread in threads:
            thread.start()
        self.assert_serves(daemon)
        for thread in threads:
            thread.join()
        self.assertEqual(codes, ["INVALID_ARGUMENT"] * 5)

    def test_deep_and_wide_json_is_refused_at_once(self):
        daemon = self.start()
        bodies = [b"[" * 2_000_000, b'{"spec":' * 200_000, b"[" + b"1," * 1_000_000 + b"1]",
                  b'{"jobId":"' + b"x" * 3_000_000 + b'"}', b" " * 3_000_000, b"1" * 2_000_000,
                  b'{"' + b"y" * 2_000_000 + b'":1}']
        for path in ("/v1/jobs", "/v1/config:reload"):
            for body in bodies:
                begin = time.monotonic()
                answer = self.post(daemon, path, body)
                self.assertIn(b" 400 ", answer.split(b"\r\n")[0], (path, body[:20]))
                self.assertLess(time.monotonic() - begin, SOON, (path, body[:20]))
                self.assertLess(len(answer), 8192)
        lines = self.post(daemon, "/v1/datasets/d:append", b"[" * 1_000_000, "application/x-ndjson")
        self.assertIn(b" 400 ", lines.split(b"\r\n")[0])
        self.assert_serves(daemon)
        begin = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_refusal_fits_its_trailer(self):
        daemon = self.start()
        client = self.client(daemon)
        for text in ("x" * 100_000, "\u202e" * 1300, "%" * 4000, "\n" * 4000):
            for method, fields in (("GetJob", {"job_id": text}), ("DrainWorker", {"worker_id": text}),
                                   ("DeleteDataset", {"name": text + "/"}),
                                   ("GetCheckpoint", {"checkpoint_id": text}),
                                   ("Train", {"job_id": text}), ("ListJobs", {"page_token": text})):
                code = client.code(method, **fields)
                self.assertIn(code, ("INVALID_ARGUMENT", "NOT_FOUND"), method)


class Enums(HostileTest):
    def test_numbers_that_no_enum_has_are_refused_over_both_transports(self):
        daemon = self.start()
        client = self.client(daemon)
        request, _ = secure.messages("Train")
        good = json.loads(json.dumps(harness.PENDULUM))
        from google.protobuf import json_format
        for change in (lambda s: setattr(s.precision, "mode", 12),
                       lambda s: setattr(s.precision, "tf32", 3),
                       lambda s: setattr(s.precision.watchdog.overflow, "action", 90),
                       lambda s: setattr(s.precision.watchdog.slowdown, "action", 5),
                       lambda s: s.precision.fallbacks.append(31),
                       lambda s: setattr(s.optimizer, "kind", 77),
                       lambda s: setattr(s.optimizer.schedule, "kind", 1000)):
            train = json_format.ParseDict({"spec": good}, request())
            change(train.spec)
            self.assertIn("accepted:", self.refusal(client, "Train", "INVALID_ARGUMENT",
                                                    spec=train.spec))
        self.assertEqual(client.code("SetPrecisionPolicy", application=4), "INVALID_ARGUMENT")
        self.assertEqual(client.code("ListJobs", order=9), "INVALID_ARGUMENT")
        answer = self.exchange(daemon, (
            b"PUT /v1/precision_policy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: 18\r\n\r\n" + b'{"application":42}'))
        self.assertIn(b"application is 42; accepted: NEW_ATTEMPTS", answer)
        self.assert_serves(daemon)


class Framing(HostileTest):
    def test_a_request_that_can_be_read_in_two_ways_is_refused_and_nothing_after_it_served(self):
        daemon = self.start()
        inner = b"GET /v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n"
        head = b"POST /v1/config:reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for fields in (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                       b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                       b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, identity\r\n",
                       b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n",
                       b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n",
                       b"X: y\r\n Transfer-Encoding: chunked\r\n", b"X: y\nContent-Length: 5\r\n",
                       b"Content-Length: 5\r\nContent-Length: 0\r\n", b"Content-Length: 0x5\r\n",
                       b"Host: other\r\n", b"Authorization: a\r\nAuthorization: b\r\n"):
            answer = self.exchange(daemon, head + fields + b"\r\n0\r\n\r\n" + inner)
            self.assertIn(b" 400 ", answer.split(b"\r\n")[0], fields)
            self.assertEqual(len(re.findall(rb"HTTP/1\.1 \d", answer)), 1, (fields, answer))
        chunked = head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        for body in (b"5\n{}\n0\n\n", b"0x2\r\n{}\r\n0\r\n\r\n", b"-1\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"):
            answer = self.exchange(daemon, chunked + body + inner)
            self.assertNotIn(b" 200 ", answer.split(b"\r\n")[0], body)
            self.assertLess(len(re.findall(rb"HTTP/1\.1 \d", answer)), 2, body)
        self.assertIn(b" 200 ", self.exchange(daemon, chunked + b"2\r\n{}\r\n0\r\n\r\n"))
        self.assert_serves(daemon)


class Names(HostileTest):
    def get(self, daemon, host, path="/v1/server"):
        return self.exchange(daemon, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
                                     "Connection: close\r\n\r\n".encode())

    def test_a_name_that_was_bound_again_reads_nothing(self):
        daemon = self.start()
        port = daemon.http.rsplit(":", 1)[1]
        for path in ("/v1/server", "/metrics", "/api/training/status", "/", "/v1/openapi.json"):
            answer = self.get(daemon, f"evil.example:{port}", path)
            self.assertIn(b" 403 ", answer.split(b"\r\n")[0], path)
            self.assertIn(b'Host is \\"evil.example', answer)
        for host in ("localhost", f"127.0.0.1:{port}", "[::1]", socket.gethostname()):
            self.assertIn(b" 200 ", self.get(daemon, host).split(b"\r\n")[0], host)
        self.assertIn(b" 200 ", self.get(daemon, "kubelet.example", "/readyz"))

    def test_where_tokens_guard_the_api_any_name_is_served(self):
        self.tokens("viewer")
        daemon = self.start("--auth-tokens-file", self.tokens_file)
        self.assertIn(b" 401 ", self.get(daemon, "train.example.org").split(b"\r\n")[0])


class Crowds(HostileTest):
    def test_probes_are_answered_while_hundreds_hold_connections(self):
        daemon = self.start()
        daemon.train("hold-1", harness.PENDULUM)
        half_open = [self.connect(daemon) for _ in range(300)]
        for each in half_open[::2]:
            with contextlib.suppress(ConnectionError):
                each.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        for path in ("/healthz", "/readyz", "/metrics"):
            self.assertTrue(daemon.get(path))
        watching = []
        for _ in range(300):
            with contextlib.suppress(ConnectionError):
                each = self.connect(daemon)
                each.sendall(b"GET /v1/jobs/hold-1:watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
                watching.append(each)
        slow = []
        for _ in range(200):
            with contextlib.suppress(ConnectionError):
                each = self.connect(daemon)
                each.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
                slow.append(each)
        for _ in range(5):
            for path in ("/healthz", "/readyz", "/metrics"):
                begin = time.monotonic()
                self.assertTrue(daemon.get(path))
                self.assertLess(time.monotonic() - begin, SOON)
        self.assertEqual(self.client(daemon).code("GetServerInfo"), "OK")

    def test_watches_are_bounded_and_the_limit_is_named(self):
        daemon = self.start()
        daemon.train("hold-1", harness.PENDULUM)
        client = self.client(daemon)
        streams = []
        for _ in range(512):
            stream = client.stream("WatchJob", job_id="hold-1", cursor=-1)
            streams.append(stream)
        for stream in streams:
            next(stream)
        with self.assertRaises(grpc.RpcError) as caught:
            next(client.stream("WatchJob", job_id="hold-1"))
        self.assertEqual(caught.exception.code().name, "RESOURCE_EXHAUSTED")
        self.assertIn('512 watches of "anonymous" are open; accepted: at most 512',
                      caught.exception.details())
        begin = time.monotonic()
        self.assertEqual(client.code("CancelJob", job_id="hold-1", now=True), "OK")
        self.assertLess(time.monotonic() - begin, SOON)
        for stream in streams:
            last = list(stream)
            self.assertEqual(last[-1].job.state, 10)  # CANCELLED
        harness.wait_for("a free place", lambda: self.watches(client))

    @staticmethod
    def watches(client):
        try:
            return list(client.stream("WatchJob", job_id="hold-1"))
        except grpc.RpcError:
            return None


class Certificates(HostileTest):
    def test_a_name_with_a_nul_is_nobody_over_both_transports(self):
        authority = secure.Authority(self.folder / "ca")
        certificate, key = authority.issue("localhost")
        roles = secure.write_secret(self.folder / "roles", "cn:boss admin\n")
        daemon = self.start("--tls-certificate-file", certificate, "--tls-key-file", key,
                            "--tls-client-ca-file", authority.certificate,
                            "--auth-tokens-file", roles)
        for name, subject, expected in (
                ("boss", ["boss"], b" 200 "), ("nul", ["boss\0.evil.example"], b" 401 "),
                ("two", ["boss", "eve"], b" 401 "), ("turned", ["eve", "boss"], b" 401 "),
                ("line", ["boss\n"], b" 401 ")):
            pem, its_key = self.issue(authority, name, subject)
            context = ssl.create_default_context(cafile=authority.certificate)
            context.load_cert_chain(pem, its_key)
            host, port = daemon.http.rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=harness.LONG) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(b"POST /v1/config:reload HTTP/1.1\r\nHost: localhost\r\n"
                                       b"Content-Length: 0\r\n\r\n")
                    answer = connection.recv(65536)
            self.assertIn(expected, answer.split(b"\r\n")[0], name)
            channel = secure.tls_channel(daemon.grpc, authority.certificate, pem, its_key)
            with contextlib.closing(channel):
                code = secure.Client(channel).code("ReloadConfig")
            self.assertEqual(code, "OK" if name == "boss" else "UNAUTHENTICATED", name)

    def issue(self, authority, file, names):
        """Issues a certificate whose subject has these common names, which may contain any bytes.

        openssl's tools reject a NUL, so the subject of a request is replaced before it is signed. Returns (certificate, key)."""
        base = self.folder / file
        key, request, signed = (base.with_suffix(s) for s in (".key", ".der", ".pem"))
        secure.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        os.chmod(key, 0o600)
        wide = ["Q" * len(name) for name in names]
        secure.openssl("req", "-new", "-x509", "-key", key, "-outform", "DER", "-out", request,
                       "-days", "2", "-utf8", "-subj", "".join(f"/CN={name}" for name in wide))
        der = request.read_bytes()
        subject = secure_subject(names)
        # The self-signed certificate provides version, validity and key. Its subject and issuer are replaced, and the authority signs the
        # result.
        signed.write_text(sign(authority, der, subject, self.folder))
        return signed, key


def tlv(tag, content):
    size = len(content)
    length = bytes([size]) if size < 128 else (
        bytes([0x80 | (size.bit_length() + 7) // 8]) + size.to_bytes((size.bit_length() + 7) // 8, "big"))
    return bytes([tag]) + length + content


def parts_of(content):
    """Returns the encodings of the elements in the content of a DER sequence."""
    parts = []
    while content:
        size, header = content[1], 2
        if size & 0x80:
            header += size & 0x7F
            size = int.from_bytes(content[2:header], "big")
        parts.append(content[:header + size])
        content = content[header + size:]
    return parts


def inside(element):
    header = 2 + (element[1] & 0x7F if element[1] & 0x80 else 0)
    return element[header:]


def secure_subject(names):
    common_name = bytes.fromhex("0603550403")
    return tlv(0x30, b"".join(
        tlv(0x31, tlv(0x30, common_name + tlv(0x0C, name.encode()))) for name in names))


def sign(authority, der, subject, folder):
    """Returns the PEM of the certificate `der` with another subject, signed by the authority (ECDSA, SHA-256)."""
    def run(*arguments, data):
        return subprocess.run(["openssl", *map(str, arguments)], input=data, check=True,
                              capture_output=True, timeout=harness.LONG).stdout

    body, algorithm, _ = parts_of(inside(der))
    fields = parts_of(inside(body))  # [version] serial algorithm issuer validity subject key ...
    ca = run("x509", "-in", authority.certificate, "-outform", "DER", data=b"")
    issuer = parts_of(inside(parts_of(inside(ca))[0]))[5]
    fields[3], fields[5] = issuer, subject
    # The extensions are left out, because they mark the self-signed certificate as an authority.
    body = tlv(0x30, b"".join(fields[:7]))
    signature = run("dgst", "-sha256", "-sign", authority.key, data=body)
    made = tlv(0x30, body + algorithm + tlv(0x03, b"\0" + signature))
    return ssl.DER_cert_to_PEM_cert(made)


class Log(HostileTest):
    def test_no_caller_writes_a_record_of_its_own(self):
        daemon = self.start()
        client = self.client(daemon)
        forged = "\n2026-01-01T00:00:00.000+00:00 error forged\r\x1b[31m"
        for method, fields in (("SetPrecisionPolicy", {"reason": "why" + forged}),
                               ("GetJob", {"job_id": forged}), ("DeleteDataset", {"name": forged}),
                               ("DrainWorker", {"worker_id": forged}),
                               ("Train", {"job_id": forged, "request_id": forged})):
            client.code(method, **fields)
        for line in daemon.log().splitlines():
            self.assertRegex(line, r"^20\d\d-\d\d-\d\dT[\d:.]+[+-][\d:]+ (trace|debug|info|warning|error|critical) ")
        self.assertNotIn("\x1b", daemon.log())


class Datasets(HostileTest):
    def batch(self, count, number=0, **fields):
        request, _ = secure.messages("AppendTrajectories")
        return request(dataset="buffer", batch_id=f"b{number}", observation_size=1, action_size=1,
                       observations=[1.0] * count, actions=[1.0] * count,
                       next_observations=[1.0] * count, rewards=[1.0] * count, **fields)

    def append(self, client, *batches):
        request, response = secure.messages("AppendTrajectories")
        return client.channel.stream_unary(
            f"/{secure.TRAINING}/AppendTrajectories", request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)(
                iter(batches), metadata=client.metadata, timeout=harness.LONG)

    def test_a_submitter_cannot_delete_by_shrinking_and_every_append_is_audited(self):
        tokens = self.tokens("submitter", "admin")
        daemon = self.start("--auth-tokens-file", self.tokens_file)
        submitter = self.client(daemon, tokens["submitter"])
        admin = self.client(daemon, tokens["admin"])
        self.assertEqual(self.append(admin, self.batch(2000, 1, capacity=5000)).buffer_transitions, 2000)
        with self.assertRaises(grpc.RpcError) as caught:
            self.append(submitter, self.batch(1, 2, capacity=1))
        self.assertEqual(caught.exception.code().name, "PERMISSION_DENIED")
        self.assertIn("dataset \"buffer\" belongs to \"a-admin\"", caught.exception.details())
        self.assertEqual(self.append(admin, self.batch(1, 3, capacity=1)).buffer_transitions, 1)
        audit = (daemon.data_dir / "log" / "audit.log").read_text().splitlines()
        seen = [(line["caller"], line["subject"], line["outcome"]) for line in map(json.loads, audit)
                if line["method"] == "AppendTrajectories"]
        self.assertEqual(seen, [("a-admin", "buffer", "OK"), ("a-submitter", "buffer", "PERMISSION_DENIED"),
                                ("a-admin", "buffer", "OK")])

    def test_the_root_is_no_dataset(self):
        daemon = self.start()
        self.append(self.client(daemon), self.batch(500))
        job = json.loads(json.dumps(harness.PENDULUM))
        for path in ("", ".", "./", "buffer/", "buffer/.", "./buffer", "buffer//", "x/.."):
            job["dataset"] = {"replay": {"path": path}}
            refused = daemon.train("ok-1", job, check=False)
            self.assertNotEqual(refused.returncode, 0, path)
            self.assertIn("dataset.replay.path", refused.stderr)
        job["dataset"] = {"replay": {"path": "buffer"}}
        daemon.train("ok-1", job)


class Revocation(HostileTest):
    def test_a_stream_ends_when_its_token_is_taken_away(self):
        tokens = self.tokens("viewer", "submitter")
        daemon = self.start("--auth-tokens-file", self.tokens_file)
        submitter = self.client(daemon, tokens["submitter"])
        request, _ = secure.messages("Train")
        from google.protobuf import json_format
        train = json_format.ParseDict({"spec": harness.PENDULUM}, request())
        submitter.call("Train", job_id="hold-1", spec=train.spec)
        viewer = self.client(daemon, tokens["viewer"])
        stays = submitter.stream("WatchJob", job_id="hold-1", cursor=-1)
        ends = viewer.stream("WatchJob", job_id="hold-1", cursor=-1)
        next(stays), next(ends)
        # Some of these connections end during a write.
        connections = [self.connect(daemon) for _ in range(100)]
        for connection in connections:
            connection.sendall(b"GET /v1/jobs/hold-1:watch HTTP/1.1\r\nHost: localhost\r\n"
                               b"Authorization: Bearer " + tokens["viewer"].encode() + b"\r\n\r\n")
        starts = [connection.recv(4096) for connection in connections]
        for start in starts:
            self.assertIn(b" 200 ", start)
        kept = [line for line in self.tokens_file.read_text().splitlines() if "a-viewer" not in line]
        secure.write_secret(self.tokens_file, "\n".join(kept) + "\n")
        os.kill(daemon.process.pid, signal.SIGHUP)
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in ends:
                pass
        self.assertEqual(caught.exception.code().name, "UNAUTHENTICATED")
        for connection, rest in zip(connections, starts):
            while piece := connection.recv(65536):
                rest += piece
            self.assertIn(b"UNAUTHENTICATED", rest)
        self.assertTrue(stays.is_active())
        self.assertEqual(submitter.code("CancelJob", job_id="hold-1", now=True), "OK")
        self.assertTrue(list(stays))


if __name__ == "__main__":
    unittest.main()
