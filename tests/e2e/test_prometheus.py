"""A real Prometheus scrapes the daemon and answers queries; promtool accepts the page."""

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
        self.assertEqual(self.query("genesis_training_success_total")[0]["value"][1], "1")
        samples = self.query("genesis_training_samples_total")
        self.assertEqual(samples[0]["value"][1], str(100 * 64))

    def test_promtool_accepts_the_page(self):
        daemon = self.start()
        daemon.train("checked", spec(max_steps=20))
        daemon.wait_for_end("checked")
        done = subprocess.run([PROMETHEUS / "promtool", "check", "metrics"],
                              input=daemon.get("/metrics"), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
