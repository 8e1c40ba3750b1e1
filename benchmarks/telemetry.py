"""Measures the cost of telemetry: scrapes of a daemon with 100 jobs, 8 of them running, and the reports of a worker's training loop.

  benchmarks/run telemetry [--out DIR] [--rounds N]

A round scrapes each format 500 times over one connection; the client's time is included. The training loop passes metrics of steps to the
reporter: alone, and with the queue and the thread that sends them."""

import http.client
import json
import os
import subprocess
import tempfile
import time

import charts
import harness
import machine
import report
import sides
import spread

JOBS = 100
SLOTS = 8
SCRAPES = 500
FORMATS = {
    "text": {},
    "OpenMetrics, gzip": {
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        "Accept-Encoding": "gzip"},
}
MOST_SERIES, MOST_SCRAPE_MS, MOST_STEP_NS = 1000, 5, 1000


def scrapes(address, headers):
    """Returns the milliseconds of each scrape, and the last body. All use one connection, as Prometheus does."""
    connection = http.client.HTTPConnection(address, timeout=harness.LONG)
    times = []
    for _ in range(SCRAPES):
        begin = time.perf_counter()
        connection.request("GET", "/metrics", headers=headers)
        body = connection.getresponse().read()
        times.append((time.perf_counter() - begin) * 1e3)
    connection.close()
    return times, body


def series_of(page):
    return sum(1 for line in page.splitlines() if not line.startswith("#"))


def scrape_rows(rounds, steadiness):
    """Returns a row for each format, and one for the size of the page."""
    p50, p99 = ({name: [] for name in FORMATS} for _ in range(2))
    size = {}
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        daemon = harness.Daemon(data_dir, "--workers-program", sides.fake_worker(),
                                "--workers-slots", str(SLOTS))
        try:
            for number in range(JOBS):
                daemon.train(f"hold-{number}", harness.spec())
            harness.wait_for("running jobs", lambda: len(
                daemon.ctl("jobs", "--state", "RUNNING")["jobs"]) == SLOTS)
            for _ in range(rounds):
                steadiness.measure()
                for name, headers in FORMATS.items():
                    times, body = scrapes(daemon.http, headers)
                    p50[name].append(spread.quantile(times, 0.5))
                    p99[name].append(spread.quantile(times, 0.99))
                    size[name] = len(body)
            series = series_of(daemon.get("/metrics"))
        finally:
            daemon.stop()
    return [{"name": f"scrape, {name}", "bytes": size[name], "p50_ms": spread.summary(p50[name]),
             "p99_ms": spread.summary(p99[name]), "wanted": f"p99 at most {MOST_SCRAPE_MS} ms"}
            for name in FORMATS] + [
        {"name": "series of a scrape", "series": series, "wanted": f"at most {MOST_SERIES}"}]


def step_rows():
    done = subprocess.run([sides.benchmark_program("step_telemetry")], check=True, capture_output=True, text=True)
    return [{"name": f"one step, {name}", "ns": spread.summary(times),
             "wanted": f"at most {MOST_STEP_NS} ns"} for name, times in json.loads(done.stdout).items() if "reporter" in name]


def shown(value, unit):
    return f"{value['median']:.3g} {unit} ({value['low']:.3g} to {value['high']:.3g})"


def table(rows):
    lines = [f"{'what':36}{'median (quartiles)':34}{'p99':34}wanted"]
    for row in rows:
        if "series" in row:
            figures = (str(row["series"]), "")
        elif "ns" in row:
            figures = (shown(row["ns"], "ns"), "")
        else:
            figures = (shown(row["p50_ms"], "ms"), shown(row["p99_ms"], "ms"))
        lines.append(f"{row['name']:36}{figures[0]:34}{figures[1]:34}{row['wanted']}")
    return "\n".join(lines)


def run(words):
    options = report.parser("telemetry", __doc__, rounds=5).parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    found = report.Report("telemetry", "What telemetry costs", machine.facts(
        genesisd=machine.output_of(harness.BIN / "genesisd", "--version")),
        {"rounds": options.rounds, "scrapes in a round": SCRAPES, "jobs": JOBS, "running": SLOTS})
    for row in [*scrape_rows(options.rounds, steadiness), *step_rows()]:
        found.add(row)
    found.steadiness = steadiness.summary()
    found.text("Scrapes and steps", table(found.rows))
    found.chart(charts.bars("A scrape", [(name, [("p50", row["p50_ms"]), ("p99", row["p99_ms"])])
                                         for name, row in zip(FORMATS, found.rows)], "ms"))
    found.chart(charts.bars("One step", [("", [(row["name"], row["ns"]) for row in found.rows if "ns" in row])],
                            "ns"))
    found.write(options.out)
