"""Tests the dashboard: its files, and its pages in Chromium, against a running daemon."""

import contextlib
import gzip
import hashlib
import json
import pathlib
import re
import sqlite3
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import dashboard_page
import harness
import tiers
from orchestrator import Orchestrator

FOLDER = harness.SOURCE / "server" / "dashboard"
# SHA-256 of uPlot 1.6.16 in the wheel uplot-python 1.1.1.
VENDOR = {"uPlot.js": "655bc8aa33781e8721c5af6b59f1699c03c9bda951aa74a6ab518ac20cc4326d",
          "uPlot.css": "3f121cd4a997b634e07a887658850018e475c26f0bddd874109a8d382c19de87"}
MAX_BYTES, MAX_LINES = 100_000, 400  # Compressed, as browsers receive them.
HOSTILE = "<img src=x onerror=document.title='owned'>"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def files():
    """Returns the names of the embedded files."""
    listed = re.search(r"set\(_files\n(.*?)\)", (FOLDER / "CMakeLists.txt").read_text(), re.DOTALL)
    return listed[1].split()


class DashboardFilesTest(harness.DaemonTest):
    def fetch(self, daemon, path, headers=None):
        request = urllib.request.Request(f"http://{daemon.http}{path}", headers=headers or {})
        with urllib.request.urlopen(request, timeout=harness.LONG) as response:
            return response.headers, response.read()

    def test_the_index_is_a_page_for_browsers_and_a_list_for_others(self):
        daemon = self.start()
        headers, page = self.fetch(daemon, "/", BROWSER)
        self.assertEqual(page, (FOLDER / "index.html").read_bytes())
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        for accept in ({}, {"Accept": "*/*"}, {"Accept": "text/plain, text/html;q=0.5"}):
            headers, text = self.fetch(daemon, "/", accept)
            self.assertTrue(headers["Content-Type"].startswith("text/plain"))
            self.assertIn(b"/api/training/status", text)

    def test_each_file_is_served_compressed_and_validated(self):
        daemon = self.start()
        weight = 0
        for name in files():
            path, whole = "/" if name == "index.html" else f"/dashboard/{name}", (FOLDER / name).read_bytes()
            headers, body = self.fetch(daemon, path, {**BROWSER, "Accept-Encoding": "gzip"})
            self.assertEqual(gzip.decompress(body), whole, name)
            weight += len(body)
            with self.assertRaises(urllib.error.HTTPError) as unchanged:
                self.fetch(daemon, path, {**BROWSER, "If-None-Match": headers["ETag"]})
            self.assertEqual(unchanged.exception.code, 304)
        self.assertLess(weight, MAX_BYTES)
        with self.assertRaises(urllib.error.HTTPError) as missing:
            self.fetch(daemon, "/dashboard/../dashboard.cc")
        self.assertEqual(missing.exception.code, 404)

    def test_the_sources_are_small_pinned_and_alone(self):
        self.assertEqual({name: hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() for name in VENDOR}, VENDOR)
        self.assertEqual({path.name for path in FOLDER.glob("*.js")}, {name for name in files() if re.fullmatch(r"\w+\.js", name)})
        for path in [*FOLDER.glob("*.js"), FOLDER / "index.html", FOLDER / "style.css"]:
            text = path.read_text()
            self.assertLessEqual(text.count("\n"), MAX_LINES, path)
            self.assertEqual(re.findall(r"https?://(?!www\.w3\.org/)\S+|innerHTML|insertAdjacentHTML|outerHTML", text), [], path)
        self.assertEqual(re.findall(r"<style|style=|\son\w+=|<script>", (FOLDER / "index.html").read_text()), [])

    def test_alerts_are_those_of_the_rules(self):
        page, rules = (FOLDER / "alerts.js").read_text(), (harness.SOURCE / "deploy/prometheus/genesis.rules.yml").read_text()
        names = set(re.findall(r'"((?:Genesis|FP16)\w+)"', page))
        self.assertGreater(len(names), 10)
        self.assertEqual(names - set(re.findall(r"- alert: (\w+)", rules)), set())
        for rule, constant in ((r"volume_size_bytes < ([\d.]+)", "FREE_RATIO"), (r"fp16_overflow:ratio_rate5m > ([\d.]+)", "OVERFLOW_RATIO"),
                               (r"divergence_ratio\) > ([\d.]+)", "DIVERGENCE_RATIO"), (r"rank_wait_ratio > ([\d.]+)", "WAIT_RATIO"),
                               (r"unprotected_since_timestamp_seconds > (\d+)", "UNPROTECTED_SECONDS")):
            self.assertEqual(re.search(rf"{constant} = ([\d.]+)", page)[1], re.search(rule, rules)[1], constant)

    def test_the_types_of_the_modules_hold(self):
        check = subprocess.run(["tsc", "--project", FOLDER], capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(check.returncode, 0, check.stdout)


@tiers.nightly
class DashboardTest(dashboard_page.PageTest):
    def test_the_list_follows_the_jobs(self):
        daemon = self.fake("--workers-slots", "1")
        page = self.open(daemon)
        self.expect_text(page.locator("main"), "No jobs yet")
        self.expect_text(page.locator("#connection"), "live")
        daemon.train("hold-1", harness.spec())
        self.expect_text(self.row(page, "hold-1"), "Running")
        self.expect_text(self.row(page, "hold-1"), "5 / 10")
        daemon.train("ok-1", harness.spec())
        self.expect_text(self.row(page, "ok-1"), "Queued")
        daemon.ctl("cancel", "hold-1")
        self.expect_text(self.row(page, "hold-1"), "Cancelled")
        self.expect_text(self.row(page, "ok-1"), "Succeeded")
        daemon.ctl("delete", "hold-1")
        expect(self.row(page, "hold-1")).to_have_count(0, timeout=harness.LONG * 1000)
        self.assertEqual(self.errors, [])

    def test_progress_is_kept_that_arrives_before_an_older_response(self):
        daemon = self.fake()
        page = self.open(daemon)
        self.expect_text(page.locator("#connection"), "live")

        def late(route):
            response = route.fetch()
            daemon.wait_for_step("hold-1", 5)
            page.wait_for_timeout(2000)  # The progress is in the stream within a second.
            route.fulfill(response=response)

        page.route("**/v1/jobs/hold-1", late, times=1)
        daemon.train("hold-1", harness.spec())
        self.expect_text(self.row(page, "hold-1"), "5 / 10")

    def test_a_killed_daemon_is_said_and_found_again(self):
        daemon = self.fake()
        daemon.train("ok-1", harness.spec())
        page = self.open(daemon)
        self.expect_text(self.row(page, "ok-1"), "Succeeded")
        port = daemon.http
        daemon.kill()
        self.expect_text(page.locator("#connection"), "reconnecting")
        daemon = self.fake("--http-listen", port)
        daemon.train("ok-2", harness.spec())
        self.expect_text(page.locator("#connection"), "live")
        self.expect_text(self.row(page, "ok-2"), "Succeeded")

    def test_a_sweep_shows_its_trials_and_is_cancelled(self):
        daemon = self.fake("--workers-slots", "1")
        file = pathlib.Path(self.data_dir) / "job.yaml"
        file.write_text(json.dumps(harness.spec()))
        daemon.ctl("sweep", "-f", file, "--over", "training.seed=1,2,3", "--parallel", "2", "--sweep-id", "hold-s")
        page = self.open(daemon, "#/sweeps")
        page.get_by_role("link", name="hold-s", exact=True).click()
        self.expect_text(page.locator("main"), "0 of 3 trials ended")
        self.expect_text(self.row(page, "hold-s-000"), "Running")
        self.expect_text(self.row(page, "hold-s-001"), "Queued")
        self.expect_text(page.locator("tbody tr", has_text="hold-s-002"), "Not submitted")
        page.get_by_role("button", name="Cancel", exact=True).click()
        page.get_by_role("button", name="Cancel the sweep").click()
        self.expect_text(page.locator("main header"), "Cancelled")
        self.expect_text(self.row(page, "hold-s-000"), "Cancelled")
        page.goto(f"http://{daemon.http}/#/sweeps/none")
        self.expect_text(page.locator("main"), "Not found")
        self.errors = [each for each in self.errors if "404" not in each]

    def test_text_of_users_is_never_markup(self):
        daemon = self.fake()
        daemon.train("fail-1", {**harness.spec(), "scheduling": {"labels": {"note": HOSTILE}}})
        daemon.wait_for_end("fail-1")
        page = self.open(daemon, "#/jobs/fail-1")
        self.expect_text(page.locator(".facts"), HOSTILE)
        self.expect_text(page.locator(".failure"), "Failed: Data")
        page.goto(f"http://{daemon.http}/#/jobs/{urllib.request.quote(HOSTILE)}")
        self.expect_text(page.locator("main"), "Not found")
        self.assertEqual(page.locator("main img").count(), 0)
        self.assertNotEqual(page.title(), "owned")

    def test_ten_thousand_jobs_are_a_list_of_a_few_rows(self):
        daemon = self.fake()
        daemon.train("ok-00000", harness.spec())
        daemon.wait_for_end("ok-00000")
        daemon.stop()
        self.copy_job("ok-00000", 10_000)
        daemon = self.fake()
        page = self.open(daemon)
        self.expect_text(page.locator("main"), "10,000")
        started = time.monotonic()
        page.reload()
        expect(page.locator("tbody tr:not(.gap)").first).to_be_visible()
        print(f"opened in {time.monotonic() - started:.2f} s")
        self.assertLess(page.locator("tbody tr").count(), 60, "only visible rows are elements")
        for _ in range(6):
            page.mouse.wheel(0, 100_000)
            page.wait_for_timeout(300)
        expect(self.row(page, "ok-09999")).to_have_count(0)
        self.assertLess(page.locator("tbody tr").count(), 60)
        page.get_by_role("searchbox").fill("ok-00042")
        self.expect_text(page.locator("tbody"), "ok-00042")
        self.assertEqual(self.errors, [])

    def copy_job(self, job_id, count):
        """Copies the record of an ended job in the store of a stopped daemon until there are `count` jobs."""
        store = sqlite3.connect(pathlib.Path(self.data_dir, "jobs.db"))
        columns = [row[1] for row in store.execute("PRAGMA table_info(jobs)")]
        original = dict(zip(columns, store.execute("SELECT * FROM jobs").fetchone()))
        record = store.execute("SELECT job FROM job_records").fetchone()[0]
        for i in range(1, count):
            name = f"{job_id[:-5]}{i:05d}"
            copy = {**original, "id": name, "ordinal": original["ordinal"] + i, "request_id": None}
            store.execute(f"INSERT INTO jobs VALUES ({','.join('?' * len(columns))})", list(copy.values()))
            store.execute("INSERT INTO job_records VALUES (?, ?)", (copy["ordinal"], record.replace(job_id.encode(), name.encode())))
        store.commit()
        store.close()

    def tab_to(self, page, text):
        for _ in range(10):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == text:
                return
        self.fail(f"{text} cannot be reached by Tab")

    def test_the_keyboard_alone_is_enough(self):
        daemon = self.fake()
        daemon.train("hold-1", harness.spec())
        page = self.open(daemon)
        self.expect_text(self.row(page, "hold-1"), "Running")
        page.keyboard.press("/")
        page.keyboard.type("hold")
        self.expect_text(page.locator("tbody"), "hold-1")
        self.tab_to(page, "hold-1")
        page.keyboard.press("Enter")
        self.expect_text(page.locator("h1"), "hold-1")
        self.tab_to(page, "Cancel")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Cancel the job").press("Enter")
        self.assertEqual(daemon.wait_for_end("hold-1")["state"], "JOB_STATE_CANCELLED")
        self.expect_text(page.locator(".title"), "Cancelled")
        self.assertEqual(self.errors, [])

    def test_alerts_are_shown_without_prometheus(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), environment={"ENABLE_FP16_TRAINING": "True"})
        page = self.open(daemon, "#/compare")

        def nearly_full(route):
            response = route.fetch()
            text = re.sub(r"^(genesis_volume_free_bytes.*volume=\"data\".*) .*$", r"\1 1048576", response.text(), flags=re.MULTILINE)
            route.fulfill(response=response, body=text)

        page.route("**/metrics", nearly_full)
        page.route("**/readyz", lambda route: route.fulfill(status=503, json={"ready": False, "reasons": ["the store refuses changes"], "notes": []}))
        page.goto(f"http://{daemon.http}/#/")
        for text in ("The disk of data has 1 MiB left", "Not ready: the store refuses changes", "A setting of the precision gate cannot be read", "GenesisConfigError"):
            self.expect_text(page.locator(".attention"), text)
        self.assertNotIn("disk of checkpoints", page.locator(".attention").text_content())

    def test_ticks_of_the_clock_say_the_day_once_in_local_time(self):
        daemon = self.fake()
        with contextlib.closing(self.browser.new_context(timezone_id="Europe/Berlin", locale="en-US")) as context:
            page = context.new_page()
            page.goto(f"http://{daemon.http}/#/compare")

            def ticks(begin, every, count):
                return page.evaluate("times => import('./dashboard/chart.js').then((chart) => chart.clockTicks(times))", [begin + i * every for i in range(count)])

            midnight = 1793487600  # 2026-11-01 00:00 in Berlin.
            self.assertEqual(ticks(midnight - 600, 600, 3), ["23:50\nOct 31", "00:00\nNov 1", "00:10"])
            self.assertEqual(ticks(midnight, 30, 3), ["00:00:00\nNov 1", "00:00:30", "00:01:00"])
            self.assertEqual(ticks(midnight, 86400, 2), ["Nov 1", "Nov 2"])
            self.assertEqual(page.evaluate("import('./dashboard/curves.js').then((curves) => curves.AXES[2][1])"), "Clock, GMT+1")

    def test_curves_of_a_real_job_grow_and_compare(self):
        daemon = self.start()
        for job_id in ("run-1", "run-2"):
            daemon.train(job_id, {**harness.spec(max_steps=600), "evaluation": {"every_steps": 100}})
        page = self.open(daemon, "#/jobs/run-2")
        self.expect_text(page.locator(".title"), "Succeeded")
        self.expect_text(page.locator(".charts"), "Every step is shown")
        self.expect_text(page.locator(".timeline"), "step 600")
        page.get_by_role("group", name="Loss. ").first.press("+")
        expect(page.get_by_role("button", name="Show all")).to_be_visible()
        page.get_by_label("Logarithmic").check()
        for axis in ("training", "clock", "samples"):
            page.locator("#axis").select_option(axis)
            expect(page.locator(".plot canvas").first).to_be_visible()
        page.goto(f"http://{daemon.http}/#/compare?ids=run-1,run-2")
        self.expect_text(page.locator("main"), "The specifications are equal.")
        expect(page.locator(".plot canvas").first).to_be_visible()
        self.assertEqual(self.errors, [])

    def test_ranks_and_metrics_of_evaluations_are_shown(self):
        daemon = self.start("--workers-slots", "2")
        language = {"model": {"transformer": {"vocabulary_size": 16, "context_length": 16, "layers": 1, "heads": 1, "embedding_size": 16}},
                    "dataset": {"synthetic": {"tokens": {"size": 4096}}}, "training": {"max_steps": 40, "batch_size": 8},
                    "evaluation": {"every_steps": 10}}
        daemon.train("language", language)
        daemon.wait_for_end("language")
        page = self.open(daemon, "#/jobs/language")
        self.expect_text(page.locator(".charts"), "Held-out perplexity")
        self.expect_text(page.locator(".charts"), "Held-out accuracy")
        for step, value in ((10, -3.5), (30, 210)):
            daemon.ctl("report", "language", f"return={value}", "--step", str(step))
        self.expect_text(page.locator(".charts"), "Reported return")
        self.expect_text(page.locator(".timeline"), "anonymous reported return 210")
        expect(page.locator("section", has=page.get_by_role("heading", name="Ranks"))).to_be_hidden()
        daemon.train("gang", {**language, "training": {"max_steps": 10**6, "batch_size": 8}, "distributed": {"ranks": 2}})
        daemon.wait_for_step("gang", 50)
        page = self.open(daemon, "#/jobs/gang")
        ranks = page.locator("section", has=page.get_by_role("heading", name="Ranks")).locator("tbody tr")
        expect(ranks).to_have_count(2, timeout=harness.LONG * 1000)
        self.expect_text(ranks.nth(1), "ms")
        self.assertEqual(self.errors, [])

    def test_a_job_that_waits_says_for_what_in_place_of_a_time(self):
        daemon = self.start("--grpc-listen", "127.0.0.1:0")
        orchestrator = Orchestrator(daemon.grpc)
        self.addCleanup(orchestrator.close)
        orchestrator.append("shop", range(20))
        spec = harness.spec(max_steps=10**12, batch_size=32)
        daemon.train("learner", {**spec, "dataset": {"replay": {"path": "shop", "follow": True, "samples_per_insert": 8}}})
        page = self.open(daemon)
        self.expect_text(page.locator("tbody tr", has_text="learner"), "waits for data: it has drawn")
        page = self.open(daemon, "#/jobs/learner")
        self.expect_text(page.locator(".reason"), "waits for data: it has drawn")
        self.expect_text(page.locator(".numbers"), "Time left–")
        self.assertEqual(self.errors, [])

    def test_jobs_of_one_label_are_a_band(self):
        daemon = self.start()
        for seed, rate in ((1, "low"), (2, "low"), (3, "high")):
            daemon.train(f"run-{seed}", {**harness.spec(max_steps=200, seed=seed), "scheduling": {"labels": {"rate": rate}}})
            daemon.wait_for_end(f"run-{seed}")
        page = self.open(daemon, "#/compare?ids=run-1,run-2,run-3")
        page.get_by_label("Lines").select_option("rate")
        self.expect_text(page.locator(".legend"), "rate=low (2)")
        self.expect_text(page.locator(".legend"), "rate=high (1)")
        page.locator("#axis").select_option("samples")
        self.expect_text(page.locator(".legend"), "rate=low (2)")
        page.get_by_label("Lines").select_option("")
        self.expect_text(page.locator(".legend"), "run-3")
        self.assertEqual(self.errors, [])

    def test_an_admin_goes_back_to_fp32_and_sees_what_failed(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), environment={"ENABLE_FP16_TRAINING": "true"})
        daemon.train("fail-1", harness.spec())
        page = self.open(daemon)
        self.expect_text(page.locator(".attention"), "1 job failed in the last day, the newest: fail-1")
        page.get_by_role("button", name="Use FP32").click()
        page.get_by_label("Running jobs").select_option("POLICY_APPLICATION_NEXT_STEP")
        page.get_by_label("Reason").fill("losses rise")
        page.get_by_role("button", name="Disable reduced precision").click()
        self.expect_text(page.locator(".cards"), "Disabled")
        policy = daemon.get_json("/v1/precision_policy")["policy"]
        self.assertEqual((policy["reduced_precision_allowed"], policy["reason"]), (False, "losses rise"))
        page.get_by_role("button", name="Allow again").click()
        page.get_by_role("button", name="Allow", exact=True).click()
        self.expect_text(page.locator(".cards"), "Allowed")
        self.assertEqual(self.errors, [])

    def test_no_page_violates_the_rules_of_accessibility(self):
        daemon = self.fake()
        for job_id in ("ok-1", "ok-2", "fail-1", "hold-1"):
            daemon.train(job_id, harness.spec())
        daemon.wait_for_step("hold-1", 5)
        for scheme, width in (("light", 1440), ("dark", 1440), ("light", 360)):
            for path in ("#/", "#/jobs/hold-1", "#/jobs/fail-1", "#/compare?ids=ok-1,ok-2", "#/compare"):
                page = self.open(daemon, path, scheme, width)
                page.locator("main h1").first.wait_for(state="attached")
                results = Axe().run(page)
                self.assertEqual(results.violations_count, 0, f"{path} {scheme} {width}: {results.generate_report()}")
                overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                self.assertLessEqual(overflow, 0, f"{path} at {width}")
                page.close()


if __name__ == "__main__":
    unittest.main()
