"""Shared code of the tests of the dashboard: its pages in Chromium."""

from playwright.sync_api import expect, sync_playwright

import harness


class PageTest(harness.DaemonTest):
    """A page in Chromium. Each test fails if the page logs an error that the test does not expect."""

    def setUp(self):
        super().setUp()
        self.playwright = self.enterContext(sync_playwright())
        self.browser = self.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"])
        self.addCleanup(self.browser.close)
        self.errors = []

    def fake(self, *flags):
        return self.start("--workers-program", str(harness.FAKE_WORKER), *flags)

    def open(self, daemon, path="", scheme="light", width=1440):
        page = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(harness.LONG * 1000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        page.goto(f"http://{daemon.http}/{path}")
        return page

    def row(self, page, job_id):
        return page.locator("tbody tr", has=page.get_by_role("link", name=job_id, exact=True))

    def expect_text(self, locator, text):
        expect(locator).to_contain_text(text, timeout=harness.LONG * 1000)
