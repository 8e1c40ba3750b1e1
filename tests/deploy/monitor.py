"""Runs a real Prometheus for tests, which scrapes given daemons and evaluates given rules."""

import json
import pathlib
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from tools import LONG, PROMETHEUS

CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: genesis
    static_configs: [{{targets: {targets}}}]
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    def __init__(self, test, folder, targets, rules):
        """Starts Prometheus, and stops it when `test` ends."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        (self.folder / "rules.yml").write_text(rules)
        (self.folder / "prometheus.yml").write_text(CONFIG.format(targets=json.dumps(targets)))
        self.address = f"127.0.0.1:{free_port()}"
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [PROMETHEUS / "prometheus", f"--config.file={self.folder}/prometheus.yml",
             f"--storage.tsdb.path={self.folder}/tsdb", f"--web.listen-address={self.address}"],
            stdout=self.log, stderr=self.log)
        test.addCleanup(self.stop)

    def stop(self):
        self.process.terminate()
        self.process.wait(LONG)
        self.log.close()

    def get(self, path, **parameters):
        """Returns `data` of a response; None while Prometheus is not ready. Raises ValueError for a query that it rejects."""
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=LONG) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # It listens but is not ready.
            raise ValueError(error.read().decode()) from error
        except OSError:
            return None

    def query(self, expression):
        answer = self.get("/api/v1/query", query=expression)
        return answer["result"] if answer else []

    def firing(self):
        """Returns the names of the alerts that fire now."""
        answer = self.get("/api/v1/alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in answer["alerts"]
                if alert["state"] == "firing"}
