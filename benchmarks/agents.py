"""Compares examples/agents.py, whose agents act while the daemon trains their world model, with the same loop in one process of PyTorch, with
tensors as its replay buffer and with TorchRL's, where torchrl is installed: seconds until an environment is solved.

  benchmarks/run agents [--env ID] [--out DIR] [--rounds N] [--document docs/benchmarks/daemon.md] [--image docs/images/agents.png]

All have the same model, planner, data, learning rate and steps per transition, and the same cores. A round runs each once with its own seed, in an
order that reverses. Time begins with the process and includes imports. It is solved when the mean return of four episodes in a row is
high enough. Needs gymnasium and matplotlib, as the Python of the tests has them."""

import contextlib
import importlib.util
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import harness
import machine
import report
import spread
import torch

EXAMPLES = harness.SOURCE / "examples"
# Number of agents of each side; 0 for the loops in one process.
SIDES = {"daemon, 2 agents": 2, "daemon, 8 agents": 8, "one process": 0, "one process, TorchRL": 0}
IN_A_ROW, BATCH = 4, 256
RETURN = re.compile(r"return (-?\d+)$")


class Environment(typing.NamedTuple):
    """The return that solves an environment, and what a side may use for it."""

    solved: float
    episodes: int
    steps_of_a_transition: int


ENVIRONMENTS = {"Pendulum-v1": Environment(-250, 16, 2), "CartPole-v1": Environment(475, 40, 10)}
FIELDS = ("observation", "action", "change", "reward", "done")


class Tensors:
    """A replay buffer of tensors, which draws windows of consecutive transitions of an episode."""

    def __init__(self, window):
        self.window, self.columns, self.starts = window, {}, torch.empty(0, dtype=torch.int64)

    def add(self, episode):
        first = len(self.columns["done"]) if self.columns else 0
        self.starts = torch.cat([self.starts, torch.arange(first, first + len(episode["done"]) - self.window + 1)])
        self.columns = {name: torch.cat([self.columns[name], values]) if first else values for name, values in episode.items()}

    def sample(self):
        rows = self.starts[torch.randint(0, len(self.starts), (BATCH,))].unsqueeze(1) + torch.arange(self.window)
        return {name: column[rows] for name, column in self.columns.items()}


class TorchRl:
    """TorchRL's replay buffer with its sampler of slices."""

    def __init__(self, window):
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        from torchrl.data.replay_buffers.samplers import SliceSampler

        sampler = SliceSampler(slice_len=window, end_key="end", strict_length=True, cache_values=True)
        self.window, self.buffer = window, TensorDictReplayBuffer(storage=LazyTensorStorage(50000), sampler=sampler, batch_size=BATCH * window)

    def add(self, episode):
        from tensordict import TensorDict

        count = len(episode["done"])
        end = torch.arange(count).unsqueeze(1) == count - 1
        self.buffer.extend(TensorDict({**episode, "end": end}, [count]))

    def sample(self):
        return {name: values.view(BATCH, self.window, -1) for name, values in self.buffer.sample().items() if name in FIELDS}


def is_solved(returns, solved):
    """Returns whether the mean of the newest episodes is high enough."""
    return len(returns) >= IN_A_ROW and statistics.mean(returns[-IN_A_ROW:]) >= solved


def in_one_process(side, name, seed):
    """Acts and trains in turns until the environment is solved, and prints the returns."""
    sys.path[:0] = [str(EXAMPLES), str(harness.SOURCE / "trainer" / "compiled" / "python")]
    import agents
    import gymnasium
    import numpy
    from twins.world_model import WorldModel

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # Faster than two: the products are small.
    env, random, steps = gymnasium.make(name), numpy.random.default_rng(seed), agents.MODEL["rollout_steps"]
    model = WorldModel(env.observation_space.shape[0], gymnasium.spaces.flatdim(env.action_space), agents.MODEL["hidden_size"], agents.MODEL["latent_size"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    buffer = (TorchRl if side.endswith("TorchRL") else Tensors)(steps)

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
        """An environment that adds each of its episodes to the buffer."""

        def reset(self, **options):
            self.episode = []
            self.at, info = super().reset(**options)
            return self.at, info

        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            self.episode.append((self.at, gymnasium.spaces.flatten(self.action_space, action), observation - self.at, [reward], [terminated]))
            self.at = observation
            if terminated or truncated:
                columns = [torch.from_numpy(numpy.array(column, "float32")) for column in zip(*self.episode)]
                recorded.append(dict(zip(FIELDS, columns)))
                buffer.add(recorded[-1])
            return observation, reward, terminated, truncated, info

    env, recorded = Recorded(env), []
    agents.act_at_random(env, seed)
    for column in FIELDS[:-1]:
        values = torch.cat([episode[column] for episode in recorded])
        getattr(model, f"{column}_mean").copy_(values.mean(0))
        deviation = values.std(0)
        getattr(model, f"{column}_std").copy_(torch.where(deviation > 1e-6, deviation, 1))  # As the daemon normalises constants.
    trained, returns = sum(len(episode["done"]) for episode in recorded), []
    while len(returns) < ENVIRONMENTS[name].episodes and not is_solved(returns, ENVIRONMENTS[name].solved):
        for _ in range(trained * ENVIRONMENTS[name].steps_of_a_transition):
            found = model.loss(buffer.sample(), contextlib.nullcontext())
            optimizer.zero_grad()
            found.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        returns.append(agents.episode(env, predict, random, 1000 * seed + 500 + len(returns)))
        print(f"return {returns[-1]:.0f}", flush=True)
        trained = len(env.episode)


def returns_of(command, environment):
    """Runs a side. Returns (seconds, return) of each episode, in the order in which they ended."""
    begin, found, lines = time.monotonic(), [], []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
        for line in process.stdout:
            lines.append(line)
            if match := RETURN.search(line.rstrip()):
                found.append((time.monotonic() - begin, float(match[1])))
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{''.join(lines)[-3000:]}")
    return found


def seconds_to_solve(found, solved):
    """Returns the seconds until the environment is solved; None if it is never solved."""
    returns = [value for _, value in found]
    return next((seconds for end, (seconds, _) in enumerate(found, 1) if is_solved(returns[:end], solved)), None)


def run_side(side, name, seed, daemon, package):
    environment = harness.clean_environment({"GENESIS_SERVER": daemon.grpc, "PYTHONPATH": os.pathsep.join(
        filter(None, (package, str(harness.SOURCE / "tests" / "e2e"), os.environ.get("PYTHONPATH")))), "GENESIS_SOURCE": str(harness.SOURCE), "GENESIS_BIN": str(harness.BIN)})
    agents, wanted = SIDES[side], ENVIRONMENTS[name]
    if not agents:
        return returns_of([sys.executable, __file__, side, name, seed], environment)
    return returns_of([sys.executable, EXAMPLES / "agents.py", "--env", name, "--agents", agents, "--episodes", -(-wanted.episodes // agents), "--seed", seed,
                       "--samples-per-insert", BATCH * wanted.steps_of_a_transition], environment)


def draw(name, rounds, path):
    """Draws the returns against the time, a line for each seed."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 3.2), dpi=150)
    for side, colour in zip(rounds[0], ("#2f5fd0", "#5f9f6f", "#a06a00", "#a04060")):
        for number, each in enumerate(rounds):
            seconds, values = zip(*each[side])
            smooth = [statistics.mean(values[max(0, i - IN_A_ROW + 1):i + 1]) for i in range(len(values))]
            axes.plot(seconds, smooth, color=colour, alpha=0.75, linewidth=1.3, label=side if number == 0 else None)
    axes.axhline(ENVIRONMENTS[name].solved, color="#888888", linewidth=0.8, linestyle="--")
    axes.text(axes.get_xlim()[1], ENVIRONMENTS[name].solved, " solved", va="center", fontsize=8, color="#666666")
    axes.set(xlabel="seconds since the start", ylabel=f"return, mean of {IN_A_ROW} episodes", title=f"{name}, planned with a model that learns meanwhile")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def table(row):
    sides = [side for side in SIDES if side in row]
    lines = [f"| {row['name']} | {' | '.join(sides)} |", "| --- |" + " --- |" * len(sides)]
    for name, key, text in (("seconds until it is solved", "seconds", "{:.1f}"), ("episodes until then", "episodes", "{:.0f}")):
        cells = [f"{text} ({text} to {text})".format(*(row[side][key][part] for part in ("median", "low", "high"))) for side in sides]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("agents", __doc__, rounds=5)
    parser.add_argument("--env", choices=ENVIRONMENTS, default="Pendulum-v1")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    parser.add_argument("--image", type=pathlib.Path, help="file for the picture of the returns")
    options = parser.parse_args(words)
    facts = machine.facts(genesisd=machine.output_of(harness.BIN / "genesisd", "--version"))
    found = report.Report("agents", "Agents that act with what they train", facts, {"rounds": options.rounds})
    sides = [side for side in SIDES if importlib.util.find_spec("torchrl") or not side.endswith("TorchRL")]
    rounds, wanted = [], ENVIRONMENTS[options.env]
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        import python_package
        python_package.make_importable(folder)
        package = sys.path[0]
        daemon = harness.Daemon(pathlib.Path(folder) / "data")
        try:
            for seed in range(1, options.rounds + 1):
                rounds.append({side: run_side(side, options.env, seed, daemon, package) for side in (sides if seed % 2 else sides[::-1])})
                print({side: seconds_to_solve(rounds[-1][side], wanted.solved) for side in sides}, flush=True)
        finally:
            daemon.stop()
    row = {"name": options.env}
    for side in sides:
        solved = [seconds_to_solve(each[side], wanted.solved) for each in rounds]
        if None in solved:
            raise RuntimeError(f"{side} did not solve it with seed {solved.index(None) + 1}: {rounds[solved.index(None)][side]}")
        row[side] = {"seconds": spread.summary(solved),
                     "episodes": spread.summary([sum(at <= end for at, _ in each[side]) for each, end in zip(rounds, solved)])}
    found.add(row)
    found.text("Agents", table(row))
    found.write(options.out)
    if options.image:
        draw(options.env, rounds, options.image)
    if options.document:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        report.document(options.document, "agents", f"Measured {when} on {facts['processor']}, {facts['cores of this process']} cores, {options.rounds} seeds; "
                        f"medians (quartiles).\n\n{table(row)}")


if __name__ == "__main__":
    in_one_process(sys.argv[1], sys.argv[2], int(sys.argv[3]))
