"""Tests that one stream of the events of all jobs has each event once, without gaps, while the daemon is killed."""

import http.client
import json
import pathlib
import random
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
import tiers  # noqa: E402
from harness import spec  # noqa: E402


class Reader(threading.Thread):
    """Follows GET /v1/jobs:watch and goes on after its cursor when the connection breaks."""

    def __init__(self, address, cursor=0):
        super().__init__(daemon=True)
        self.address, self.cursor = address, cursor
        self.events, self.faults, self.connections = [], [], 0
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                self._read(http.client.HTTPConnection(self.address(), timeout=60))
            except (OSError, http.client.HTTPException, ValueError):
                self.stopping.wait(0.05)

    def _read(self, connection):
        connection.request("GET", f"/v1/jobs:watch?cursor={self.cursor}")
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(response.status)
        self.connections += 1
        while not self.stopping.is_set():
            line = response.readline()
            if not line.endswith(b"\n"):
                raise OSError("the connection broke within a message")
            message = json.loads(line)
            if "error" in message:
                self.faults.append(message)
                raise OSError
            self.events += message["events"]
            self.cursor = int(message["cursor"])


class EventStream(harness.DaemonTest):
    def pages(self, daemon):
        events, cursor = [], 0
        while True:
            page = daemon.get_json(f"/v1/events?cursor={cursor}&page_size=1000&skip_dropped=true")
            events += page["events"]
            cursor = int(page["cursor"])
            if not page["more"]:
                return events

    def follow_through_kills(self, jobs, kills, runs):
        random.seed(46)
        self.daemon = self.start()
        readers = [Reader(lambda: self.daemon.http) for _ in range(3)]
        for reader in readers:
            reader.start()
            self.addCleanup(reader.stopping.set)
        for number in range(jobs):
            if number % (jobs // kills) == jobs // kills - 1:
                self.daemon.kill()
                self.daemon = self.start()
            name = f"job-{number}"
            self.daemon.train(name, spec(max_steps=3))
            if number % (jobs // runs):
                self.daemon.ctl("cancel", name, check=False)  # It may have ended.
        for number in range(0, jobs, jobs // runs):
            self.daemon.wait_for_end(f"job-{number}")
        listed = self.pages(self.daemon)
        last = int(listed[-1]["sequence"])
        self.assertEqual([int(event["sequence"]) for event in listed], list(range(1, last + 1)), "no gap in the list")
        for reader in readers:
            harness.wait_for("the last event", lambda: reader.cursor >= last)
            reader.stopping.set()
            self.assertEqual(reader.faults, [])
            self.assertEqual(reader.events[:last], listed, "each event once, in order, as listed")
        ended = {event["job_id"] for event in listed if event["state"] in ("JOB_STATE_SUCCEEDED", "JOB_STATE_CANCELLED")}
        self.assertEqual(len(ended), jobs)
        return readers

    def test_a_few_jobs_through_three_kills(self):
        readers = self.follow_through_kills(jobs=24, kills=3, runs=6)
        self.assertGreaterEqual(readers[0].connections, 4)

    @tiers.nightly
    def test_a_thousand_jobs_through_twenty_kills(self):
        readers = self.follow_through_kills(jobs=1000, kills=20, runs=100)
        self.assertGreaterEqual(readers[0].connections, 21)


if __name__ == "__main__":
    unittest.main()
