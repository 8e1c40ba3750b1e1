"""A daemon with ten thousand finished jobs: memory per job, time of a page of ListJobs, time to be
ready, time of a backup: tests/benchmarks/run store [OUT.json]

Every job comes through the API (Train, then CancelJob while it is queued); a worker without LibTorch
holds the only slot meanwhile.
"""

import concurrent.futures
import json
import os
import pathlib
import tempfile
import time
import urllib.error

import harness
import orchestrator

JOBS = int(os.environ.get("GENESIS_STORE_JOBS", "10000"))
WARM_UP = 500  # Jobs before memory is read first: caches and pools are full then.
FAKE_WORKER = harness.BIN.parent / "tests" / "fake_worker"
PAGES = {
    "newest 100": {},
    "newest 1000": {"page_size": 1000},
    "by priority": {"order": "JOB_ORDER_PRIORITY"},
    "one label of few": {"labels": {"rare": "yes"}},
    "no such label": {"labels": {"absent": ""}},
    "no such owner": {"owner": "nobody"},
    "one state of none": {"states": ["JOB_STATE_FAILED"]},
}


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def submit(client, number):
    spec = harness.spec()
    spec["scheduling"] = {"priority": number % 5, "owner": f"owner-{number % 10}",
                          "labels": {"team": f"team-{number % 20}"}}
    if number % 500 == 0:
        spec["scheduling"]["labels"]["rare"] = "yes"
    job_id = f"job-{number:06d}"
    client.call("Train", job_id=job_id, spec=spec)
    client.call("CancelJob", job_id=job_id)


def milliseconds(call, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    times.sort()
    return {"p50_ms": round(times[len(times) // 2], 2), "max_ms": round(times[-1], 2)}


def start(folder):
    return harness.Daemon(folder, "--workers-program", FAKE_WORKER, "--workers-spares", "0")


def seconds_to_ready(folder):
    begin = time.perf_counter()
    daemon = start(folder)
    while True:
        try:
            daemon.get("/readyz")
            return daemon, round(time.perf_counter() - begin, 3)
        except urllib.error.HTTPError:
            time.sleep(0.002)


def fill_and_list(daemon):
    client = orchestrator.Orchestrator(daemon.grpc)
    # Keeps the only slot: no other job may preempt it.
    holding = harness.spec()
    holding["scheduling"] = {"priority": 10}
    client.call("Train", job_id="hold-1", spec=holding)
    daemon.wait_for_step("hold-1", 5)
    figures = {"jobs": JOBS, "idle_rss_mib": round(resident_kib(daemon.process.pid) / 1024, 1)}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: submit(client, n), range(WARM_UP)))
        before = resident_kib(daemon.process.pid)
        begin = time.perf_counter()
        list(pool.map(lambda n: submit(client, n), range(WARM_UP, JOBS)))
    figures["jobs_per_second"] = round((JOBS - WARM_UP) / (time.perf_counter() - begin))
    after = resident_kib(daemon.process.pid)
    figures["rss_mib"] = round(after / 1024, 1)
    figures["rss_bytes_per_job"] = round(1024 * (after - before) / (JOBS - WARM_UP))
    figures["pages"] = {name: milliseconds(lambda: client.call("ListJobs", **query), 100)
                        for name, query in PAGES.items()}
    figures["get_ended_job"] = milliseconds(lambda: client.call("GetJob", job_id="job-000007"), 300)
    figures["backup"] = milliseconds(lambda: client.call("BackupStore"), 3)
    client.close()
    return figures


def measure(folder):
    daemon = start(folder)
    try:
        figures = fill_and_list(daemon)
    finally:
        daemon.stop()
    figures["store_mib"] = round((pathlib.Path(folder) / "jobs.db").stat().st_size / 2**20, 1)
    starts = []
    for _ in range(5):
        daemon, seconds = seconds_to_ready(folder)
        starts.append(seconds)
        figures["rss_mib_after_start"] = round(resident_kib(daemon.process.pid) / 1024, 1)
        daemon.stop()
    figures["seconds_to_ready"] = sorted(starts)
    return figures


def run(out, machine):
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        figures = {"machine": machine, **measure(folder)}
    text = json.dumps(figures, indent=1)
    print(text)
    if out:
        pathlib.Path(out).write_text(text + "\n")
