"""Tests that the Grafana dashboards are those that their script writes, and that every query has data."""

import http.server
import json
import os
import pathlib
import re
import signal
import tempfile
import threading
import unittest

import yaml

from tools import DEPLOY, SOURCE, TOOLS, run

import harness  # noqa: E402
import tiers  # noqa: E402
from harness import spec  # noqa: E402
from monitor import Prometheus  # noqa: E402

GRAFANA = DEPLOY / "grafana"
PAGES = ("genesis-overview", "genesis-precision", "genesis-job", "genesis-devices")
# Metrics that have no data without a GPU. A page with the series of STAND_IN replaces them.
NEEDS_A_GPU = (
    "genesis_cuda_memory_allocated_bytes", "genesis_cuda_memory_peak_bytes",
    "genesis_cuda_memory_reserved_bytes", "genesis:cuda_memory:fp16_to_fp32_ratio",
    "genesis_gpu_memory_used_bytes", "genesis_gpu_memory_total_bytes",
    "genesis_gpu_utilization_ratio", "genesis_gpu_power_watts", "genesis_gpu_temperature_celsius",
    "genesis_gpu_throttled",
)
# The series that the page exports, like a daemon with a GPU, with their labels.
DEVICE, MODE = {"device": "cuda:0"}, {"mode": "fp16"}
STAND_IN = {
    "genesis_cuda_memory_allocated_bytes": MODE, "genesis_cuda_memory_peak_bytes": MODE,
    "genesis_cuda_memory_reserved_bytes": MODE, "genesis_gpu_memory_used_bytes": DEVICE,
    "genesis_gpu_memory_total_bytes": DEVICE, "genesis_gpu_utilization_ratio": DEVICE,
    "genesis_gpu_power_watts": DEVICE, "genesis_gpu_temperature_celsius": DEVICE,
    "genesis_cuda_memory_to_fp32_ratio": {},
    "genesis_gpu_throttled": {**DEVICE, "reason": "power_cap"},
}
DRILL = {"ENABLE_FP16_TRAINING": "true", "GENESIS_PRECISION_CPU_FALLBACK": "emulate",
         "GENESIS_REHEARSALS_ALLOWED": "true"}


def page(name):
    return json.loads((GRAFANA / "dashboards" / f"{name}.json").read_text())


def queries():
    """Yields (dashboard, panel, expression), with the variables replaced by values."""
    for name in PAGES:
        for panel in page(name)["panels"]:
            for target in panel.get("targets", []):
                yield name, panel["title"], (
                    target["expr"].replace("$deployment", ".*").replace("$instance", ".*")
                    .replace("$__rate_interval", "1m"))


def needs_a_gpu(expression):
    return any(name in expression for name in NEEDS_A_GPU)


class Files(unittest.TestCase):
    def test_committed_dashboards_are_what_the_script_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            run(TOOLS / "python", GRAFANA / "generate.py", folder)
            written = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
        committed = {path.name: path.read_text()
                     for path in (GRAFANA / "dashboards").iterdir()}
        self.assertEqual(set(written), {f"{name}.json" for name in PAGES})
        self.assertEqual(written, committed, "run deploy/grafana/generate.py")

    def test_every_panel_takes_its_data_source_from_the_variable(self):
        for name in PAGES:
            variables = {entry["name"]: entry for entry in page(name)["templating"]["list"]}
            self.assertEqual(variables["datasource"]["type"], "datasource")
            self.assertEqual(variables["datasource"]["query"], "prometheus")
            for panel in page(name)["panels"]:
                if panel["type"] != "row":
                    self.assertEqual(panel["datasource"]["uid"], "${datasource}", panel["title"])
                    self.assertTrue(panel["description"], panel["title"])
                    self.assertTrue(panel["targets"], panel["title"])

    def test_panels_have_numbers_of_their_own_and_do_not_overlap(self):
        for name in PAGES:
            panels = page(name)["panels"]
            self.assertEqual(len({panel["id"] for panel in panels}), len(panels), name)
            taken = {}
            for panel in panels:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                for x in range(at["x"], at["x"] + at["w"]):
                    for y in range(at["y"], at["y"] + at["h"]):
                        self.assertNotIn((x, y), taken, f"{panel['title']} of {name}")
                        taken[x, y] = panel["title"]

    def test_stable_and_canary_stand_side_by_side(self):
        panels = {panel["title"]: panel for panel in page("genesis-overview")["panels"]}
        stable = [title for title in panels if title.startswith("Stable: ")]
        self.assertGreaterEqual(len(stable), 4)
        for title in stable:
            left, right = panels[title], panels[title.replace("Stable", "Canary")]
            self.assertEqual(left["gridPos"]["y"], right["gridPos"]["y"])
            self.assertEqual(left["gridPos"]["x"] + left["gridPos"]["w"], right["gridPos"]["x"])
            self.assertEqual(left["targets"][0]["expr"].replace("stable", "canary"),
                             right["targets"][0]["expr"])

    def test_every_metric_in_a_query_or_rule_is_in_the_catalogue(self):
        listed = set(re.findall(r"^\| `(\w+)`", (SOURCE / "docs" / "metrics.md").read_text(),
                                re.MULTILINE))
        rules = (DEPLOY / "prometheus" / "genesis.rules.yml").read_text()
        text = "\n".join([rules, *(expression for _, _, expression in queries())])
        used = set(re.findall(r"(?<![\w:.{])(?:genesis|process)_\w+\b(?!:)", text))
        used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} - {"genesis_docs"}
        self.assertGreater(len(used), 40)
        self.assertEqual(used - listed, set(), "docs/metrics.md has every metric that exists")
        rows = re.findall(r"^\| `(\w+)` \| \w+ \| [^|]+ \| ([^|]*) \|",
                          (SOURCE / "docs" / "metrics.md").read_text(), re.MULTILINE)
        for name, labels in rows:
            if name in STAND_IN:
                self.assertEqual(sorted(STAND_IN[name]), sorted(re.findall(r"\w+", labels)), name)

    def test_provisioning_names_what_is_there(self):
        folder = GRAFANA / "provisioning"
        source = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())
        self.assertEqual(source["datasources"][0]["type"], "prometheus")
        provider = yaml.safe_load((folder / "dashboards" / "genesis.yml").read_text())
        path = provider["providers"][0]["options"]["path"]
        compose = yaml.safe_load((SOURCE / "docker-compose.yml").read_text())
        mounts = compose["services"]["grafana"]["volumes"]
        self.assertIn(f"./deploy/grafana/dashboards:{path}:ro", mounts)
        self.assertIn("./deploy/grafana/provisioning:/etc/grafana/provisioning:ro", mounts)


class Queries(harness.DaemonTest):
    def start_deployment(self, name):
        folder = pathlib.Path(self.data_dir) / name
        folder.mkdir()
        daemon = harness.Daemon(folder, "--workers-slots", "3",
                                environment={**DRILL, "GENESIS_DEPLOYMENT": name})
        self.addCleanup(daemon.stop)
        return daemon

    def load(self, daemon):
        """Runs a job that falls back and is promoted again, one in FP16 with an FP32 reference, and one that loses a worker."""
        storm = spec(max_steps=150)
        storm["precision"] = {"mode": "MIXED_FP16", "loss_scale": 16, "fallbacks": ["FP32"],
                              "promote_after_steps": 30}
        storm["rehearsals"] = [{"kind": "INF", "at_step": 30, "steps": 8}]
        daemon.train("storm", storm)
        daemon.wait_for_end("storm")
        # Emulated FP16 takes minutes, so the job that is compared with an FP32 reference keeps running during what follows.
        like = spec(max_steps=3000)
        daemon.train("reference", {**like, "precision": {"mode": "FP32"}})
        daemon.wait_for_end("reference")
        daemon.train("reduced", {**like, "precision": {
            "mode": "MIXED_FP16", "watchdog": {"slowdown": {"action": "OFF"}}}})
        daemon.wait_for_step("reduced", 60)
        long = spec(max_steps=1_000_000)
        long["precision"] = {"mode": "FP32"}
        long["evaluation"] = {"every_steps": 200}
        long["distributed"] = {"ranks": 2}
        daemon.train("killed", long)
        daemon.wait_for_step("killed", 100)
        os.kill(daemon.busy_worker_pid(), signal.SIGKILL)
        harness.wait_for("the restart",
                         lambda: "genesis_worker_restarts_total" in daemon.get("/metrics"))
        # The job continues to train, so that the rates are those of a busy daemon.

    @tiers.nightly
    def test_every_query_has_data_from_daemons_at_work(self):
        daemons = [self.start_deployment(name) for name in ("stable", "canary")]
        prometheus = Prometheus(self, pathlib.Path(self.data_dir) / "prometheus",
                                [daemon.http for daemon in daemons],
                                (DEPLOY / "prometheus" / "genesis.rules.yml").read_text())
        harness.wait_for("a first scrape", lambda: len(prometheus.query("genesis_ready == 1")) == 2)
        for daemon in daemons:
            self.load(daemon)
        asked = list(queries())
        self.assertGreater(len(asked), 60)
        empty = {}

        def all_have_data():
            empty.clear()
            for name, title, expression in asked:
                # An expression that cannot be parsed raises an error, with or without data.
                found = prometheus.query(expression)
                numbers = [series for series in found if series["value"][1] != "NaN"]
                if not numbers and not needs_a_gpu(expression):
                    empty[f"{name}: {title}"] = expression
            return not empty

        try:
            harness.wait_for("data for every panel", all_have_data, timeout=60)
        except AssertionError:
            self.assertEqual(empty, {})

    def stand_in(self):
        """Starts a server with the series of STAND_IN. Returns its host:port."""
        lines = []
        for name, labels in STAND_IN.items():
            for mode in ("fp16", "fp32") if "mode" in labels else (None,):
                shown = {"deployment": "stable", **labels, **({"mode": mode} if mode else {})}
                text = ",".join(f'{key}="{value}"' for key, value in shown.items())
                lines.append(f"{name}{{{text}}} 1")
        body = ("\n".join(lines) + "\n").encode()

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return f"127.0.0.1:{server.server_port}"

    def test_queries_that_need_a_gpu_match_the_labels_of_their_series(self):
        prometheus = Prometheus(self, pathlib.Path(self.data_dir) / "prometheus",
                                [self.stand_in()],
                                (DEPLOY / "prometheus" / "genesis.rules.yml").read_text())
        asked = [(title, expression) for _, title, expression in queries()
                 if needs_a_gpu(expression)]
        self.assertGreaterEqual(len(asked), 9)
        for title, expression in asked:
            harness.wait_for(f"{title}: {expression}", lambda: prometheus.query(expression), 60)

    def test_a_query_with_a_fault_is_found(self):
        prometheus = Prometheus(self, pathlib.Path(self.data_dir) / "prometheus", [], "groups: []")
        harness.wait_for("Prometheus", lambda: prometheus.get("/api/v1/status/buildinfo"))
        with self.assertRaises(ValueError):
            prometheus.query("sum(rate(genesis_ready)")
        self.assertEqual(prometheus.query("genesis_no_such_metric"), [])


if __name__ == "__main__":
    unittest.main()
