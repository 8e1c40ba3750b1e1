"""Tests that a real Prometheus scrapes the daemon and answers queries, and that promtool accepts the page."""

import gzip
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request

import harness
from harness import spec

PROMETHEUS = pathlib.Path(os.environ["GENESIS_PROMETHEUS"])

CONFIG = """
global: {{scrape_interval: 200ms}}
scrape_configs:
  - job_name: genesis
    static_configs: [{{targets: ["{target}"]}}]
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus(harness.DaemonTest):
    def start_prometheus(self, target):
        folder = tempfile.mkdtemp(prefix="prometheus-", dir=self.data_dir)
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(CONFIG.format(target=target))
        self.address = f"127.0.0.1:{free_port()}"
        log = open(pathlib.Path(folder) / "log", "wb")
        process = subprocess.Popen(
            [PROMETHEUS / "prometheus", f"--config.file={config}",
             f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={self.address}"],
            stdout=log, stderr=log)

        def stop():
            process.terminate()
            process.wait()
            log.close()

        self.addCleanup(stop)

    def query(self, expression):
        url = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=harness.LONG) as response:
                return json.load(response)["data"]["result"]
        except OSError:
            return []  # Not listening yet.

    def metadata(self, name):
        url = f"http://{self.address}/api/v1/metadata?" + urllib.parse.urlencode({"metric": name})
        with urllib.request.urlopen(url, timeout=harness.LONG) as response:
            return json.load(response)["data"].get(name, [])

    def test_prometheus_scrapes_the_daemon_and_answers_for_a_job(self):
        daemon = self.start()
        self.start_prometheus(daemon.http)
        daemon.train("scraped", spec(max_steps=100))
        daemon.wait_for_end("scraped")
        steps = harness.wait_for(
            "100 steps in Prometheus",
            lambda: [r for r in self.query("genesis_optimizer_steps_total") if r["value"][1] == "100"])
        self.assertEqual(steps[0]["metric"]["mode"], "fp32")
        self.assertEqual(steps[0]["metric"]["deployment"], "stable")
        self.assertEqual(self.query("up")[0]["value"][1], "1")
        # A scrape may have had all steps but not the end.
        harness.wait_for("the end in Prometheus", lambda: self.query("genesis_training_success_total")[0]["value"][1] == "1")
        samples = self.query("genesis_training_samples_total")
        self.assertEqual(samples[0]["value"][1], str(100 * 64))

    def test_prometheus_is_given_the_open_metrics_that_it_asks_for(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))
        self.start_prometheus(daemon.http)
        daemon.train("ok-1", spec())
        daemon.wait_for_end("ok-1")
        # Only OpenMetrics writes whole bounds in this way.
        buckets = harness.wait_for(
            "a bucket in Prometheus",
            lambda: [r for r in self.query('genesis_training_duration_seconds_bucket{le="5.0"}')
                     if r["value"][1] == "1"])
        self.assertEqual(len(buckets), 1)
        self.assertEqual(self.query('genesis_training_duration_seconds_bucket{le="5"}'), [])
        quantile = self.query("histogram_quantile(0.5, genesis_training_duration_seconds_bucket)")
        self.assertGreater(float(quantile[0]["value"][1]), 0)
        self.assertEqual(self.query("min_over_time(up[1m])")[0]["value"][1], "1")
        # OpenMetrics names a counter without the suffix _total of its samples.
        [metadata] = self.metadata("genesis_training_success")
        self.assertEqual(metadata["type"], "counter")

    def test_each_client_is_given_its_format_and_compression(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))

        def get(**headers):
            request = urllib.request.Request(f"http://{daemon.http}/metrics", headers={
                name.replace("_", "-"): value for name, value in headers.items()})
            with urllib.request.urlopen(request, timeout=harness.LONG) as response:
                return response.headers, response.read()

        headers, plain = get()
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertIsNone(headers["Content-Encoding"])
        self.assertNotIn(b"# EOF", plain)
        # These are the headers that Prometheus sends.
        headers, packed = get(
            Accept="application/openmetrics-text;version=1.0.0,"
                   "application/openmetrics-text;version=0.0.1;q=0.75,"
                   "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Accept_Encoding="gzip")
        self.assertEqual(headers["Content-Type"],
                         "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertEqual(headers["Content-Encoding"], "gzip")
        self.assertEqual(headers["Vary"], "Accept, Accept-Encoding")
        page = gzip.decompress(packed).decode()
        self.assertTrue(page.endswith("\n# EOF\n"))
        self.assertIn("# TYPE genesis_training_success counter\n", page)
        self.assertIn('genesis_training_success_total{deployment="stable"} 0\n', page)
        self.assertLess(len(packed), len(page) / 4)

    def test_promtool_accepts_the_page(self):
        daemon = self.start()
        daemon.train("checked", spec(max_steps=20))
        daemon.wait_for_end("checked")
        done = subprocess.run([PROMETHEUS / "promtool", "check", "metrics"],
                              input=daemon.get("/metrics"), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
