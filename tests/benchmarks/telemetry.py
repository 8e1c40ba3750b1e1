"""What telemetry costs: a scrape of a daemon that has 100 jobs, and the step loop of a worker."""

import http.client
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import harness

JOBS = 100
SLOTS = 8
SCRAPES = 500
FORMATS = {
    "text": {},
    "OpenMetrics, gzip": {
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        "Accept-Encoding": "gzip"},
}


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def scrapes(address, headers):
    """Milliseconds of each scrape, on one connection as Prometheus keeps one, and the last body."""
    connection = http.client.HTTPConnection(address, timeout=harness.LONG)
    times = []
    for _ in range(SCRAPES):
        begin = time.perf_counter()
        connection.request("GET", "/metrics", headers=headers)
        body = connection.getresponse().read()
        times.append((time.perf_counter() - begin) * 1e3)
    connection.close()
    return times, body


def measure_scrape():
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        daemon = harness.Daemon(data_dir, "--workers-program", str(harness.FAKE_WORKER),
                                "--workers-slots", str(SLOTS))
        try:
            for number in range(JOBS):
                daemon.train(f"hold-{number}", harness.spec())
            harness.wait_for("running jobs", lambda: len([
                job for job in daemon.ctl("jobs", "--state", "RUNNING")["jobs"]]) == SLOTS)
            for name, headers in FORMATS.items():
                times, body = scrapes(daemon.http, headers)
                print(f"scrape with {JOBS} jobs, {SLOTS} of them running, {name}: "
                      f"p50 {statistics.median(times):.2f} ms, p99 {quantile(times, 0.99):.2f} ms, "
                      f"most {max(times):.2f} ms, {len(body)} bytes")
            series = [line for line in daemon.get("/metrics").splitlines()
                      if not line.startswith("#")]
            print(f"series: {len(series)}")
        finally:
            daemon.stop()


def run(program):
    print(f"load average {os.getloadavg()[0]:.1f}")
    measure_scrape()
    subprocess.run([pathlib.Path(program)], check=True)
