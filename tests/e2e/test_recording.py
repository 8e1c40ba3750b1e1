"""Tests recorded environments of gymnasium: what the daemon stored is what environments without recording do."""

import pathlib
import unittest

import gymnasium
import numpy
from gymnasium.vector import AutoresetMode

import genesis
import harness
from replay_reader import stored

STEPS, SEED = 450, 5
COLUMNS = ("observations", "actions", "next_observations", "rewards", "flags")


def episodes_of(columns):
    """Returns the episodes in an order that does not depend on that of their ends."""
    ends = numpy.flatnonzero(columns["flags"]) + 1
    parts = [{name: column[begin:end] for name, column in columns.items()} for begin, end in zip([0, *ends[:-1]], ends)]
    return sorted(parts, key=lambda part: part["observations"][0].tolist())


class Mutating(gymnasium.Wrapper):
    """An environment that returns the same array at each step, as some do."""

    def reset(self, **options):
        self.same, info = super().reset(**options)
        return self.same, info

    def step(self, action):
        observation, *rest = super().step(action)
        self.same[:] = observation
        return self.same, *rest


class Images(gymnasium.Env):
    """An environment of small images, which it draws into the same array."""

    observation_space, action_space = gymnasium.spaces.Box(0, 255, (8, 6, 3), numpy.uint8), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.image = 20 + self.np_random.integers(10), numpy.zeros((8, 6, 3), "u1")
        return self.image, {}

    def step(self, action):
        self.left -= 1
        self.image[:] = self.np_random.integers(0, 256, self.image.shape, "u1")
        return self.image, float(action), self.left == 0, False, {}


class RecordingTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.client = genesis.Client(self.daemon.grpc)
        self.addCleanup(self.client.close)

    def stored(self, name):
        return stored(pathlib.Path(self.data_dir) / "datasets" / name)

    def expect_episodes(self, columns, wanted):
        """Checks the stored columns against lists of (observation, action, reward, next observation, flag) of episodes."""
        found = episodes_of(columns)
        wanted = sorted(wanted, key=lambda episode: numpy.float32(episode[0][0]).tolist())
        self.assertEqual([len(part["rewards"]) for part in found], [len(episode) for episode in wanted])
        for part, episode in zip(found, wanted):
            for place, name in enumerate(("observations", "actions", "rewards", "next_observations", "flags")):
                numpy.testing.assert_array_equal(part[name], numpy.array([row[place] for row in episode], "<u4" if name == "flags" else "<f4"), name)

    def test_episodes_of_one_environment_are_stored_as_they_were(self):
        env = self.client.record(Mutating(gymnasium.make("Pendulum-v1", max_episode_steps=90)), "pendulum", capacity=10_000)
        twin, generator, wanted = gymnasium.make("Pendulum-v1", max_episode_steps=90), numpy.random.default_rng(SEED), []
        for number in range(5):
            env.reset(seed=number)
            before, _ = twin.reset(seed=number)
            wanted.append([])
            over = False
            while not over and len(wanted[-1]) < 20 + 20 * number:  # All but the last one are cut off by a reset.
                action = generator.uniform(-2, 2, 1).astype("float32")
                env.step(action)
                after, reward, terminated, truncated, _ = twin.step(action)
                wanted[-1].append((before, action, reward, after, 2 * truncated))
                before, over = after, terminated or truncated
            wanted[-1][-1] = (*wanted[-1][-1][:4], 2)
        env.close()
        self.expect_episodes(self.stored("pendulum"), wanted)

    def test_images_are_stored_as_they_were(self):
        env = self.client.record(Images(), "images")
        twin, wanted = Images(), []
        for seed in range(3):
            env.reset(seed=seed)
            before, over = twin.reset(seed=seed)[0].copy(), False
            while not over:
                action = seed % 2
                env.step(action)
                after, _, over, _, _ = twin.step(action)
                wanted.append((before, numpy.eye(2)[action], after.copy(), over))
                before = after.copy()
        env.close()
        columns = self.stored("images")
        self.assertEqual(columns["observations"].dtype, numpy.uint8)
        for place, name in enumerate(("observations", "actions", "next_observations", "flags")):
            numpy.testing.assert_array_equal(columns[name], numpy.array([row[place] for row in wanted]), name)

    def test_a_discrete_action_is_one_hot_and_the_buffer_is_trained_on(self):
        env = self.client.record(gymnasium.make("CartPole-v1"), "cartpole")
        env.action_space.seed(SEED)
        for number in range(10):
            env.reset(seed=number)
            while not any(env.step(env.action_space.sample())[2:4]):
                pass
        env.close()
        columns = self.stored("cartpole")
        self.assertEqual(columns["actions"].shape[1], 2)
        self.assertEqual(set(map(tuple, columns["actions"].tolist())), {(0.0, 1.0), (1.0, 0.0)})
        self.assertEqual(set(columns["flags"].tolist()), {0, 1})
        self.client.submit({"model": {"world_model": {"hidden_size": 16}}, "dataset": {"replay": {"path": "cartpole"}},
                            "training": {"max_steps": 20}}).watch(progress=False)

    def test_environments_in_a_vector_are_stored_as_each_alone(self):
        count = 3
        for mode in AutoresetMode:
            with self.subTest(mode):
                name = mode.name.lower().replace("_", "-")
                envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=40)] * count, autoreset_mode=mode)
                env = self.client.record(envs, name)
                twins = [gymnasium.make("CartPole-v1", max_episode_steps=40) for _ in range(count)]
                wanted, generator = [], numpy.random.default_rng(SEED)
                env.reset(seed=SEED)
                open_episodes = [[] for _ in twins]
                before = [twin.reset(seed=SEED + number)[0] for number, twin in enumerate(twins)]
                resets = [False] * count
                for _ in range(STEPS):
                    actions = generator.integers(0, 2, count)
                    env.step(actions)
                    for number, twin in enumerate(twins):
                        if resets[number]:
                            before[number], resets[number] = twin.reset()[0], False
                            continue
                        after, reward, terminated, truncated, _ = twin.step(actions[number])
                        open_episodes[number].append((before[number], numpy.eye(2)[actions[number]], reward, after, terminated + 2 * (truncated and not terminated)))
                        before[number] = after
                        if terminated or truncated:
                            wanted.append(open_episodes[number])
                            open_episodes[number] = []
                            resets[number] = mode == AutoresetMode.NEXT_STEP
                            if mode == AutoresetMode.SAME_STEP:
                                before[number] = twin.reset()[0]
                    ended = numpy.array([not each for each in open_episodes])
                    if mode == AutoresetMode.DISABLED and ended.any():
                        env.reset(options={"reset_mask": ended})
                        for number in numpy.flatnonzero(ended):
                            before[number] = twins[number].reset()[0]
                env.close()
                for episode in filter(None, open_episodes):
                    wanted.append([*episode[:-1], (*episode[-1][:4], 2)])
                self.assertGreater(len(wanted), 3 * count)
                self.expect_episodes(self.stored(name), wanted)

    def test_rows_of_many_transitions_are_stored_in_their_order(self):
        generator = numpy.random.default_rng(SEED)
        count, size = 30_000, 40  # Several requests.
        observations, actions = generator.normal(size=(count + 1, size)).astype("float32"), generator.normal(size=(count, 2)).astype("float32")
        rewards, ends = generator.normal(size=count).astype("float32"), generator.random(count) < 0.01
        with self.client.append("rows", capacity=100_000) as buffer:
            for begin in range(0, count, 10_000):
                part = slice(begin, begin + 10_000)
                buffer.extend(observations[part], actions[part], rewards[part], observations[1:][part], ends[part])
        self.assertEqual(buffer.transitions, count)
        flags = ends.astype("<u4")
        flags[-1] = flags[-1] or 2
        columns = self.stored("rows")
        for name, wanted in zip(COLUMNS, (observations[:-1], actions, observations[1:], rewards, flags)):
            numpy.testing.assert_array_equal(columns[name], wanted, name)

    def test_rows_that_do_not_belong_together_are_refused(self):
        buffer, rows = self.client.append("refused"), numpy.zeros((4, 3))
        for given, words in (((rows, rows, [0.0] * 3, rows, [0] * 4), "observations has 4 rows and rewards 3"),
                             ((rows, rows, [0.0] * 4, rows, [0] * 5), "terminals has 5 rows and rewards 4"),
                             ((rows, rows, rows, rows, [0] * 4), "rewards has 12 numbers in 4 rows"),
                             (([[1.0], [1.0], [1.0], []], rows, [0.0] * 4, rows, [0] * 4), "observations has 3 numbers in 4 rows"),
                             ((rows, rows, [0.0] * 4, rows[:, :2], [0] * 4), "accepted: 3, 3 and 3"),
                             ((rows, rows, [0.0, "much", 0.0, 0.0], rows, [0] * 4), "rewards is 'much'")):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                buffer.extend(*given)
            self.assertIn(words, str(caught.exception))
        buffer.extend(rows, rows, [0.0] * 4, rows, [0, 0, 0, 1])
        self.assertEqual(buffer.transitions, 4)

    def test_an_episode_that_is_refused_does_not_hold_back_later_ones(self):
        buffer = self.client.append("finite")
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "observations.0. is nan"):
            buffer.add([float("nan")], [0.0], 0.0, [1.0], True)
        buffer.add([1.0], [0.0], 0.0, [1.0], True)
        rows = numpy.zeros((700_000, 1), "float32")  # Several requests, of which the second is refused.
        ends = numpy.zeros(len(rows), dtype=bool)
        ends[99_999::100_000] = True
        rows[150_000] = numpy.inf
        with self.assertRaisesRegex(genesis.InvalidArgumentError, "is inf"):
            buffer.extend(rows, rows, rows[:, 0], numpy.zeros_like(rows), ends)
        self.assertEqual(buffer.transitions, 600_001)
        self.assertEqual(len(self.stored("finite")["rewards"]), 600_001)

    def test_what_is_no_environment_is_refused(self):
        graph = gymnasium.make("CartPole-v1")
        graph.observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
        for env, words in ((object(), "env has the type object; accepted: a gymnasium.Env"), (graph, "the observation space is Sequence(Discrete(3)")):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                self.client.record(env, "none")
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
