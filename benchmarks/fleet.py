"""Measures what watchers of the whole fleet cost the thread that makes every change durable.

  benchmarks/run fleet [--out DIR] [--rounds N] [--document FILE]

A round starts a daemon, opens 0, 100 and 1,000 WatchJobs streams, in an order that rotates, and changes a queued job in the same way beside
each. The result is the processor time of the writer thread per change, which does not depend on the load of the other processors, and its
ratio to that without watchers in the same round. Every stream must receive every change. --document puts the table into a page, between its
marks."""

import os
import pathlib
import tempfile
import threading
import time

import grpc
from google.protobuf import json_format

import charts
import harness
import machine
import report
import secure
import sides
import spread

WATCHERS = (0, 100, 1000)
CHANGES = 200
OWNERS = 4  # One caller may have 512 streams.


def writer_seconds(pid):
    """Returns the processor time of the daemon's writer thread."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "writer":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise RuntimeError("the daemon has no thread named writer")


class Streams:
    """Open WatchJobs streams that count the events they receive."""

    def __init__(self, address, tokens, count):
        request, response = secure.messages("WatchJobs")
        # A connection of its own for each 50 streams, because the daemon accepts a bounded number on one.
        self.channels = [grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(-(-count // 50))]
        calls = [channel.unary_stream(f"/{secure.TRAINING}/WatchJobs", request_serializer=request.SerializeToString,
                                      response_deserializer=response.FromString) for channel in self.channels]
        self.received = [0] * count
        self.streams = [calls[i % len(calls)](request(cursor=-1), metadata=[("authorization", f"Bearer {tokens[i % len(tokens)]}")])
                        for i in range(count)]
        self.threads = [threading.Thread(target=self.listen, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def listen(self, i):
        try:
            for message in self.streams[i]:
                self.received[i] += len(message.events)
        except grpc.RpcError:
            return  # The stream was cancelled.

    def wait_for(self, events):
        harness.wait_for(f"{events} events on each stream", lambda: min(self.received, default=events) >= events)

    def close(self):
        for stream in self.streams:
            stream.cancel()
        for thread in self.threads:
            thread.join()
        for channel in self.channels:
            channel.close()


def change(client, priority):
    """Changes the queued job. A priority above 0 would preempt the one that holds the slot."""
    client.call("UpdateJob", job_id="job", priority=priority, update_mask={"paths": ["priority"]})


def measure_changes(daemon, client, tokens, count):
    """Returns the microseconds of the writer thread per change with `count` watchers."""
    streams = Streams(daemon.grpc, tokens, count)
    try:
        # The first change shows that every stream is open.
        change(client, -1)
        streams.wait_for(1)
        begin = writer_seconds(daemon.process.pid)
        for number in range(CHANGES):
            change(client, -2 - number % 2)
        used = writer_seconds(daemon.process.pid) - begin
        streams.wait_for(1 + CHANGES)
        change(client, 0)
        return 1e6 * used / CHANGES
    finally:
        streams.close()


def measure_round(number):
    with tempfile.TemporaryDirectory(prefix="genesis-") as data_dir:
        made = [secure.new_token(f"watcher-{i}", "admin") for i in range(OWNERS)]
        tokens = secure.write_secret(pathlib.Path(data_dir, "tokens"), "".join(f"{line}\n" for _, line in made))
        daemon = harness.Daemon(data_dir, "--workers-program", sides.fake_worker(), "--auth-tokens-file", str(tokens))
        client = secure.Client(grpc.insecure_channel(daemon.grpc), made[0][0])
        request, _ = secure.messages("Train")
        spec = json_format.ParseDict({"spec": harness.spec()}, request()).spec
        try:
            for job_id in ("hold-1", "job"):
                client.call("Train", job_id=job_id, spec=spec)
            order = WATCHERS[number % len(WATCHERS):] + WATCHERS[:number % len(WATCHERS)]
            found = {}
            for count in order:
                found[count] = measure_changes(daemon, client, [token for token, _ in made], count)
                time.sleep(1)  # The closed streams end.
            return found
        finally:
            client.channel.close()
            daemon.stop()


def table(rows):
    lines = ["| watchers | writer thread per change | times that without watchers |", "| --- | --- | --- |"]
    for row in rows:
        ratio = row["ratio"]
        lines.append(f"| {row['watchers']} | {row['microseconds']['median']:.0f} us | "
                     f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("fleet", __doc__, rounds=6)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    rounds = []
    for number in range(options.rounds):
        steadiness.measure()
        rounds.append(measure_round(number))
        print(rounds[-1], flush=True)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("fleet", "Watchers of the fleet", facts, {"rounds": options.rounds, "changes": CHANGES})
    rows = [{"name": f"{count} watchers", "watchers": count,
             "microseconds": spread.summary([each[count] for each in rounds]),
             "ratio": spread.median_interval([each[count] / each[0] for each in rounds])} for count in WATCHERS]
    for row in rows:
        found.add(row)
    found.steadiness = steadiness.summary()
    found.text("Processor time of the writer thread", table(rows))
    found.chart(charts.bars("Writer thread per change", [("", [(str(row["watchers"]), row["microseconds"]) for row in rows])], "us"))
    found.write(options.out)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "fleet", f"Measured {when} on {facts['processor']}, {options.rounds} rounds of {CHANGES} "
                        f"changes.\n\n{table(rows)}")
