"""Tests JWTs with a real daemon, over both transports: names and roles of callers, new keys, the end of a token, the audit log."""

import base64
import json
import re
import subprocess
import time
import unittest

import grpc
from google.protobuf import json_format

import harness
import secure
import test_security

ISSUER = "https://login.example.org/realms/ml"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An issuer with an RSA key, which signs as OpenSSL's command does."""

    def __init__(self, folder, key_id):
        self.key, self.key_id = folder / f"{key_id}.pem", key_id
        secure.openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.key)

    def jwk(self):
        text = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True, text=True).stdout
        modulus = bytes.fromhex(re.fullmatch(r"Modulus=([0-9A-F]+)\n", text)[1])
        return {"kty": "RSA", "kid": self.key_id, "use": "sig", "alg": "RS256", "n": base64url(modulus), "e": "AQAB"}

    def token(self, life=300, **claims):
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": ["account", "genesis"], "iat": now, "exp": now + life, **claims}
        parts = [base64url(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": self.key_id}, claims)]
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=".".join(parts).encode(),
                                   check=True, capture_output=True).stdout
        return ".".join([*parts, base64url(signature)])


class Jwt(test_security.SecurityTest):
    def setUp(self):
        super().setUp()
        self.keys = self.folder / "jwks.json"
        self.issuer = Issuer(self.folder, "first")
        self.publish(self.issuer)

    def publish(self, *issuers):
        secure.write_secret(self.keys, json.dumps({"keys": [each.jwk() for each in issuers]}))

    def start(self, *flags):
        return super().start("--auth-jwks-file", str(self.keys), "--auth-jwt-issuer", ISSUER, "--auth-jwt-audience", "genesis", *flags)

    def test_claims_and_lines_give_names_and_roles(self):
        robot = "system:serviceaccount:ml:trainer"
        tokens = secure.write_secret(self.folder / "tokens", f"jwt:{robot} submitter\n")
        daemon = self.start("--auth-tokens-file", str(tokens))
        sent = {"viewer": self.issuer.token(sub="vic", genesis_role="viewer"), "submitter": self.issuer.token(sub=robot),
                "admin": self.issuer.token(sub="root", genesis_role=["offline", "admin"]), "none": self.issuer.token(sub="eve")}
        allowed = {"ListJobs": ("viewer", "submitter", "admin"), "PauseJob": ("submitter", "admin"), "ReloadConfig": ("admin",)}
        for role, token in sent.items():
            rpc, http = self.plain(daemon, token).code, test_security.HttpWithToken(daemon.http, token)
            for method, roles in allowed.items():
                fields = {"job_id": "no-such-job"} if method == "PauseJob" else {}
                codes = {rpc(method, **fields), http.call(method, fields).code}
                self.assertEqual(len(codes), 1, (role, method, codes))
                refused = codes & {"PERMISSION_DENIED", "UNAUTHENTICATED"}
                self.assertEqual(not refused, role in roles, (role, method, codes))
        request, _ = secure.messages("Train")
        train = json_format.ParseDict({"job_id": "mine", "spec": harness.PENDULUM}, request())
        self.plain(daemon, sent["submitter"]).call("Train", job_id="mine", spec=train.spec)
        token_file = secure.write_secret(self.folder / "token", sent["admin"] + "\n")
        self.assertEqual(daemon.ctl("--token-file", str(token_file), "job", "mine")["owner"], f"jwt:{robot}")
        line = next(line for line in self.audit(daemon) if line["subject"] == "mine" and line["method"] == "Train")
        self.assertEqual((line["caller"], line["role"], line["outcome"]), (f"jwt:{robot}", "submitter", "OK"))
        for text in (daemon.log(), (daemon.data_dir / "log" / "audit.log").read_text()):
            for token in sent.values():
                self.assertNotIn(token.split(".")[2], text)

    def test_long_tokens_fit_and_too_long_ones_are_refused(self):
        daemon = self.start()
        token = self.issuer.token(sub="ann", genesis_role="viewer", note="x" * 5000)
        self.assertGreater(len(token), 7000)
        self.assertEqual(self.plain(daemon, token).code("ListJobs"), "OK")
        self.assertEqual(test_security.HttpWithToken(daemon.http, token).call("ListJobs", {}).code, "OK")
        long = self.issuer.token(sub="ann", genesis_role="viewer", note="x" * 6500)
        answer = test_security.HttpWithToken(daemon.http, long).call("ListJobs", {})
        self.assertEqual((answer.code, self.plain(daemon, long).code("ListJobs")), ("UNAUTHENTICATED",) * 2)
        self.assertIn("the JWT is too long; accepted: at most 8192 bytes", answer.text)

    def test_new_keys_are_taken_over(self):
        daemon = self.start()
        second = Issuer(self.folder, "second")
        clients = [self.plain(daemon, each.token(sub="ann", genesis_role="viewer")) for each in (self.issuer, second)]
        self.assertEqual([each.code("ListJobs") for each in clients], ["OK", "UNAUTHENTICATED"])
        self.publish(self.issuer, second)
        harness.wait_for("the second key", lambda: clients[1].code("ListJobs") == "OK")
        self.assertEqual(clients[0].code("ListJobs"), "OK")
        secure.write_secret(self.keys, "<html>502 Bad Gateway</html>")
        harness.wait_for("the refusal", lambda: "is not a JWK Set" in daemon.log())
        self.publish(second)
        harness.wait_for("the end of the first key", lambda: clients[0].code("ListJobs") == "UNAUTHENTICATED")
        self.assertEqual(clients[1].code("ListJobs"), "OK")

    def test_a_watch_ends_with_its_token(self):
        daemon = self.start()
        # The daemon allows 60 s of skew, so this token is accepted for six seconds more.
        ends = self.plain(daemon, self.issuer.token(-54, sub="ann", genesis_role="viewer")).stream("WatchJobs")
        stays = self.plain(daemon, self.issuer.token(sub="ann", genesis_role="viewer")).stream("WatchJobs")
        with self.assertRaises(grpc.RpcError) as caught:
            for _ in ends:
                pass
        self.assertEqual(caught.exception.code().name, "UNAUTHENTICATED")
        self.assertRegex(caught.exception.details(), r"the JWT expired at [-0-9T:]+Z; get a new one from its issuer")
        self.assertTrue(stays.is_active())
        stays.cancel()

    def test_a_wait_ends_with_its_token(self):
        daemon = self.start()
        client = self.plain(daemon, self.issuer.token(-54, sub="ann", genesis_role="viewer"))
        cursor = client.call("ListEvents").cursor
        self.assertEqual(client.code("ListEvents", cursor=cursor, wait_seconds=300), "UNAUTHENTICATED")

    def test_a_weak_key_stops_the_start(self):
        secure.write_secret(self.keys, json.dumps({"keys": [{**self.issuer.jwk(), "n": base64url(b"\x80" + bytes(127))}]}))
        text = self.refused_start("--auth-jwks-file", self.keys, "--auth-jwt-issuer", ISSUER, "--auth-jwt-audience", "genesis")
        self.assertIn("the key \"first\" has 1024 bits; accepted: at least 2048", text)


if __name__ == "__main__":
    unittest.main()
