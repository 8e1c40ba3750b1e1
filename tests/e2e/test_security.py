"""Tests authentication and roles: tokens on each method, TLS and client certificates, the Unix socket, the audit log; and that no secret is
ever logged."""

import hashlib
import json
import os
import pathlib
import re
import signal
import ssl
import stat
import subprocess
import unittest
import urllib.request

import grpc
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc

import api_client
import harness
import secure

# The comments in training_service.proto name the role of each method: "Role: viewer."
PROTO = (harness.SOURCE / "proto/genesis/training/v1/training_service.proto").read_text()
BATCH = {"batch_id": "1", "observation_size": 1, "action_size": 1, "observations": [1], "actions": [1], "next_observations": [1],
         "rewards": [1]}


def documented_roles():
    """Returns {method: role} of the unary methods."""
    service = PROTO[PROTO.index("service TrainingService"):]
    service = service[:service.index("\n}")]
    roles = {}
    comment = ""
    for line in service.splitlines():
        if line.strip().startswith("//"):
            comment += line
            continue
        method = re.match(r"  rpc (\w+)\((stream )?(\w+)\) returns \((stream )?", line)
        if method:
            if not method[2] and not method[4]:
                roles[method[1]] = re.search(r"Role: (\w+)", comment)[1]
            comment = ""
    return roles


class SecurityTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.data_dir) / "secrets-of-the-test"
        self.folder.mkdir()

    def start(self, *flags, environment=None):
        return super().start("--workers-program", str(secure.FAKE_WORKER), *flags,
                             environment=environment)

    def make_tokens(self):
        """Writes a tokens file with one token per role. Returns {role: token}."""
        tokens, lines = {}, ["# who may call"]
        for role in ("viewer", "submitter", "admin"):
            tokens[role], line = secure.new_token(f"test-{role}", role)
            lines.append(line)
        self.tokens_file = secure.write_secret(self.folder / "tokens", "\n".join(lines) + "\n")
        return tokens

    def plain(self, daemon, token=None, options=()):
        channel = secure.plain_channel(daemon.grpc, options)
        self.addCleanup(channel.close)
        return secure.Client(channel, token)

    def tls(self, daemon, token=None, certificate=None, authority=None):
        channel = secure.tls_channel(daemon.grpc, authority or self.authority.certificate,
                                     *(certificate or (None, None)))
        self.addCleanup(channel.close)
        return secure.Client(channel, token)

    def audit(self, daemon):
        lines = (daemon.data_dir / "log" / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def refused_start(self, *flags):
        """Runs genesisd, which must not start. Returns its output."""
        done = subprocess.run(
            [harness.BIN / "genesisd", "--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", *map(str, flags)],
            capture_output=True, text=True, timeout=harness.LONG, env=harness.clean_environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr


class Tokens(SecurityTest):
    def test_every_method_asks_for_its_role(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        ranks = ["viewer", "submitter", "admin"]
        refusals = {"UNAUTHENTICATED", "PERMISSION_DENIED"}
        roles = documented_roles()
        self.assertGreater(len(roles), 20)
        nobody = self.plain(daemon)
        stranger = self.plain(daemon, "genesis_" + "A" * 43)
        clients = {role: self.plain(daemon, tokens[role]) for role in ranks}
        served = 0
        for method, role in roles.items():
            if clients["admin"].code(method) == "UNIMPLEMENTED":
                continue
            served += 1
            self.assertEqual(nobody.code(method), "UNAUTHENTICATED", method)
            self.assertEqual(stranger.code(method), "UNAUTHENTICATED", method)
            for rank, client in clients.items():
                code = client.code(method)
                if ranks.index(rank) < ranks.index(role):
                    self.assertEqual(code, "PERMISSION_DENIED", (method, rank))
                else:
                    self.assertNotIn(code, refusals, (method, rank))
        self.assertGreaterEqual(served, 10)

    def test_streams_and_reflection_ask_too_and_health_does_not(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        nobody, viewer = self.plain(daemon), self.plain(daemon, tokens["viewer"])
        with self.assertRaises(grpc.RpcError) as caught:
            list(nobody.stream("WatchJob", job_id="a"))
        self.assertEqual(caught.exception.code().name, "UNAUTHENTICATED")
        with self.assertRaises(grpc.RpcError) as caught:
            nobody.services()
        self.assertEqual(caught.exception.code().name, "UNAUTHENTICATED")
        self.assertEqual(set(viewer.services()),
                         {secure.TRAINING, "grpc.health.v1.Health",
                          "grpc.reflection.v1.ServerReflection",
                          "grpc.reflection.v1alpha.ServerReflection"})
        answer = health_pb2_grpc.HealthStub(nobody.channel).Check(
            health_pb2.HealthCheckRequest(), timeout=harness.LONG)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)

    def test_the_file_is_taken_over_when_it_changes_and_kept_when_it_is_broken(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        admin = self.plain(daemon, tokens["admin"])
        self.assertEqual(admin.code("GetServerInfo"), "OK")
        new_token, new_line = secure.new_token("successor", "admin")
        successor = self.plain(daemon, new_token)
        self.assertEqual(successor.code("GetServerInfo"), "UNAUTHENTICATED")
        secure.write_secret(self.tokens_file, new_line + "\n")
        harness.wait_for("the new token", lambda: successor.code("GetServerInfo") == "OK")
        self.assertEqual(admin.code("GetServerInfo"), "UNAUTHENTICATED")
        secure.write_secret(self.tokens_file, "successor admin what-is-this\n")
        harness.wait_for("the refusal", lambda: 'genesis_config_reloads_total{deployment="stable",'
                         'result="failure"} 1' in daemon.get("/metrics"))
        self.assertEqual(successor.code("GetServerInfo"), "OK")
        self.assertIn("the third word is no hash of a token", daemon.log())
        self.assertNotIn("what-is-this", daemon.log())

    def test_a_file_that_others_may_read_is_refused(self):
        self.make_tokens()
        os.chmod(self.tokens_file, 0o644)
        text = self.refused_start("--auth-tokens-file", self.tokens_file)
        self.assertIn("has mode 0644, so that others may read or change it; accepted: 0640 or "
                      "narrower; run chmod 0600", text)

    def test_genesisctl_brings_the_token(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        self.assertIn("UNAUTHENTICATED: no token", daemon.ctl("info", check=False).stderr)
        token_file = secure.write_secret(self.folder / "token", tokens["viewer"] + "\n")
        self.assertTrue(daemon.ctl("--token-file", str(token_file), "info")["ready"])
        done = daemon.ctl("--token-file", str(token_file), "config", "reload", check=False)
        self.assertIn("PERMISSION_DENIED: ReloadConfig needs the role admin; \"test-viewer\" has "
                      "viewer", done.stderr)
        self.assertEqual(done.returncode, 1)
        refused = daemon.ctl("--server", "192.0.2.1:1", "--token-file", str(token_file), "info",
                             check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("the token would travel unencrypted to 192.0.2.1:1", refused.stderr)


class HttpWithToken(api_client.HttpApi):
    types = staticmethod(secure.messages)

    def __init__(self, address, token):
        self.token = token
        super().__init__(address, grpc_api=self)

    def exchange(self, verb, target, body=None, headers=None):
        return super().exchange(verb, target, body, {**(headers or {}), "Authorization": f"Bearer {self.token}"})


class Owners(SecurityTest):
    """The table in docs/security.md: every method, caller and transport."""

    COLUMNS = {"ann": "submitter", "bob": "submitter", "vic": "viewer", "root": "admin"}
    READING = ("GetJob", "GetSweep", "GetCheckpoint", "ListArtifacts", "ListCheckpoints", "GetHistory", "GetCurves", "Stats")

    def rows(self):
        """Yields (first cell, {caller: cell})."""
        page = (harness.SOURCE / "docs" / "security.md").read_text()
        table = page[page.index("| Call | Owner | Other submitter | Viewer | Admin |"):].split("\n\n")[0]
        for line in table.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            yield cells[0], dict(zip(self.COLUMNS, cells[1:]))

    def connect(self, *flags):
        lines, tokens = [], {}
        for name, role in self.COLUMNS.items():
            tokens[name], line = secure.new_token(name, role)
            lines.append(line)
        daemon = self.start("--auth-tokens-file", str(secure.write_secret(self.folder / "tokens", "\n".join(lines) + "\n")), *flags)
        self.callers, self.clients = {}, {}
        for name, token in tokens.items():
            self.clients[name] = client = self.plain(daemon, token)
            http_api = HttpWithToken(daemon.http, token)
            self.callers[name] = {"grpc": client.code, "http": lambda method, api=http_api, **fields: api.call(method, fields).code}
        self.jobs = 0
        return daemon

    def job_of_ann(self, kind):
        self.jobs += 1
        job_id = f"{kind}-{self.jobs}"
        spec = {"model": {"world_model": {}}, "dataset": {"trajectories": {"path": "pendulum.npz"}}, "training": {"max_steps": 10}}
        self.assertEqual(self.callers["ann"]["http"]("Train", spec=spec, job_id=job_id), "OK")
        if kind == "ok":
            self.assertEqual(self.callers["root"]["http"]("GetJob", job_id=job_id, wait_seconds=300), "OK")
        return job_id

    def fields(self, method):
        if method in ("AppendTrajectories", "DeleteDataset"):
            self.jobs += 1
            batch = {**BATCH, "dataset": f"buffer-{self.jobs}"}
            self.assertEqual(self.callers["ann"]["http"]("AppendTrajectories", **batch), "OK")
            return {"name": batch["dataset"]} if method == "DeleteDataset" else batch
        if "Sweep" in method:
            self.jobs += 1
            sweep = {"job": harness.PENDULUM, "parameters": [{"field": "training.seed", "values": ["1"]}]}
            self.assertEqual(self.callers["ann"]["http"]("CreateSweep", spec=sweep, sweep_id=f"hold-{self.jobs}"), "OK")
            return {"sweep_id": f"hold-{self.jobs}"}
        if method == "WriteUpload":
            self.jobs += 1
            file = {"sha256": f"{self.jobs:064x}", "kind": "npz", "size_bytes": 1}
            self.assertEqual(self.callers["ann"]["http"]("StartUpload", **file), "OK")
            return file
        if "Checkpoint" in method and method not in ("Checkpoint", "ListCheckpoints"):
            return {"checkpoint_id": self.job_of_ann("ok") + "-step-10"}
        fields = {"job_id": self.job_of_ann("ok" if method in ("DeleteJob", *self.READING) else "hold")}
        return {**fields, "update_mask": "labels"} if method == "UpdateJob" else fields

    def check(self, methods, expected):
        for method in methods:
            for caller, cell in expected.items():
                for transport, call in self.callers[caller].items():
                    fields = self.fields(method)
                    if transport == "grpc" and "update_mask" in fields:
                        fields["update_mask"] = {"paths": ["labels"]}
                    code = call(method, **fields)
                    refused = re.match("[A-Z_]+", cell)
                    with self.subTest(method, caller=caller, transport=transport):
                        if refused:
                            self.assertEqual(code, refused[0])
                        else:
                            self.assertNotIn(code, ("PERMISSION_DENIED", "UNAUTHENTICATED", "NOT_FOUND"))
                    if "sweep_id" in fields:
                        self.callers["root"]["http"]("CancelSweep", **fields)
                        self.callers["root"]["http"]("CancelJob", job_id=f"{fields['sweep_id']}-000", now=True)
                    if "job_id" in fields:
                        self.callers["root"]["http"]("CancelJob", job_id=fields["job_id"], now=True)

    def test_the_table(self):
        changing, reading, hidden = self.rows()
        self.connect()
        self.check(changing[0].split(", "), changing[1])
        self.check(self.READING, reading[1])
        self.assertIn("auth.own_jobs_only", hidden[0])

    def test_the_table_with_own_jobs_only(self):
        self.connect("--auth-own-jobs-only=true")
        self.check(self.READING, list(self.rows())[2][1])

    def upload(self, name, content):
        file = {"sha256": hashlib.sha256(content).hexdigest(), "kind": "npz", "size_bytes": len(content)}
        upload = self.clients[name].call("StartUpload", **file).upload
        return upload.path or self.clients[name].call("WriteUpload", piece=content, **file).upload.path

    def refusal(self, caller, method, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.clients[caller].call(method, **fields)
        return f"{caught.exception.code().name}: {caught.exception.details()}"

    def owners(self, name):
        return {each.name: list(each.owners) for each in self.clients[name].call("ListDatasets").datasets}

    def test_named_checkpoints_count_too(self):
        self.connect("--quotas-stored-bytes=1000")
        self.clients["ann"].call("Train", spec=json_format.ParseDict(
            {"spec": harness.PENDULUM}, secure.messages("Train")[0]()).spec, job_id="hold-1")
        harness.wait_for("a step", lambda: self.clients["ann"].call("GetJob", job_id="hold-1").job.progress.step > 0)
        # The fake worker's checkpoints are small, so most of the room is an upload's.
        self.upload("ann", b"a" * 900)
        refusals = 0
        for i in range(200):
            code = self.clients["ann"].code("Checkpoint", job_id="hold-1", name=f"kept-{i}")
            if code == "RESOURCE_EXHAUSTED":
                refusals += 1
                break
            self.assertEqual(code, "OK")
        self.assertEqual(refusals, 1)
        self.assertEqual(self.clients["ann"].code("Checkpoint", job_id="hold-1"), "OK")

    def test_an_upload_is_that_of_each_caller_who_sent_it_after_a_restart_too(self):
        flags = "--auth-own-jobs-only=true", "--quotas-stored-bytes=1000"
        daemon = self.connect(*flags)
        path = self.upload("ann", b"a" * 600)
        self.assertEqual(self.owners("ann"), {path: ["ann"], "cartpole.npz": [], "pendulum.npz": []})
        self.assertEqual(self.owners("bob"), {"cartpole.npz": [], "pendulum.npz": []})
        request, _ = secure.messages("Train")
        spec = {**harness.PENDULUM, "dataset": {"trajectories": {"path": path}}}
        job = json_format.ParseDict({"spec": spec}, request())
        self.assertIn("INVALID_ARGUMENT: dataset.trajectories.path", self.refusal("bob", "Train", spec=job.spec))
        self.assertIn("PERMISSION_DENIED: dataset", self.refusal("bob", "DeleteDataset", name=path))
        daemon.stop()
        daemon = self.connect(*flags)
        other = hashlib.sha256(b"b" * 500).hexdigest()
        self.assertIn("RESOURCE_EXHAUSTED: \"ann\" stores 600 bytes and quotas.stored_bytes is 1000",
                      self.refusal("ann", "StartUpload", sha256=other, kind="npz", size_bytes=500))
        self.assertEqual(self.upload("bob", b"a" * 600), path)
        self.assertEqual(self.owners("bob")[path], ["bob"])
        self.assertEqual(self.owners("root")[path], ["ann", "bob"])
        self.clients["bob"].call("Train", spec=job.spec, job_id="hold-1")
        self.assertIn("FAILED_PRECONDITION: a job of another owner has not ended", self.refusal("ann", "DeleteDataset", name=path))
        self.clients["bob"].call("CancelJob", job_id="hold-1", now=True)
        self.clients["bob"].call("GetJob", job_id="hold-1", wait_seconds=300)
        file = daemon.data_dir / "datasets" / path
        self.clients["ann"].call("DeleteDataset", name=path)
        self.assertEqual(self.owners("root")[path], ["bob"])
        self.assertTrue(file.exists())
        self.clients["bob"].call("DeleteDataset", name=path)
        self.assertFalse(file.exists())
        self.assertEqual(self.clients["ann"].code("StartUpload", sha256=other, kind="npz", size_bytes=1000), "OK")


class Audit(SecurityTest):
    def test_changes_and_refusals_are_written_down_and_reads_are_not(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        submitter = self.plain(daemon, tokens["submitter"])
        self.assertEqual(submitter.code("CancelJob", job_id="no-such-job"), "NOT_FOUND")
        self.assertEqual(submitter.code("ReloadConfig"), "PERMISSION_DENIED")
        self.assertEqual(submitter.code("Stats"), "OK")
        self.assertEqual(self.plain(daemon).code("Stats"), "UNAUTHENTICATED")
        lines = self.audit(daemon)
        self.assertEqual([(line["caller"], line["role"], line["method"], line["subject"],
                           line["outcome"]) for line in lines],
                         [("test-submitter", "submitter", "CancelJob", "no-such-job", "NOT_FOUND"),
                          ("test-submitter", "submitter", "ReloadConfig", "",
                           "PERMISSION_DENIED"),
                          ("", "", "Stats", "", "UNAUTHENTICATED")])
        for line in lines:
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertTrue(line["peer"].startswith("ipv4:127.0.0.1:"), line)
            self.assertEqual(line["protocol"], "grpc")
        mode = (daemon.data_dir / "log" / "audit.log").stat().st_mode
        self.assertEqual(stat.S_IMODE(mode) & 0o027, 0)

    def test_who_is_refused_over_and_over_does_not_fill_the_disk(self):
        tokens = self.make_tokens()
        daemon = self.start("--auth-tokens-file", str(self.tokens_file))
        nobody = self.plain(daemon)
        for _ in range(150):
            self.assertEqual(nobody.code("Stats"), "UNAUTHENTICATED")
        admin = self.plain(daemon, tokens["admin"])
        self.assertEqual(admin.code("CancelJob", job_id="x"), "NOT_FOUND")
        lines = self.audit(daemon)
        self.assertLessEqual(len(lines), 101 + 100)  # The test may run across the end of a minute.
        told = sum(line.get("refusals_not_written", 0) for line in lines)
        self.assertEqual(len(lines) - 1 + told, 150)


class NoSecretIsWritten(SecurityTest):
    def test_neither_token_nor_key_is_in_any_file_of_the_data_folder(self):
        tokens = self.make_tokens()
        self.authority = secure.Authority(self.folder / "ca")
        certificate, key = self.authority.issue("localhost")
        daemon = self.start("--auth-tokens-file", str(self.tokens_file), "--log-level", "debug",
                            "--tls-certificate-file", str(certificate), "--tls-key-file", str(key))
        planted = "genesis_plantedTokenThatNobodyMayEverWriteDown00000"
        for token in [*tokens.values(), planted]:
            client = self.tls(daemon, token)
            for method in ("Stats", "CancelJob", "ReloadConfig", "Train", "GetConfig"):
                client.code(method)
        # Secrets in the wrong place.
        client = self.tls(daemon, tokens["admin"])
        client.metadata = [("authorization", planted)]
        client.code("Stats")
        secure.write_secret(self.tokens_file, f"oops admin {planted}\n")
        os.kill(daemon.process.pid, signal.SIGHUP)
        harness.wait_for("the refusal", lambda: "the third word is no hash" in daemon.log())
        self.assertEqual(daemon.stop(), 0)
        secrets = [*tokens.values(), planted,
                   key.read_text().splitlines()[1]]
        searched = 0
        for folder, folders, names in os.walk(self.data_dir):
            folders[:] = [name for name in folders if name != self.folder.name]
            for name in names:
                content = pathlib.Path(folder, name).read_bytes()
                searched += 1
                for secret in secrets:
                    self.assertNotIn(secret.encode(), content, pathlib.Path(folder, name))
        self.assertGreater(searched, 4)


class Tls(SecurityTest):
    def setUp(self):
        super().setUp()
        self.authority = secure.Authority(self.folder / "ca")
        self.certificate, self.key = self.authority.issue("localhost")

    def tls_flags(self):
        return ("--tls-certificate-file", str(self.certificate), "--tls-key-file", str(self.key))

    def test_a_certificate_signed_by_another_authority_is_no_caller(self):
        daemon = self.start(*self.tls_flags(), "--tls-client-ca-file",
                            str(self.authority.certificate), "--tls-client-role", "viewer")
        nobody = self.tls(daemon)
        self.assertEqual(nobody.code("Stats"), "UNAUTHENTICATED")
        answer = health_pb2_grpc.HealthStub(nobody.channel).Check(
            health_pb2.HealthCheckRequest(), timeout=harness.LONG)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        carol = self.tls(daemon, certificate=self.authority.issue("carol"))
        self.assertEqual(carol.code("Stats"), "OK")
        self.assertEqual(carol.code("CancelJob", job_id="x"), "PERMISSION_DENIED")
        self.assertEqual(self.audit(daemon)[-1]["caller"], "carol")
        stranger = secure.Authority(self.folder / "other").issue("carol")
        with self.assertRaises(grpc.RpcError) as caught:
            self.tls(daemon, certificate=stranger).call("Stats", timeout=20)
        self.assertEqual(caught.exception.code().name, "UNAVAILABLE")
        with self.assertRaises(grpc.RpcError) as caught:
            self.plain(daemon).call("Stats", timeout=20)
        self.assertEqual(caught.exception.code().name, "UNAVAILABLE")

    def test_the_tokens_file_gives_certificates_their_roles(self):
        self.tokens_file = secure.write_secret(self.folder / "tokens", "cn:dora admin\n")
        daemon = self.start(*self.tls_flags(), "--tls-client-ca-file",
                            str(self.authority.certificate), "--auth-tokens-file",
                            str(self.tokens_file))
        dora = self.tls(daemon, certificate=self.authority.issue("dora"))
        self.assertEqual(dora.code("ReloadConfig"), "OK")
        emil = self.tls(daemon, certificate=self.authority.issue("emil"))
        self.assertEqual(emil.code("ReloadConfig"), "PERMISSION_DENIED")
        self.assertEqual(emil.code("CancelJob", job_id="x"), "NOT_FOUND")

    def serial_of(self, daemon):
        host, port = daemon.grpc.rsplit(":", 1)
        return ssl.get_server_certificate((host, int(port)))

    def test_a_new_certificate_is_used_and_old_connections_go_on(self):
        daemon = self.start(*self.tls_flags())
        old = self.serial_of(daemon)
        client = self.tls(daemon)
        self.assertEqual(client.code("Stats"), "OK")
        certificate, key = self.authority.issue("localhost", file="renewed")
        # The certificate is replaced first. Until its key follows, the two do not match, and the old pair stays in use.
        os.replace(certificate, self.certificate)
        harness.wait_for("the refusal", lambda: "not the key of the certificate" in daemon.log())
        self.assertEqual(self.serial_of(daemon), old)
        os.replace(key, self.key)
        new = self.certificate.read_text()
        harness.wait_for("the new certificate",
                         lambda: self.serial_of(daemon).split() == new.split())
        self.assertEqual(client.code("Stats"), "OK")
        self.assertEqual(self.tls(daemon).code("Stats"), "OK")
        context = ssl.create_default_context(cafile=self.authority.certificate)
        with urllib.request.urlopen(f"https://{daemon.http}/metrics", context=context,
                                    timeout=harness.LONG) as response:
            metrics = response.read().decode()
        self.assertIn('genesis_config_last_reload_success{deployment="stable"} 1', metrics)

    def test_genesisctl_speaks_tls(self):
        daemon = self.start(*self.tls_flags(), "--tls-client-ca-file",
                            str(self.authority.certificate))
        certificate, key = self.authority.issue("frida")
        ca = str(self.authority.certificate)
        self.assertTrue(daemon.ctl("--tls-ca", ca, "--tls-cert", str(certificate), "--tls-key",
                                   str(key), "info")["ready"])
        self.assertIn("UNAUTHENTICATED: no client certificate",
                      daemon.ctl("--tls-ca", ca, "info", check=False).stderr)
        half = daemon.ctl("--tls-ca", ca, "--tls-cert", str(certificate), "info", check=False)
        self.assertEqual(half.returncode, 2)
        self.assertIn("give both or none", half.stderr)

    def test_files_that_do_not_fit_are_refused_at_start(self):
        other = self.authority.issue("other")
        rows = [
            (self.certificate, other[1], "not the key of the certificate in"),
            (self.key, self.key, "holds no certificate in PEM"),
            (self.certificate, self.certificate, "has mode 0644"),
            (self.folder / "nowhere", self.key, "no such file; check the path"),
            (self.folder, self.key, "no regular file; check the path"),
        ]
        for certificate, key, text in rows:
            self.assertIn(text, self.refused_start("--tls-certificate-file", certificate,
                                                   "--tls-key-file", key))
        broken = secure.write_secret(self.folder / "broken.key", "no key\n")
        self.assertIn("holds no private key in PEM",
                      self.refused_start("--tls-certificate-file", self.certificate,
                                         "--tls-key-file", broken))


class OpenAddresses(SecurityTest):
    def test_are_refused_unless_insecure_is_spelled_out(self):
        text = self.refused_start("--grpc-listen", "0.0.0.0:0")
        self.assertIn("--grpc-listen is \"0.0.0.0:0\"; accepted: a loopback address; any other "
                      "needs tls.certificate_file", text)
        daemon = self.start("--grpc-listen", "0.0.0.0:0", "--insecure")
        self.assertIn("everybody who reaches grpc.listen 0.0.0.0:0 may do everything", daemon.log())
        self.assertIn("everybody who reaches grpc.listen", daemon.get("/readyz"))
        port = daemon.grpc.rsplit(":", 1)[1]
        with secure.plain_channel(f"127.0.0.1:{port}") as channel:
            self.assertEqual(secure.Client(channel).code("Stats"), "OK")

    def test_are_served_with_tls_and_tokens(self):
        tokens = self.make_tokens()
        self.authority = secure.Authority(self.folder / "ca")
        certificate, key = self.authority.issue("localhost")
        daemon = self.start("--grpc-listen", "0.0.0.0:0", "--auth-tokens-file",
                            str(self.tokens_file), "--tls-certificate-file", str(certificate),
                            "--tls-key-file", str(key))
        daemon.grpc = daemon.grpc.replace("0.0.0.0", "127.0.0.1")
        self.assertEqual(self.tls(daemon, tokens["viewer"]).code("Stats"), "OK")
        self.assertEqual(self.tls(daemon).code("Stats"), "UNAUTHENTICATED")


class UnixSocket(SecurityTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "api.sock"

    def client(self, token=None):
        channel = secure.plain_channel(f"unix:{self.path}")
        self.addCleanup(channel.close)
        return secure.Client(channel, token)

    def test_serves_with_the_mode_that_was_set_and_is_removed_at_the_end(self):
        daemon = self.start("--grpc-unix-socket", str(self.path), "--grpc-unix-socket-mode",
                            "0660")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o660)
        self.assertEqual(self.client().code("Stats"), "OK")
        self.assertTrue(daemon.ctl("--server", f"unix:{self.path}", "info")["ready"])
        self.assertEqual(daemon.stop(), 0)
        self.assertFalse(self.path.exists())

    def test_a_dead_file_is_replaced_and_a_living_one_is_not(self):
        daemon = self.start("--grpc-unix-socket", str(self.path))
        daemon.kill()
        self.assertTrue(self.path.exists())
        self.start("--grpc-unix-socket", str(self.path))
        self.assertEqual(self.client().code("Stats"), "OK")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        other = self.folder / "other"
        other.mkdir()
        done = subprocess.run(
            [harness.BIN / "genesisd", "--data-dir", other, "--grpc-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--grpc-unix-socket", self.path],
            capture_output=True, text=True, timeout=harness.LONG, env=harness.clean_environment())
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("another process listens on it", done.stderr)
        self.assertEqual(self.client().code("Stats"), "OK")

    def test_a_file_that_is_no_socket_is_left_alone(self):
        self.path.write_text("precious")
        done = subprocess.run(
            [harness.BIN / "genesisd", "--data-dir", self.data_dir, "--grpc-listen", "127.0.0.1:0",
             "--http-listen", "127.0.0.1:0", "--grpc-unix-socket", self.path],
            capture_output=True, text=True, timeout=harness.LONG, env=harness.clean_environment())
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("there is a file of that name that is no socket", done.stderr)
        self.assertEqual(self.path.read_text(), "precious")

    def test_asks_for_tokens_too(self):
        tokens = self.make_tokens()
        self.start("--grpc-unix-socket", str(self.path), "--auth-tokens-file",
                   str(self.tokens_file))
        self.assertEqual(self.client().code("Stats"), "UNAUTHENTICATED")
        self.assertEqual(self.client(tokens["viewer"]).code("Stats"), "OK")


if __name__ == "__main__":
    unittest.main()
