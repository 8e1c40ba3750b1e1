"""Tests how the page of the dashboard signs in, by token and by link."""

import pathlib
import unittest
import unittest.mock
import urllib.error
import urllib.request

from playwright.sync_api import expect

import dashboard_page
import harness
import secure
import tiers


@tiers.nightly
class DashboardAccessTest(dashboard_page.PageTest):
    def test_a_token_is_asked_for_and_decides_on_actions(self):
        tokens = pathlib.Path(self.data_dir, "tokens")
        made = {role: secure.new_token(role, role) for role in ("admin", "viewer")}
        secure.write_secret(tokens, "".join(f"{line}\n" for _, line in made.values()))
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), "--auth-tokens-file", str(tokens),
                            environment={"GENESIS_TOKEN": made["admin"][0]})
        self.enterContext(unittest.mock.patch.dict("os.environ", GENESIS_TOKEN=made["admin"][0]))
        daemon.train("hold-1", harness.spec())
        for role, actions in (("viewer", 0), ("admin", 3)):
            page = self.open(daemon, "#/jobs/hold-1")
            dialog = page.get_by_role("dialog")
            for token in ("wrong", made[role][0]):
                dialog.get_by_label("Token").fill(token)
                dialog.get_by_role("button", name="Sign in").click()
                if token == "wrong":
                    self.expect_text(dialog, "did not accept the token")
            self.expect_text(page.locator(".title"), "Running")
            self.expect_text(page.locator("#account"), role)
            expect(page.locator(".actions button")).to_have_count(actions)
            page.close()

    def test_a_link_signs_in_once_and_leaves_no_code_behind(self):
        tokens = pathlib.Path(self.data_dir, "tokens")
        token, line = secure.new_token("ann", "submitter")
        secure.write_secret(tokens, line + "\n")
        self.enterContext(unittest.mock.patch.dict("os.environ", GENESIS_TOKEN=token))
        daemon = self.fake("--auth-tokens-file", str(tokens))
        daemon.train("hold-1", harness.spec())
        link = daemon.ctl("open", "hold-1", check=False).stdout.strip().removeprefix(f"http://{daemon.http}/")
        self.assertRegex(link, r"^#/jobs/hold-1\?login=[\w-]{22}$")
        page = self.open(daemon, link)
        self.expect_text(page.locator("h1"), "hold-1")
        self.expect_text(page.locator("#account"), "ann · submitter")
        expect(page.locator(".actions button")).to_have_count(3)
        self.assertEqual(page.evaluate("location.href"), f"http://{daemon.http}/#/jobs/hold-1")
        self.assertNotIn(token, str(page.evaluate("Object.values(sessionStorage)")))
        page.reload()
        self.expect_text(page.locator("h1"), "hold-1")
        page.goto(f"http://{daemon.http}/{link}")  # Signed in already: a used link does no harm.
        self.expect_text(page.locator("h1"), "hold-1")
        expect(page.get_by_role("dialog")).to_have_count(0)
        self.expect_text(self.open(daemon, link).get_by_role("dialog"), "the link was used already")
        kept = page.evaluate("sessionStorage.getItem('genesis-token')")
        with page.expect_response("**/dashboard/session") as ended:
            page.get_by_role("button", name="Sign out").click()
        self.assertEqual(ended.value.status, 200)
        self.expect_text(page.get_by_role("dialog"), "Sign in")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"http://{daemon.http}/v1/jobs", headers={"Authorization": f"Bearer {kept}"}))
        self.assertEqual(refused.exception.code, 401)


if __name__ == "__main__":
    unittest.main()
