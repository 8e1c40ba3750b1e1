"""Measures what one client appends to replay buffers of the daemon over loopback, durable when it is acknowledged, in turn with
`dd conv=fsync` of as many bytes on the same disk, and with TorchRL's memmap storage where torchrl is installed (which does not sync).

  benchmarks/run ingest [--out DIR] [--rounds N] [--mebibytes N] [--folder DIR]"""

import os
import pathlib
import re
import shutil
import tempfile
import time

import charts
import numpy
import report
import sides
import spread
from checkpoint import dd

import harness
import machine

# Shape and type of an observation, and transitions per episode, by name.
WORKLOADS = {"images 64x64x3 uint8": ((64, 64, 3), "u1", 500), "vectors of 4 float32": ((4,), "f4", 500)}
# Maximum number of transitions, which bounds the workload with small rows.
SMALL = 1_000_000
SIDES = ("genesis", "dd", "torchrl")


def rows(shape, kind, mebibytes, episode):
    """Returns the columns of transitions that take about `mebibytes` MiB, at most SMALL transitions."""
    random = numpy.random.default_rng(1)
    count = min(SMALL, (mebibytes << 20) // (2 * int(numpy.prod(shape)) * numpy.dtype(kind).itemsize)) // episode * episode
    values = random.integers(0, 256, (count + 1, *shape), "u1").astype(kind)
    return {"observations": values[:-1], "actions": random.normal(size=(count, 2)).astype("f4"), "rewards": random.normal(size=count).astype("f4"),
            "next_observations": values[1:], "terminals": numpy.arange(count) % episode == episode - 1}


def genesis_side(client, name, data):
    begin = time.perf_counter()
    client.append(name).extend(**data)
    return time.perf_counter() - begin


def torchrl_side(folder, data):
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, ReplayBuffer

    count = len(data["rewards"])
    buffer = ReplayBuffer(storage=LazyMemmapStorage(count, scratch_dir=folder))
    columns = {name: torch.from_numpy(numpy.ascontiguousarray(values)) for name, values in data.items()}
    begin = time.perf_counter()
    for first in range(0, count, 500):
        buffer.extend(TensorDict({name: values[first:first + 500] for name, values in columns.items()}, [len(columns["rewards"][first:first + 500])]))
    return time.perf_counter() - begin


def measure(options, folder, steadiness):
    """Returns the seconds by workload and side, and the bytes and transitions by workload."""
    import genesis

    found, sizes = {name: {side: [] for side in SIDES} for name in WORKLOADS}, {}
    daemon = harness.Daemon(folder, "--workers-program", sides.fake_worker(), "--workers-spares", "0")
    try:
        client = genesis.Client(daemon.grpc)
        for round in range(options.rounds + 1):
            for name, (shape, kind, episode) in WORKLOADS.items():
                steadiness.measure()
                data = rows(shape, kind, options.mebibytes, episode)
                seconds = {"genesis": genesis_side(client, "buffer", data)}
                size = sum(path.stat().st_size for path in (pathlib.Path(folder) / "datasets" / "buffer").glob("*.segment"))
                client.delete_dataset("buffer")
                sizes[name] = {"bytes": size, "transitions": len(data["rewards"])}
                seconds["dd"] = dd(f"{folder}/dd", size)
                try:
                    seconds["torchrl"] = torchrl_side(f"{folder}/torchrl", data)
                    shutil.rmtree(f"{folder}/torchrl")
                except ImportError:
                    pass
                if round > 0:  # The caches and the disk are in an unknown state in the first round.
                    for side, value in seconds.items():
                        found[name][side].append(value)
    finally:
        daemon.stop()
    return found, sizes


def run(words):
    parser = report.parser("ingest", __doc__, rounds=5)
    parser.add_argument("--mebibytes", type=int, default=500, help="of the observations of a workload. Default 500")
    parser.add_argument("--folder", help="on the disk that is measured. Default: the temporary folder")
    options = parser.parse_args(words)
    steadiness = machine.Steadiness(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="genesis-", dir=options.folder) as folder:
        seconds, sizes = measure(options, folder, steadiness)
        disk = machine.output_of("df", "--output=source,fstype", folder).splitlines()[-1]
    found = report.Report("ingest", "Ingest of replay buffers", machine.facts(disk=re.sub(r"\s+", ", ", disk)),
                          {"rounds": options.rounds, "mebibytes": options.mebibytes})
    lines = []
    for name, by_side in seconds.items():
        for side, values in by_side.items():
            if not values:
                continue
            summary, size = spread.summary(values), sizes[name]
            share = spread.median_interval([floor / value for floor, value in zip(by_side["dd"], values)])["median"]
            row = {"name": f"{name}, {side}", "seconds": summary, "mb_per_second": size["bytes"] / summary["median"] / 1e6,
                   "transitions_per_second": size["transitions"] / summary["median"], "share_of_dd": share}
            found.add(row)
            lines.append(f"{row['name']:34}{row['mb_per_second']:8.0f} MB/s{row['transitions_per_second']:12,.0f} transitions/s"
                         f"{share:8.2f} of dd")
    found.steadiness = steadiness.summary()
    found.text("Ingest", "\n".join(lines))
    found.chart(charts.bars("Seconds", [("", [(row["name"], row["seconds"]) for row in found.rows])], "s"))
    found.write(options.out)
