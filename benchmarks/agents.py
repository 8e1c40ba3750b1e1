"""Compares examples/agents.py, whose agents act while the daemon trains their world model, with the same loop in one process of PyTorch: seconds
until Pendulum-v1 is solved.

  benchmarks/run agents [--out DIR] [--rounds N] [--document docs/benchmarks/daemon.md] [--image docs/images/agents.png]

All have the same model, planner, data, learning rate and steps per transition, and the same cores. A round runs each once with its own seed, in an
order that reverses. Time begins with the process and includes imports. It is solved when the mean return of four episodes in a row is
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
# Agents of each side, and episodes of each agent.
SIDES = {"daemon, 2 agents": (2, 8), "daemon, 8 agents": (8, 3), "one process": (0, 16)}
ENVIRONMENT = "Pendulum-v1"
SOLVED, IN_A_ROW = -250, 4
BATCH, STEPS_OF_A_TRANSITION = 256, 2
RETURN = re.compile(r"return (-?\d+)$")


class Buffer:
    """Transitions of whole episodes, as windows of consecutive ones."""

    def __init__(self, window):
        self.window, self.rows, self.starts = window, {name: [] for name in ("observation", "action", "change", "reward", "done")}, []

    def add(self, episode):
        first = len(self.rows["done"])
        self.starts += range(first, first + len(episode) - self.window + 1)
        for name, column in zip(self.rows, zip(*episode)):
            self.rows[name] += column

    def tensors(self):
        import numpy
        import torch

        return {name: torch.from_numpy(numpy.array(column, dtype="float32")) for name, column in self.rows.items()}


def in_one_process(seed, episodes):
    """Acts and trains in turns, and prints the returns."""
    import contextlib

    import gymnasium
    import numpy
    import torch

    sys.path[:0] = [str(EXAMPLES), str(harness.SOURCE / "trainer" / "compiled" / "python")]
    import agents
    from twins.world_model import WorldModel

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # Faster than two: the products are small.
    env, random, steps = gymnasium.make(ENVIRONMENT), numpy.random.default_rng(seed), agents.MODEL["rollout_steps"]
    actions = gymnasium.spaces.flatdim(env.action_space)
    model = WorldModel(env.observation_space.shape[0], actions, agents.MODEL["hidden_size"], agents.MODEL["latent_size"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    buffer = Buffer(steps)

    @torch.no_grad()
    def predict(inputs):
        plans = torch.from_numpy(inputs["action"])
        at, found = torch.from_numpy(inputs["observation"]).expand(len(plans), -1), {"reward": [], "done": []}
        for part in plans.split(steps, 1):
            ((change, reward, done),) = model.predictions({"observation": at.unsqueeze(1), "action": part})
            at = at + (change * model.change_std + model.change_mean).sum(1)
            found["reward"].append(reward * model.reward_std + model.reward_mean)
            found["done"].append(done.sigmoid())
        return {name: torch.cat(parts, 1).numpy() for name, parts in found.items()}

    class Recorded(gymnasium.Wrapper):
        def reset(self, **options):
            self.episode = []
            self.at, info = super().reset(**options)
            return self.at, info

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            self.episode.append((self.at, gymnasium.spaces.flatten(self.action_space, action), observation - self.at, [reward], [terminated]))
            self.at = observation
            if terminated or truncated:
                buffer.add(self.episode)
            return observation, reward, terminated, truncated, info

    env = Recorded(env)
    agents.act_at_random(env, seed)
    data = buffer.tensors()
    for name in ("observation", "action", "change", "reward"):
        getattr(model, f"{name}_mean").copy_(data[name].mean(0))
        getattr(model, f"{name}_std").copy_(data[name].std(0).clamp_min(1e-6))
    for number in range(episodes):
        starts = torch.tensor(buffer.starts)
        trained = len(data["done"]) if number == 0 else len(env.episode)
        for _ in range(trained * STEPS_OF_A_TRANSITION):
            rows = starts[torch.randint(0, len(starts), (BATCH,))].unsqueeze(1) + torch.arange(steps)
            found = model.loss({name: column[rows] for name, column in data.items()}, contextlib.nullcontext())
            optimizer.zero_grad()
            found.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"return {agents.episode(env, predict, random, 1000 * seed + 500 + number):.0f}", flush=True)
        data = buffer.tensors()


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
        filter(None, (package, str(harness.SOURCE / "tests" / "e2e"), os.environ.get("PYTHONPATH")))), "GENESIS_SOURCE": str(harness.SOURCE), "GENESIS_BIN": str(harness.BIN)})
    agents, episodes = SIDES[side]
    ours = [sys.executable, EXAMPLES / "agents.py", "--env", ENVIRONMENT, "--agents", agents, "--episodes", episodes, "--seed", seed]
    return returns_of(ours if agents else [sys.executable, __file__, seed, episodes], environment)


def draw(rounds, path):
    """Draws the returns against the time, a line for each seed."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.2), dpi=150)
    for side, colour in zip(SIDES, ("#2f5fd0", "#5f9f6f", "#a06a00")):
        for number, each in enumerate(rounds):
            seconds, values = zip(*each[side])
            smooth = [statistics.mean(values[max(0, i - IN_A_ROW + 1):i + 1]) for i in range(len(values))]
            axes.plot(seconds, smooth, color=colour, alpha=0.75, linewidth=1.3, label=side if number == 0 else None)
    axes.axhline(SOLVED, color="#888888", linewidth=0.8, linestyle="--")
    axes.text(axes.get_xlim()[1], SOLVED, " solved", va="center", fontsize=8, color="#666666")
    axes.set(xlabel="seconds since the start", ylabel=f"return, mean of {IN_A_ROW} episodes", title=f"{ENVIRONMENT}, planned with a model that learns meanwhile")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def table(row):
    lines = [f"| | {' | '.join(SIDES)} |", "| --- |" + " --- |" * len(SIDES)]
    for name, key, text in (("seconds until it is solved", "seconds", "{:.1f}"), ("episodes until then", "episodes", "{:.0f}"),
                            ("mean return of the last four", "last", "{:.0f}")):
        cells = [f"{text} ({text} to {text})".format(*(row[side][key][part] for part in ("median", "low", "high"))) for side in SIDES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("agents", __doc__, rounds=5)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    parser.add_argument("--image", type=pathlib.Path, help="file for the picture of the returns")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("agents", "Agents that act with what they train", facts, {"rounds": options.rounds})
    rounds = []
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        import python_package
        python_package.make_importable(folder)
        package = sys.path[0]
        daemon = harness.Daemon(pathlib.Path(folder) / "data")
        try:
            for seed in range(1, options.rounds + 1):
                order = list(SIDES) if seed % 2 else list(SIDES)[::-1]
                rounds.append({side: run_side(side, seed, daemon, package) for side in order})
                print({side: seconds_to_solve(rounds[-1][side]) for side in SIDES}, flush=True)
        finally:
            daemon.stop()
    row = {"name": ENVIRONMENT}
    for side in SIDES:
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
