"""Compares examples/agents.py, whose agents act while the daemon trains their world model, with the same loop in one process of PyTorch: seconds
until Pendulum-v1 is solved.

  benchmarks/run agents [--out DIR] [--rounds N] [--document docs/benchmarks/daemon.md] [--image docs/images/agents.png]

Both have the same model, planner, data, learning rate and steps per transition, and the same cores. A round runs each once with its own seed, in an
order that reverses. Time begins with the process and includes imports and the export. It is solved when the mean return of four episodes in a row is
-250 or more. Needs gymnasium and matplotlib, as the Python of the tests has them."""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import harness
import machine
import report
import spread

EXAMPLES = harness.SOURCE / "examples"
OURS, PEER = "daemon", "one process"
AGENTS, EPISODES = 2, 14  # Episodes of all agents together.
SOLVED, IN_A_ROW = -250, 4
BATCH, STEPS_OF_A_TRANSITION = 256, 2
RETURN = re.compile(r"return (-?\d+)$")


def in_one_process(seed, episodes):
    """Acts and trains in turns, and prints the returns."""
    import gymnasium
    import numpy
    import torch

    sys.path.insert(0, str(EXAMPLES))
    import agents

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # Faster than two: the products are small.
    model = agents.Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    env, columns = gymnasium.make("Pendulum-v1"), {name: [] for name in ("observation", "action", "change", "reward")}
    for episode in range(-2, episodes):
        observation, _ = env.reset(seed=1000 * seed + episode + 2)
        mean, earned, ended = torch.zeros(agents.HORIZON, 1), 0.0, False
        while not ended:
            mean = agents.plan(model, observation, mean) if episode >= 0 else mean
            action = mean[0].numpy().copy() if episode >= 0 else env.action_space.sample()
            following, reward, _, ended, _ = env.step(action)
            for column, value in zip(columns.values(), (observation, action, following - observation, [reward])):
                column.append(value)
            observation, mean, earned = following, torch.cat([mean[1:], torch.zeros(1, 1)]), earned + float(reward)
        if episode >= 0:
            print(f"return {earned:.0f}", flush=True)
        data = {name: torch.from_numpy(numpy.array(column, dtype="float32")) for name, column in columns.items()}
        for _ in range(200 * STEPS_OF_A_TRANSITION):
            rows = torch.randint(0, len(data["reward"]), (BATCH,))
            found = agents.loss(model, {name: column[rows] for name, column in data.items()})
            optimizer.zero_grad()
            found.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def returns_of(command, environment):
    """Runs a side. Returns (seconds, return) of each episode, in the order of their ends."""
    begin, found, lines = time.monotonic(), [], []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
        for line in process.stdout:
            lines.append(line)
            if match := RETURN.search(line.rstrip()):
                found.append((time.monotonic() - begin, float(match[1])))
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{''.join(lines)[-3000:]}")
    return found


def seconds_to_solve(found):
    """Returns the seconds until it is solved; None if it never is."""
    for end in range(IN_A_ROW, len(found) + 1):
        if statistics.mean(value for _, value in found[end - IN_A_ROW:end]) >= SOLVED:
            return found[end - 1][0]
    return None


def run_side(side, seed, daemon, package):
    environment = harness.clean_environment({"GENESIS_SERVER": daemon.grpc, "PYTHONPATH": os.pathsep.join(
        filter(None, (str(package), os.environ.get("PYTHONPATH")))), "GENESIS_SOURCE": str(harness.SOURCE), "GENESIS_BIN": str(harness.BIN)})
    ours = [sys.executable, EXAMPLES / "agents.py", "--agents", AGENTS, "--episodes", EPISODES // AGENTS, "--seed", seed]
    return returns_of(ours if side == OURS else [sys.executable, __file__, seed, EPISODES], environment)


def draw(rounds, path):
    """Draws the returns against the time, a line for each seed."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.2), dpi=150)
    for side, colour in ((OURS, "#2f5fd0"), (PEER, "#a06a00")):
        for number, each in enumerate(rounds):
            seconds, values = zip(*each[side])
            smooth = [statistics.mean(values[max(0, i - IN_A_ROW + 1):i + 1]) for i in range(len(values))]
            axes.plot(seconds, smooth, color=colour, alpha=0.75, linewidth=1.3, label=side if number == 0 else None)
    axes.axhline(SOLVED, color="#888888", linewidth=0.8, linestyle="--")
    axes.text(axes.get_xlim()[1], SOLVED, " solved", va="center", fontsize=8, color="#666666")
    axes.set(xlabel="seconds since the start", ylabel=f"return, mean of {IN_A_ROW} episodes", title="Pendulum-v1, planned with a model that learns meanwhile")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def table(row):
    lines = [f"| | {OURS}, {AGENTS} agents | {PEER} |", "| --- | --- | --- |"]
    for name, key, text in (("seconds until it is solved", "seconds", "{:.1f}"), ("episodes until then", "episodes", "{:.0f}"),
                            ("mean return of the last four", "last", "{:.0f}")):
        cells = [f"{text} ({text} to {text})".format(*(row[side][key][part] for part in ("median", "low", "high"))) for side in (OURS, PEER)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("agents", __doc__, rounds=5)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    parser.add_argument("--image", type=pathlib.Path, help="file for the picture of the returns")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("agents", "Agents that act with what they train", facts, {"rounds": options.rounds, "episodes": EPISODES})
    rounds = []
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        import python_package
        package = pathlib.Path(folder) / "package"
        package.mkdir()
        python_package.make_importable(package)
        daemon = harness.Daemon(pathlib.Path(folder) / "data")
        try:
            for seed in range(1, options.rounds + 1):
                order = (OURS, PEER) if seed % 2 else (PEER, OURS)
                rounds.append({side: run_side(side, seed, daemon, package) for side in order})
                print({side: seconds_to_solve(rounds[-1][side]) for side in (OURS, PEER)}, flush=True)
        finally:
            daemon.stop()
    row = {"name": "Pendulum-v1"}
    for side in (OURS, PEER):
        solved = [seconds_to_solve(each[side]) for each in rounds]
        if None in solved:
            raise RuntimeError(f"{side} did not solve it with seed {solved.index(None) + 1}: {rounds[solved.index(None)][side]}")
        row[side] = {"seconds": spread.summary(solved),
                     "episodes": spread.summary([sum(at <= end for at, _ in each[side]) for each, end in zip(rounds, solved)]),
                     "last": spread.summary([statistics.mean(value for _, value in each[side][-IN_A_ROW:]) for each in rounds])}
    found.add(row)
    found.text("Agents", table(row))
    found.write(options.out)
    if options.image:
        draw(rounds, options.image)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "agents", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores, {options.rounds} seeds; "
                        f"medians (quartiles).\n\n{table(row)}")


if __name__ == "__main__":
    in_one_process(*map(int, sys.argv[1:]))
