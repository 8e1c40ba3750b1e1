"""Measures one job whose ranks run on separate hosts, connected by a switch with links of given speeds, and fits a model with two
parameters that predicts more ranks than a machine has.

  benchmarks/run scaling [--out DIR] [--ranks N]... [--mbit N]... [--steps N] [--page FILE]

Hosts are network namespaces on one bridge. Each link is shaped in both directions (tc-tbf(8)), which requires root. A step of one rank is
short compared with the exchange, so it hardly matters that all hosts share this machine's processors.

In the model (Hockney, Parallel Computing 20, 1994; a ring as in Thakur et al., IJHPCA 19, 2005), an exchange of B bytes between N ranks
takes

  t(N) = 2 (N - 1) / N x B / bandwidth + 2 (N - 1) x latency

Both parameters are fitted to the measured times at one link speed with the fewest and the most ranks. All other rows test them."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import machine
import report
import sides

RANKS, MBIT = (2, 4, 8), (50, 100, 200)
# Speedups that the founding documents promise, by number of ranks.
PROMISED = {2: 1.85, 4: 3.6, 8: 6.8}
ASKED = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Steps before the measurement, in which connections and buffers are created.
WARM_UP = 2


def run_ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}\nscaling makes network namespaces, which root may")


class Hosts:
    """Network namespaces, one for each host, that are connected by a bridge in a further namespace."""

    def __init__(self, count, mbit):
        self.tag = os.getpid() % 100000
        self.names = [f"gs{self.tag}-{number}" for number in range(count)]
        self.switch = f"gs{self.tag}-switch"
        run_ip("netns", "add", self.switch)
        run_ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        run_ip("-n", self.switch, "link", "set", "br0", "up")
        for number, name in enumerate(self.names):
            port = f"port{number}"
            run_ip("netns", "add", name)
            run_ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            run_ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
            run_ip("-n", name, "addr", "add", f"10.254.0.{number + 1}/24", "dev", "eth0")
            for device in "lo", "eth0":
                run_ip("-n", name, "link", "set", device, "up")
            for namespace, device in (name, "eth0"), (self.switch, port):
                subprocess.run(["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                                f"{mbit}mbit", "burst", "64kb", "latency", "100ms"], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in *self.names, self.switch:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def job(steps, ranks):
    return {"model": {"world_model": {"hidden_size": 1024, "latent_size": 64}},
            "dataset": {"trajectories": {"path": str(sides.HERE.parent / "examples" / "trajectories" / "pendulum.npz")}},
            "training": {"max_steps": steps, "batch_size": 8, "use_ddp": ranks > 1},
            "precision": {"mode": "FP32"}}


def train(folder, hosts, steps):
    """Trains with one rank on each host. Returns the seconds of a step, and the number of bytes that it exchanges."""
    ranks = len(hosts.names)
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text(json.dumps(job(steps, ranks)))
    processes = []
    try:
        for rank, name in enumerate(hosts.names):
            place = {} if ranks == 1 else {"WORLD_SIZE": str(ranks), "RANK": str(rank), "MASTER_ADDR": "10.254.0.1",
                                           "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0", "GENESIS_SHARED_MEMORY": "false"}
            processes.append(subprocess.Popen(
                ["ip", "netns", "exec", name, sides.worker(), "--spec", folder / "job.yaml", "--checkpoint-dir", folder / "checkpoints",
                 "--threads", "1", "--device", "cpu"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=sides.environment(**place)))
        begin = time.perf_counter()
        lines = [(time.perf_counter() - begin, line) for line in processes[0].stdout]
        outputs = ["".join(line for _, line in lines), *(process.communicate(timeout=60)[0] for process in processes[1:])]
        for process in processes:
            process.wait(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, output in zip(processes, outputs):
        if process.returncode != 0:
            raise RuntimeError(f"a rank ended with {process.returncode}:\n{output[-3000:]}")
    steps_at = [(int(found[1]), at) for at, line in lines if (found := sides.STEP.search(line)) and int(found[1]) > WARM_UP]
    (first, began), (last, ended) = steps_at[0], steps_at[-1]
    if last - first < 3:
        raise RuntimeError(f"only {last - first} steps were timed; ask for more --steps")
    size = re.search(r"gradients: .*?([\d.]+) MiB, by Gloo", outputs[0])
    return (ended - began) / (last - first), float(size[1]) * 2**20 if size else 0.0


def exchange_seconds(ranks, size, bandwidth, latency):
    return 2 * (ranks - 1) / ranks * size / bandwidth + 2 * (ranks - 1) * latency


def solve(one, other):
    """Returns bandwidth and latency from two measured exchanges, each (ranks, bytes, seconds)."""
    rows = [(2 * (ranks - 1) / ranks * size, 2 * (ranks - 1), seconds) for ranks, size, seconds in (one, other)]
    (a, b, x), (c, d, y) = rows
    determinant = a * d - b * c
    inverse, latency = (x * d - b * y) / determinant, (a * y - x * c) / determinant
    return 1 / inverse, latency


def efficiency(ranks, share, latency):
    """Returns the efficiency of a job, the speedup divided by the number of ranks.

    `share` is the time of an exchange between infinitely many ranks, and `latency` that of a message, both relative to the compute time of
    a step. The exchange does not overlap with the backward pass."""
    return 1 / (1 + exchange_seconds(ranks, share / 2, 1, latency))


def promised_model():
    """Returns (share, latency) from the promised speedups of the fewest and the most ranks. The others test them."""
    few, many = min(PROMISED), max(PROMISED)
    excess = {ranks: ranks / PROMISED[ranks] - 1 for ranks in PROMISED}
    bandwidth, latency = solve((few, 1, excess[few]), (many, 1, excess[many]))
    return 2 / bandwidth, latency


def measured_table(rows, facts, steps):
    size = rows[0]["bytes"]
    lines = [f"{facts['processor']}; {datetime.date.today()}; means of {steps} steps, in which {size / 2**20:.1f} MiB are exchanged.", "",
             "| link | ranks | measured | the model | off by |", "|---|---|---|---|---|"]
    for row in rows:
        said = f"{1e3 * row['model']:.0f} ms" + (" (fitted)" if row["fitted"] else "")
        lines.append(f"| {row['mbit']} Mbit/s | {row['ranks']} | {1e3 * row['exchange']:.0f} ms | {said} | "
                     f"{100 * (row['model'] / row['exchange'] - 1):+.0f} % |")
    return "\n".join(lines)


def predicted_table():
    share, latency = promised_model()
    lines = [f"Exchange {100 * share:.1f} % of a step's compute, {100 * latency:.2f} % a message.", "",
             "| GPUs | promised | the model | times as fast |", "|---|---|---|---|"]
    for ranks in ASKED:
        promised = f"{100 * PROMISED[ranks] / ranks:.1f} %" if ranks in PROMISED else ""
        said = efficiency(ranks, share, latency)
        lines.append(f"| {ranks} | {promised} | {100 * said:.1f} % | {ranks * said:.1f} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("scaling", __doc__)
    parser.add_argument("--ranks", action="append", type=int, help=f"default: {', '.join(map(str, RANKS))}")
    parser.add_argument("--mbit", action="append", type=int, help=f"speed of a link; default: {', '.join(map(str, MBIT))}")
    parser.add_argument("--steps", type=report.repeats, default=30, help="of a job of several ranks. Default 30")
    parser.add_argument("--page", type=pathlib.Path, help="page whose sentences are written anew, and benchmarks/scaling-*.csv beside it for the tables")
    options = parser.parse_args(words)
    counts, speeds = sorted(options.ranks or RANKS), sorted(options.mbit or MBIT)
    if len(counts) < 2 or counts[0] < 2:
        parser.error("two numbers of ranks are needed at least, each 2 or more")
    found = report.Report("scaling", "Ranks on hosts of their own", machine.facts(**{
        "genesis-worker": machine.output_of(sides.worker(), "--version")}), {"steps": options.steps})
    with tempfile.TemporaryDirectory(prefix="genesis-") as temporary:
        folder = pathlib.Path(temporary)
        with Hosts(1, speeds[0]) as hosts:
            # Steps of one rank take milliseconds, so more of them are measured.
            alone, _ = train(folder / "alone", hosts, 100 * options.steps)
        rows = []
        for mbit in speeds:
            for ranks in counts:
                with Hosts(ranks, mbit) as hosts:
                    step, size = train(folder / f"{mbit}-{ranks}", hosts, options.steps + WARM_UP)
                # Ranks that share a processor compute one after the other.
                compute = alone * max(1, ranks / len(os.sched_getaffinity(0)))
                rows.append({"name": f"{mbit} Mbit/s, {ranks} ranks", "mbit": mbit, "ranks": ranks, "bytes": size,
                             "step": step, "compute": compute, "exchange": step - compute})
    first = [row for row in rows if row["mbit"] == speeds[0]]
    bandwidth, latency = solve(*((row["ranks"], row["bytes"], row["exchange"]) for row in (first[0], first[-1])))
    for row in rows:
        row["fitted"] = row in (first[0], first[-1])
        row["model"] = exchange_seconds(row["ranks"], row["bytes"], bandwidth * row["mbit"] / speeds[0], latency)
        found.add(row)
    found.text("Measured", measured_table(rows, found.facts, options.steps))
    found.text("Predicted", predicted_table())
    found.write(options.out)
    if options.page is not None:
        report.document_with_rows(options.page, "scaling-measured", measured_table(rows, found.facts, options.steps))
        report.document_with_rows(options.page, "scaling-predicted", predicted_table())
    print(f"bandwidth {bandwidth / 1e6:.1f} MB/s at {speeds[0]} Mbit/s, latency {1e6 * latency:.0f} us, compute of a step {1e3 * alone:.1f} ms")
