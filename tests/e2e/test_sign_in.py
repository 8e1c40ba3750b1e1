"""Tests how a browser signs in by the link of `genesisctl open`: codes, sessions, and what an attacker can do with them."""

import json
import pathlib
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import harness
import secure

ATTEMPTS = 10  # Attempts of one address in a row; then one a second.


class SignIn(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.tokens, lines = {}, {}
        for name, role in (("ann", "submitter"), ("ben", "submitter"), ("vic", "viewer"), ("root", "admin")):
            self.tokens[name], lines[name] = secure.new_token(name, role)
        self.lines = lines
        self.file = pathlib.Path(self.data_dir, "tokens")
        self.write(lines.values())
        self.secrets = list(self.tokens.values())

    def write(self, lines):
        secure.write_secret(self.file, "".join(f"{line}\n" for line in lines))

    def serve(self, *flags):
        self.daemon = self.start("--workers-program", str(secure.FAKE_WORKER), "--auth-tokens-file", str(self.file), *flags)
        return self.daemon

    def request(self, verb, path, body=None, token=None, **headers):
        """Returns (status, body as JSON)."""
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(f"http://{self.daemon.http}{path}", method=verb, headers={"Content-Type": "application/json", **headers},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=harness.LONG) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def code_of(self, token):
        status, body = self.request("POST", "/v1/login_codes", {}, token)
        self.assertEqual(status, 200, body)
        self.secrets.append(body["code"])
        return body["code"]

    def exchange(self, code, **headers):
        return self.request("POST", "/dashboard/session", {"code": code}, **headers)

    def session_of(self, name):
        status, body = self.exchange(self.code_of(self.tokens[name]))
        self.assertEqual(status, 200, body)
        self.secrets.append(body["token"])
        return body["token"]

    def audit(self):
        return [json.loads(line) for line in (self.daemon.data_dir / "log" / "audit.log").read_text().splitlines()]

    def assert_no_secret_in_files(self):
        self.daemon.stop()
        for path in pathlib.Path(self.data_dir).rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for secret in self.secrets:
                    self.assertNotIn(secret.encode(), content, path)

    def test_the_link_of_the_client_signs_in_once_as_the_client(self):
        file = secure.write_secret(pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "token"), self.tokens["ann"])
        link = urllib.parse.urlsplit(self.serve().ctl("--token-file", str(file), "open", check=False).stdout.strip())
        self.assertEqual((link.netloc, link.query), (self.daemon.http, ""), "what follows the number sign is sent to no server")
        page, code = link.fragment.split("?login=")
        self.assertEqual(page, "/")
        self.assertNotIn(self.tokens["ann"], link.geturl())
        status, session = self.exchange(code)
        self.assertEqual(status, 200, session)
        server = self.request("GET", "/v1/server", token=session["token"])[1]
        self.assertEqual((server["caller"], server["caller_role"]), ("ann", "submitter"))
        status, error = self.exchange(code)
        self.assertEqual((status, error["error"]["status"]), (401, "UNAUTHENTICATED"))
        self.assertIn("the link was used already", error["error"]["message"])
        self.secrets += [code, session["token"]]
        calls = [(line["method"], line["caller"], line["outcome"]) for line in self.audit()]
        for expected in (("CreateLoginCode", "ann", "OK"), ("StartSession", "ann", "OK"), ("StartSession", "", "UNAUTHENTICATED")):
            self.assertIn(expected, calls)
        self.assert_no_secret_in_files()

    def test_a_session_has_the_rights_of_its_caller_and_no_more(self):
        self.serve("--auth-own-jobs-only", "true")
        spec = {"model": {"world_model": {}}, "dataset": {"trajectories": {"path": "pendulum.npz"}}, "training": {"max_steps": 10}}
        for name in ("ann", "ben"):
            self.assertEqual(self.request("POST", "/v1/jobs", {"job_id": f"hold-{name}", "spec": spec}, self.tokens[name])[0], 200)
        ann, vic = self.session_of("ann"), self.session_of("vic")
        self.assertEqual([job["id"] for job in self.request("GET", "/v1/jobs", token=ann)[1]["jobs"]], ["hold-ann"])
        self.assertEqual(self.request("GET", "/v1/jobs/hold-ben", token=ann)[0], 404)
        self.assertEqual(self.request("POST", "/v1/jobs/hold-ben:cancel", {}, ann)[0], 403)
        self.assertEqual(self.request("POST", "/v1/config:reload", {}, ann)[0], 403)
        self.assertEqual(self.request("POST", "/v1/jobs", {"spec": spec}, vic)[0], 403)
        self.assertEqual(self.request("POST", "/v1/login_codes", {}, ann)[0], 403, "a session cannot prolong itself")
        self.assertEqual(self.request("POST", "/v1/jobs/hold-ann:cancel", {}, ann)[0], 200)

    def test_a_revoked_token_ends_its_sessions_and_their_streams(self):
        self.serve()
        session, other = self.session_of("ann"), self.session_of("ben")
        code = self.code_of(self.tokens["ann"])
        watch = urllib.request.urlopen(urllib.request.Request(
            f"http://{self.daemon.http}/v1/jobs:watch", headers={"Authorization": f"Bearer {session}"}), timeout=harness.LONG)
        self.addCleanup(watch.close)
        watch.readline()
        self.write(line for name, line in self.lines.items() if name != "ann")
        self.assertEqual(json.loads(watch.readlines()[-1])["error"]["status"], "UNAUTHENTICATED")
        self.assertEqual(self.request("GET", "/v1/server", token=session)[0], 401)
        self.assertEqual(self.request("GET", "/v1/server", token=other)[0], 200)
        status, error = self.exchange(code)
        self.assertEqual(status, 401, "a code from before")
        self.assertIn("the session has ended", error["error"]["message"])

    def test_signing_out_ends_the_session_alone_and_a_restart_ends_all(self):
        self.serve()
        one, other = self.session_of("ann"), self.session_of("ann")
        self.assertEqual(self.request("DELETE", "/dashboard/session", token=one)[0], 200)
        self.assertEqual(self.request("DELETE", "/dashboard/session", token=one)[0], 401)
        self.assertEqual(self.request("GET", "/v1/server", token=one)[0], 401)
        self.assertEqual(self.request("GET", "/v1/server", token=other)[0], 200)
        self.assertEqual(self.request("DELETE", "/dashboard/session", token=self.tokens["ann"])[0], 200)
        self.assertEqual(self.request("GET", "/v1/server", token=self.tokens["ann"])[0], 200, "a token is not a session")
        self.daemon.stop()
        self.serve()
        self.assertEqual(self.request("GET", "/v1/server", token=other)[0], 401)
        self.assert_no_secret_in_files()

    def test_guesses_are_slowed_down_and_find_nothing(self):
        self.serve()
        codes = [self.code_of(self.tokens["ann"]) for _ in range(3)]
        answers = [self.exchange(code[::-1])[0] for code in codes * ATTEMPTS]
        self.assertEqual(answers[:ATTEMPTS - 1], [401] * (ATTEMPTS - 1))
        self.assertGreater(answers.count(429), ATTEMPTS)
        self.assertEqual(set(answers), {401, 429})
        self.assertEqual(self.request("GET", "/v1/server", token=codes[0])[0], 401, "a code is not a token")
        harness.wait_for("the address to be let in again", lambda: self.exchange(codes[0])[0] == 200)

    def test_malformed_requests_and_other_sites_are_refused(self):
        self.serve()
        code = self.code_of(self.tokens["ann"])
        self.assertEqual(self.exchange(code, Origin="http://elsewhere.example")[0], 403)
        self.assertEqual(self.exchange(code, **{"Content-Type": "text/plain"})[0], 400, "a form of another site could send it")
        for body in ([], {}, {"code": 7}, {"code": None}, "code"):
            self.assertEqual(self.request("POST", "/dashboard/session", body)[0], 400, body)
        with self.assertRaises(urllib.error.HTTPError) as wrong:
            urllib.request.urlopen(f"http://{self.daemon.http}/dashboard/session?code={code}")
        self.assertEqual((wrong.exception.code, wrong.exception.headers["Allow"]), (405, "POST, DELETE"))
        self.assertEqual(self.exchange(code)[0], 200, "none of these used it up")


if __name__ == "__main__":
    unittest.main()
