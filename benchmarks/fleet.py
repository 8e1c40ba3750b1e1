"""Measures what watchers of the whole fleet cost the thread that makes every change durable.

  benchmarks/run fleet [--out DIR] [--rounds N] [--document FILE]

A round starts two daemons, opens 0, 100 and 1,000 WatchJobs streams of one of them, then of the other, and changes a queued job of both in
turns. The result is the processor time of each writer thread per change, and their ratio. Both writers share the caches and processors with
the readers, so the ratio is what the watchers cost the writer of their own daemon. Every stream must receive every change. --document puts
the table into a page, between its marks."""

import contextlib
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
CHANGES = 50
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


class Side:
    """A daemon with one queued job that may be changed."""

    def __init__(self, stack):
        data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="genesis-"))
        made = [secure.new_token(f"watcher-{i}", "admin") for i in range(OWNERS)]
        self.tokens = [token for token, _ in made]
        tokens_file = secure.write_secret(pathlib.Path(data_dir, "tokens"), "".join(f"{line}\n" for _, line in made))
        self.daemon = harness.Daemon(data_dir, "--workers-program", sides.fake_worker(), "--auth-tokens-file", str(tokens_file))
        stack.callback(self.daemon.stop)
        self.client = secure.Client(grpc.insecure_channel(self.daemon.grpc), self.tokens[0])
        stack.callback(self.client.channel.close)
        request, _ = secure.messages("Train")
        spec = json_format.ParseDict({"spec": harness.spec()}, request()).spec
        for job_id in ("hold-1", "job"):
            self.client.call("Train", job_id=job_id, spec=spec)

    def change(self, priority):
        """Changes the queued job. A priority above 0 would preempt the one that holds the slot."""
        self.client.call("UpdateJob", job_id="job", priority=priority, update_mask={"paths": ["priority"]})

    def writer_seconds(self):
        return writer_seconds(self.daemon.process.pid)


def measure_changes(watched, other, count):
    """Returns the microseconds per change of both writer threads, while `count` streams watch the first daemon."""
    streams = Streams(watched.daemon.grpc, watched.tokens, count)
    try:
        # The first change shows that every stream is open.
        watched.change(-1)
        other.change(-1)
        streams.wait_for(1)
        begin = [side.writer_seconds() for side in (watched, other)]
        for number in range(CHANGES):
            for side in (watched, other) if number % 2 else (other, watched):
                side.change(-2 - number % 2)
        used = [side.writer_seconds() - before for side, before in zip((watched, other), begin, strict=True)]
        streams.wait_for(1 + CHANGES)
        for side in (watched, other):
            side.change(0)
        return [1e6 * each / CHANGES for each in used]
    finally:
        streams.close()


def measure_round(number):
    """Returns, for each number of watchers, the microseconds per change of the watched daemon's writer and of the other's."""
    with contextlib.ExitStack() as stack:
        pair = [Side(stack) for _ in range(2)]
        found = {}
        for count in WATCHERS[number % len(WATCHERS):] + WATCHERS[:number % len(WATCHERS)]:
            both = []
            for watched, other in (pair, reversed(pair)):
                both.append(measure_changes(watched, other, count))
                time.sleep(1)  # Lets the daemon end the closed streams.
            found[count] = [sum(each) / 2 for each in zip(*both, strict=True)]
        return found


def table(rows):
    lines = ["| watchers | writer with them | writer without, beside it | ratio |", "| --- | --- | --- | --- |"]
    for row in rows:
        ratio = row["ratio"]
        lines.append(f"| {row['watchers']} | {row['microseconds']['median']:.0f} us | {row['without']['median']:.0f} us | "
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
             "microseconds": spread.summary([each[count][0] for each in rounds]),
             "without": spread.summary([each[count][1] for each in rounds]),
             "ratio": spread.median_interval([each[count][0] / each[count][1] for each in rounds])} for count in WATCHERS]
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
