"""Measures the dashboard: what ten of its pages cost a fast job, how heavy it is, and how soon it shows jobs and curves.

  benchmarks/run dashboard [--out DIR] [--rounds N] [--jobs N] [--points N] [--document FILE]

A round measures the steps per second of one job of about 1,000 without and with ten readers, in an order that reverses with each round. A reader
makes the requests of a page that shows the job: it follows the stream of events and reads the new part of the curves every three seconds. One page
in Chromium shows how often it reads them. Pages are opened in Chromium with an empty cache. --document puts the table into a page,
between its marks."""

import contextlib
import gzip
import http.client
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time

import grpc
from playwright.sync_api import sync_playwright

import charts
import harness
import machine
import orchestrator
import report
import secure
import sides
import spread
import store

READERS = 10
WINDOW = 10  # Seconds.
# COARSE_SECONDS and POINTS are the same as in job_charts.js and curves.js of server/dashboard.
COARSE_SECONDS = 3
POINTS = 1000
MOST_STEP_NS = 200
SOURCES = harness.SOURCE / "server" / "dashboard"
BROWSER = {"Accept": "text/html", "Accept-Encoding": "gzip"}
# A step of about a millisecond on one core.
JOB = {"model": {"world_model": {"hidden_size": 128, "latent_size": 32}}, "dataset": {"trajectories": {"path": "pendulum.npz"}},
       "training": {"max_steps": 10**9, "batch_size": 64}}


class Readers:
    """Threads that send the requests of open pages of one job, until they are closed."""

    def __init__(self, address, job_id, count):
        self.address, self.job_id = address, job_id
        self.closed = threading.Event()
        self.requests = self.bytes = 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.read) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def read(self):
        stream, other = (http.client.HTTPConnection(self.address, timeout=harness.LONG) for _ in range(2))
        with contextlib.closing(stream), contextlib.closing(other):
            stream.request("GET", f"/v1/jobs:watch?filter.job_id={self.job_id}&cursor=-1")
            messages = stream.getresponse()
            read_time, end, grain, points = 0.0, 0, 1, POINTS
            while not self.closed.is_set():
                self.count(len(messages.readline()))
                if time.monotonic() < read_time + COARSE_SECONDS:
                    continue
                read_time = time.monotonic()
                other.request("GET", f"/v1/jobs/{self.job_id}/curves?from_step={end + 1 if end else 0}&to_step=0&points={points}")
                body = other.getresponse().read()
                self.count(len(body))
                curves = json.loads(body)
                if not end:
                    grain = max(curves["counts"])
                points = max(1, round((int(curves["last_step"]) - end) / grain))
                end = int(curves["last_step"])

    def count(self, received):
        with self.lock:
            self.requests += 1
            self.bytes += received

    def close(self):
        self.closed.set()
        for thread in self.threads:
            thread.join()


def processor_seconds(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Job:
    """A running job whose speed is measured from one report of its steps to another."""

    def __init__(self, daemon, job_id):
        self.daemon, self.job_id = daemon, job_id
        request, response = secure.messages("GetJob")
        self.channel = grpc.insecure_channel(daemon.grpc)
        self.get = self.channel.unary_unary(f"/{secure.TRAINING}/GetJob", request_serializer=request.SerializeToString,
                                            response_deserializer=response.FromString)
        self.request = request(job_id=job_id)

    def step(self):
        return self.get(self.request).job.progress.step

    def next_report(self):
        """Returns (time, step) when the daemon has just received a report."""
        before = self.step()
        while (step := self.step()) == before:
            time.sleep(0.002)
        return time.monotonic(), step

    def measure(self, readers):
        """Returns the steps per second, the daemon's cores in use, and the bytes that each reader received per second."""
        reading = Readers(self.daemon.http, self.job_id, readers)
        try:
            time.sleep(1)
            used, received, (begin, first) = processor_seconds(self.daemon.process.pid), reading.bytes, self.next_report()
            time.sleep(WINDOW)
            end, last = self.next_report()
            seconds = end - begin
            return {"steps": (last - first) / seconds, "cores": (processor_seconds(self.daemon.process.pid) - used) / seconds,
                    "bytes": (reading.bytes - received) / seconds / max(1, readers)}
        finally:
            reading.close()


def weight(daemon):
    """Returns the bytes of all files as a browser receives them, and uncompressed."""
    listed = re.search(r"([\w./]+\.html [\w./\s]+)", (SOURCES / "CMakeLists.txt").read_text())[1].split()
    compressed = whole = 0
    for name in listed:
        connection = http.client.HTTPConnection(daemon.http, timeout=harness.LONG)
        connection.request("GET", "/" if name == "index.html" else f"/dashboard/{name}", headers=BROWSER)
        body = connection.getresponse().read()
        compressed += len(body)
        whole += len(gzip.decompress(body))
        connection.close()
    return {"name": "weight of the page", "files": len(listed), "compressed": compressed, "uncompressed": whole}


def open_page(browser, url, shown):
    """Opens a page with an empty cache. Returns the milliseconds until its first paint, and until the element `shown` is drawn."""
    with contextlib.closing(browser.new_context(viewport={"width": 1440, "height": 900})) as context:
        page = context.new_page()
        page.goto(url)
        page.wait_for_function("selector => document.querySelector(selector)", arg=shown, polling="raf", timeout=harness.LONG * 1000)
        drawn = page.evaluate("performance.now()")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        return paint, drawn


def opening(browser, name, url, shown, rounds):
    paints, drawn = zip(*(open_page(browser, url, shown) for _ in range(rounds)))
    return {"name": name, "paint_ms": spread.summary(paints), "shown_ms": spread.summary(drawn)}


def curves_read_by_a_page(browser, daemon, job_id):
    """Returns how many times a page of the job reads the curves within WINDOW seconds."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"http://{daemon.http}/#/jobs/{job_id}")
        page.wait_for_selector(".plot canvas")
        read = []
        page.on("request", lambda request: read.append(request.url) if "/curves?" in request.url else None)
        page.wait_for_timeout(WINDOW * 1000)
        return len(read)


def watched_job(browser, options, steadiness):
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir, contextlib.ExitStack() as stack:
        daemon = harness.Daemon(data_dir, "--workers-slots", str(len(os.sched_getaffinity(0))))
        stack.callback(daemon.stop)
        daemon.train("watched", JOB)
        daemon.wait_for_step("watched", 1000)
        job = Job(daemon, "watched")
        stack.callback(job.channel.close)
        pairs = []
        for number in range(options.rounds):
            steadiness.measure()
            order = (0, READERS) if number % 2 == 0 else (READERS, 0)
            pairs.append({readers: job.measure(readers) for readers in order})
            print(pairs[-1], flush=True)
        yield {"name": f"{READERS} readers of a fast job",
               "steps_per_second": spread.summary([pair[0]["steps"] for pair in pairs]),
               "ratio": spread.median_interval([pair[READERS]["steps"] / pair[0]["steps"] for pair in pairs]),
               "daemon_cores": spread.summary([pair[READERS]["cores"] for pair in pairs]),
               "daemon_cores_without": spread.summary([pair[0]["cores"] for pair in pairs]),
               "bytes_per_second": spread.summary([pair[READERS]["bytes"] for pair in pairs]),
               "curves_of_a_page": curves_read_by_a_page(browser, daemon, "watched"), "curves_of_a_reader": round(WINDOW / COARSE_SECONDS)}
        yield weight(daemon)
        while job.step() < options.points:
            time.sleep(1)
        steps = job.step()
        daemon.ctl("cancel", "watched")
        daemon.wait_for_end("watched")
        yield opening(browser, f"a job of {steps:,} steps", f"http://{daemon.http}/#/jobs/watched", ".plot canvas", options.rounds)


def many_jobs(browser, options):
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        daemon = store.start(data_dir)
        client = orchestrator.Orchestrator(daemon.grpc)
        try:
            yield opening(browser, "no job", f"http://{daemon.http}/", ".cards .card", options.rounds)
            for number in range(options.jobs):
                store.submit(client, number)
            yield opening(browser, f"{options.jobs:,} jobs", f"http://{daemon.http}/", "tbody tr:not(.gap) .name", options.rounds)
        finally:
            client.close()
            daemon.stop()


def step_rows():
    done = subprocess.run([sides.benchmark_program("step_telemetry")], check=True, capture_output=True, text=True)
    return [{"name": f"one step's {name}", "ns": spread.summary(times)} for name, times in json.loads(done.stdout).items() if "curves" in name]


def shown(value, unit):
    return f"{value['median']:.3g} {unit} ({value['low']:.3g} to {value['high']:.3g})"


def lines(row):
    """Returns the lines of the table for a row: what was measured, the value, and the target."""
    if "ratio" in row:
        ratio = row["ratio"]
        return [(f"steps/s with {READERS} pages, of {row['steps_per_second']['median']:,.0f} without",
                 f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})", "at least 0.98"),
                (f"cores that the daemon uses: without, with {READERS} pages",
                 f"{row['daemon_cores_without']['median']:.3f}, {row['daemon_cores']['median']:.3f}", ""),
                ("what each page receives", f"{row['bytes_per_second']['median'] / 1024:.0f} KiB/s", "")]
    if "compressed" in row:
        return [(f"weight: {row['files']} files, gzip; uncompressed",
                 f"{row['compressed'] / 1000:.0f} kB; {row['uncompressed'] / 1000:.0f} kB", "at most 100 kB")]
    if "ns" in row:
        return [(row["name"], shown(row["ns"], "ns"), f"at most {MOST_STEP_NS} ns" if "warm" in row["name"] else "")]
    return [(f"{row['name']}: first paint", shown(row["paint_ms"], "ms"), ""), (f"{row['name']}: shown", shown(row["shown_ms"], "ms"), "at most 1 s")]


def table(rows):
    return "\n".join(["| what | value | wanted |", "| --- | --- | --- |", *(f"| {' | '.join(line)} |" for row in rows for line in lines(row))])


def run(words):
    parser = report.parser("dashboard", __doc__, rounds=6)
    parser.add_argument("--jobs", type=int, default=10_000, help="default 10000")
    parser.add_argument("--points", type=int, default=100_000, help="steps of the job whose page is opened. Default 100000")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("dashboard", "The dashboard", facts, {"rounds": options.rounds, "seconds of a window": WINDOW, "readers": READERS})
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"])
        for row in itertools.chain(watched_job(browser, options, steadiness), many_jobs(browser, options), step_rows()):
            found.add(row)
            print(row, flush=True)
        browser.close()
    found.steadiness = steadiness.summary()
    found.text("The dashboard", table(found.rows))
    found.chart(charts.bars("Until it is shown", [("", [(row["name"], row["shown_ms"]) for row in found.rows if "shown_ms" in row])], "ms"))
    found.write(options.out)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "dashboard", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores, "
                        f"{options.rounds} rounds; medians (quartiles, for the ratio 95 %).\n\n{table(found.rows)}")
