"""Measures a daemon with ten thousand finished jobs: memory per job, and the times of a page of ListJobs, of a start and of a backup.

  benchmarks/run store [--out DIR] [--jobs N]

All jobs are created through the API: Train, then CancelJob while the job is queued. Meanwhile a worker without LibTorch holds the only
slot.
"""

import concurrent.futures
import os
import pathlib
import tempfile
import time
import urllib.error

import charts
import grpc

import harness
import machine
import orchestrator
import report
import sides
import spread

STARTS = 5
WARM_UP = 500  # Jobs that fill caches and pools before the growth of the memory is measured.
UNITS = (("mib", 1, "MiB"), ("bytes", 0, "bytes"), ("jobs_per_second", 0, "jobs/s"))
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
    try:
        client.call("CancelJob", job_id=job_id)
    except grpc.RpcError as error:
        # A worker that was idle may have run the job already.
        if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
            raise


def milliseconds(call, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    times.sort()
    return {"p50_ms": round(times[len(times) // 2], 2), "max_ms": round(times[-1], 2)}


def start(folder):
    return harness.Daemon(folder, "--workers-program", sides.fake_worker(), "--workers-spares", "0")


def seconds_to_ready(folder):
    begin = time.perf_counter()
    daemon = start(folder)
    while True:
        try:
            daemon.get("/readyz")
            return daemon, round(time.perf_counter() - begin, 3)
        except urllib.error.HTTPError:
            time.sleep(0.002)


def resident_mib(daemon):
    return resident_kib(daemon.process.pid) / 1024


def fill_and_list(daemon, jobs):
    client = orchestrator.Orchestrator(daemon.grpc)
    # This job keeps the only slot, because no other job may preempt it.
    holding = harness.spec()
    holding["scheduling"] = {"priority": 10}
    client.call("Train", job_id="hold-1", spec=holding)
    daemon.wait_for_step("hold-1", 5)
    yield {"name": "resident, idle", "mib": resident_mib(daemon), "wanted": "at most 60 MB"}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: submit(client, n), range(WARM_UP)))
        before, begin = resident_mib(daemon), time.perf_counter()
        list(pool.map(lambda n: submit(client, n), range(WARM_UP, jobs)))
    seconds, after = time.perf_counter() - begin, resident_mib(daemon)
    yield {"name": f"resident, after {jobs} jobs", "mib": after}
    yield {"name": "growth of it per job", "bytes": 2**20 * (after - before) / (jobs - WARM_UP),
           "wanted": "below 1 KB"}
    yield {"name": "Train and CancelJob by four clients", "jobs_per_second": (jobs - WARM_UP) / seconds}
    for name, query in PAGES.items():
        wanted = {} if query.get("page_size") else {"wanted": "at most 10 ms"}
        yield {"name": f"ListJobs, {name}", **milliseconds(lambda: client.call("ListJobs", **query), 100), **wanted}
    yield {"name": "GetJob of one that has ended",
           **milliseconds(lambda: client.call("GetJob", job_id="job-000007"), 300)}
    yield {"name": "BackupStore", **milliseconds(lambda: client.call("BackupStore"), 3)}
    client.close()


def measure(folder, jobs):
    daemon = start(folder)
    try:
        yield from fill_and_list(daemon, jobs)
    finally:
        daemon.stop()
    yield {"name": "the store's file", "mib": (pathlib.Path(folder) / "jobs.db").stat().st_size / 2**20}
    starts = []
    for _ in range(STARTS):
        daemon, seconds = seconds_to_ready(folder)
        starts.append(seconds)
        resident = resident_mib(daemon)
        daemon.stop()
    yield {"name": "start to ready", "seconds": spread.summary(starts), "wanted": "at most 0.5 s"}
    yield {"name": "resident, after a start", "mib": resident}


def table(rows):
    lines = []
    for row in rows:
        if "seconds" in row:
            figure = "{median:.3f} s ({low:.3f} to {high:.3f})".format(**row["seconds"])
        elif "p50_ms" in row:
            figure = f"p50 {row['p50_ms']:.2f} ms, most {row['max_ms']:.2f} ms"
        else:
            figure = next(f"{row[key]:.{digits}f} {unit}" for key, digits, unit in UNITS if key in row)
        lines.append(f"{row['name']:38}{figure:34}{row.get('wanted', '')}".rstrip())
    return "\n".join(lines)


def run(words):
    parser = report.parser("store", __doc__)
    parser.add_argument("--jobs", type=int, default=10000, help="default 10000")
    options = parser.parse_args(words)
    if options.jobs <= WARM_UP:
        parser.error(f"--jobs is {options.jobs}; accepted: above {WARM_UP}, for so many are made before "
                     "memory is read first")
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    steadiness.measure()
    found = report.Report("store", "A daemon with many finished jobs", machine.facts(
        genesisd=machine.output_of(harness.BIN / "genesisd", "--version")), {"jobs": options.jobs})
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        for row in measure(folder, options.jobs):
            found.add(row)
    steadiness.measure()
    found.steadiness = steadiness.summary()
    found.text("Figures", table(found.rows))
    found.chart(charts.bars("ListJobs", [("", [
        (row["name"], {"median": row["p50_ms"], "low": row["p50_ms"], "high": row["max_ms"]})
        for row in found.rows if row["name"].startswith("ListJobs")])], "ms"))
    found.write(options.out)
