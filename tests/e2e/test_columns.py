"""Tests replay buffers with declared columns: what numpy holds is what the files hold, whatever breaks in between."""

import pathlib
import threading
import unittest

import numpy
from replay_reader import stored

import genesis
import harness
from genesis import Column
from genesis.training.v1 import training_service_pb2 as api

# Seed of the random numbers.
SEED = 11
RECORDERS, EPISODES = 16, 20


def numbers(rows, seed=SEED):
    """Returns the columns of transitions with every type, and their declaration."""
    random = numpy.random.default_rng(seed)
    normal = random.normal(size=(rows + 1, 3))
    images = random.integers(0, 256, (rows + 1, 8, 8, 3), "u1")
    values = {"observations": images[:-1], "actions": random.integers(-5, 5, rows), "next_observations": images[1:],
              "log_probability": normal[1:, 0], "advantage": normal[:-1, 1].astype("f2"), "state": normal[:-1], "mask": random.random((rows, 4)) < 0.5,
              "task": random.integers(0, 9, (rows, 2)).astype("i4"),
              "tokens": [random.integers(0, 1000, length).astype("i4") for length in random.integers(0, 7, rows)],
              "text": [bytes(random.integers(0, 256, length, "u1")) for length in random.integers(0, 9, rows)]}
    columns = {"observations": Column("uint8", (8, 8, 3)), "actions": Column("int64"), "next_observations": Column("uint8", (8, 8, 3)),
               "log_probability": Column("float32"), "advantage": Column("float16"), "state": Column("float64", 3), "mask": Column("bool", (4,)),
               "task": Column("int32", (2,)), "tokens": Column("int32", max_length=6), "text": Column("bytes", max_length=8)}
    return values, columns


class Columns(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start()
        self.client = self.connect()

    def connect(self):
        client = genesis.Client(self.daemon.grpc)
        self.addCleanup(client.close)
        return client

    def folder(self, name):
        return pathlib.Path(self.data_dir) / "datasets" / name

    def expect(self, name, values, rewards):
        found = stored(self.folder(name))
        self.assertEqual(found.keys(), values.keys() | {"rewards", "flags"})
        numpy.testing.assert_array_equal(found["rewards"], rewards)
        for column, rows in values.items():
            if column == "text":
                self.assertEqual([each.tobytes() for each in found[column]], rows)
            elif column == "tokens":
                self.assertEqual([each.tolist() for each in found[column]], [each.tolist() for each in rows])
            else:
                wanted = rows.astype("f4") if column == "log_probability" else rows
                self.assertEqual(found[column].dtype, wanted.dtype, column)
                numpy.testing.assert_array_equal(found[column], wanted, column)

    def test_every_type_is_stored_as_it_was(self):
        rows = 300
        values, columns = numbers(rows)
        rewards = numpy.arange(rows, dtype="f4")
        ends = numpy.arange(rows) % 50 == 49
        with self.client.append("typed", columns=columns) as buffer:
            whole = {name: each[:200] for name, each in values.items()}
            buffer.extend(rewards=rewards[:200], terminals=ends[:200], **whole)
            for i in range(200, rows):  # An array and single transitions are the same rows.
                row = {name: each[i] for name, each in values.items()}
                buffer.add(row.pop("observations"), row.pop("actions"), rewards[i], row.pop("next_observations"), ends[i], **row)
        self.assertEqual((buffer.transitions, buffer.buffer_transitions), (rows, rows))
        self.expect("typed", values, rewards)

    def test_what_is_not_declared_is_inferred(self):
        images = numpy.zeros((4, 5, 5), "u1")
        with self.client.append("inferred") as buffer:
            buffer.extend(images, numpy.zeros((4, 2)), [0.0] * 4, images, [0, 0, 0, 1], log_probability=numpy.ones(4), task=[1, 2, 3, 4], done=[True] * 4)
        found = stored(self.folder("inferred"))
        self.assertEqual({name: (each.dtype, each.shape[1:]) for name, each in found.items()},
                         {"observations": ("uint8", (5, 5)), "actions": ("float32", (2,)), "next_observations": ("uint8", (5, 5)),
                          "log_probability": ("float32", ()), "task": ("int64", ()), "done": ("bool", ()), "rewards": ("float32", ()),
                          "flags": ("uint32", ())})
        with self.assertRaisesRegex(genesis.FailedPreconditionError, r"column actions is float32 \[2\] in this buffer and float32 \[3\] in the request"):
            self.client.append("inferred").extend(images, numpy.zeros((4, 3)), [0.0] * 4, images, [0, 0, 0, 1], log_probability=numpy.ones(4),
                                                  task=[1, 2, 3, 4], done=[True] * 4)

    def test_an_episode_has_any_length(self):
        rows = 6000  # 150 MiB in one batch.
        images = numpy.random.default_rng(SEED).integers(0, 256, (rows + 1, 64, 64, 3), "u1")
        ends = numpy.arange(rows) == rows - 1
        before = self.resident()
        with self.client.append("long") as buffer:
            buffer.extend(images[:-1], numpy.zeros((rows, 1)), numpy.zeros(rows), images[1:], ends)
            grown = self.resident() - before
            self.assertLess(grown, 64 << 20)
            print(f"{images.nbytes * 2 >> 20} MiB in one batch: the daemon grew by {grown >> 20} MiB")
        found = stored(self.folder("long"))
        self.assertTrue(numpy.array_equal(found["observations"], images[:-1]))
        self.assertTrue(numpy.array_equal(found["next_observations"], images[1:]))
        self.assertEqual(found["flags"].tolist(), [0] * (rows - 1) + [1])

    def resident(self):
        """Returns the largest resident size that the daemon had, in bytes."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def request(self, name="raw", batch="b", rows=2, **fields):
        """Returns a message with a column x of uint8 [2] and one of up to 3 tokens."""
        message = api.AppendTrajectoriesRequest(dataset=name, batch_id=batch, rewards=[0] * rows, **fields)
        message.columns.add(name="x", type=api.COLUMN_TYPE_UINT8, shape=[2])
        message.columns.add(name="tokens", type=api.COLUMN_TYPE_INT32, max_length=3)
        message.data.add(name="x", values=bytes(2 * rows))
        message.data.add(name="tokens", values=bytes(4 * rows), lengths=[1] * rows)
        return message

    def send(self, *messages):
        return self.client.connection.send("AppendTrajectories", messages)

    def test_faults_name_column_row_value_and_what_is_accepted(self):
        def changed(change):
            message = self.request()
            change(message)
            return message

        place = 'batch "b": '
        for change, words in (
                (lambda m: m.data.add(name="y", values=b"1"), place + 'column "y" is not in this buffer; accepted: tokens, x'),
                (lambda m: m.data.pop(), place + "column tokens is missing; accepted: tokens int32 [<=3]"),
                (lambda m: m.data.add(name="x", values=bytes(4)), place + "column x is given 2 times; accepted: once"),
                (lambda m: setattr(m.data[0], "values", b"123"), place + "column x has 3 bytes; accepted: 4 (2 transitions x 2 bytes of x uint8 [2])"),
                (lambda m: m.data[1].lengths.append(1), place + "column tokens has 3 lengths; accepted: 2, one for each transition"),
                (lambda m: m.data[1].lengths.__setitem__(1, 4), place + "transition 1: tokens has length 4; accepted: 0 to 3"),
                (lambda m: m.observations.append(1), place + 'column "observations" is not in this buffer'),
                (lambda m: m.rewards.__setitem__(1, float("nan")), place + "transition 1: reward is nan; every value must be finite"),
                (lambda m: m.columns.add(name="Big"), 'column "Big": type is required'),
                (lambda m: m.columns.add(name="Big", type=1), 'column "Big": accepted as a name: a lower-case letter'),
                (lambda m: setattr(m, "action_size", 3), "observation_size and action_size conflict with columns"),
                (lambda m: m.ClearField("columns"), 'dataset "raw" is a new buffer; accepted: a first message that declares it')):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                self.send(changed(change))
            self.assertIn(words, str(caught.exception))
            self.assertFalse(self.folder("raw").exists())

    def test_what_is_no_column_is_refused_before_it_is_sent(self):
        for make, words in ((lambda: Column("uint8", "8"), "the shape and max_length of a column are '8' and 0; accepted: whole numbers"),
                            (lambda: Column("bytes", max_length=1.5), "accepted: whole numbers"),
                            (lambda: self.client.append("shop", columns={"rewards": Column()}), "columns has 'rewards', which every buffer has"),
                            (lambda: self.client.append("shop", columns={"task": "int32"}), "columns has 'int32' for 'task'; accepted: a genesis.Column")):
            with self.subTest(words), self.assertRaisesRegex(genesis.InvalidArgumentError, words):
                make()

    def test_a_later_append_may_leave_the_declaration_out(self):
        self.send(self.request())
        second, third = self.request(batch="c"), self.request(batch="d")
        second.ClearField("columns")
        del third.columns[:]
        self.assertEqual(self.send(second, third).buffer_transitions, 6)
        wide = self.request(batch="w")
        wide.columns[0].type = api.COLUMN_TYPE_INT32
        wide.data[0].values = bytes(16)
        with self.assertRaisesRegex(genesis.FailedPreconditionError, r"column x is uint8 \[2\] in this buffer and int32 \[2\] in the request"):
            self.send(wide)
        other = self.request(batch="e")
        other.columns[0].shape[:] = [3]
        with self.assertRaisesRegex(genesis.InvalidArgumentError, r"column x is uint8 \[2\] in this buffer and uint8 \[3\] in the request"):
            self.send(self.request(batch="f"), other)
        self.assertEqual(len(stored(self.folder("raw"))["x"]), 8)

    def test_a_batch_in_pieces_is_stored_whole_or_not_at_all(self):
        def pieces(batch, more):
            return [self.request(batch=batch, rows=rows, more=last) for rows, last in zip((2, 3, 1), more)]

        self.assertEqual(self.send(*pieces("a", (True, True, False))).appended_batches, 1)
        for messages, words in ((pieces("b", (True, True, True)), 'the stream ends inside batch "b", after 6 transitions; accepted: a last message'),
                                ([*pieces("b", (True,)), self.request(batch="c")], 'batch_id is "c"; accepted: "b", which the message before continues')):
            with self.subTest(words), self.assertRaises(genesis.InvalidArgumentError) as caught:
                self.send(*messages)
            self.assertIn(words, str(caught.exception))
        bad = pieces("b", (True, True, False))
        bad[2].data[1].lengths[0] = 9
        with self.assertRaisesRegex(genesis.InvalidArgumentError, 'batch "b": transition 5: tokens has length 9'):
            self.send(*bad)
        self.assertEqual(self.send(*pieces("a", (True, True, False))).repeated_batches, 1)
        self.assertEqual(self.send(*pieces("b", (True, True, False))).buffer_transitions, 12)

    def test_a_kill_inside_a_batch_leaves_nothing_of_it(self):
        self.send(self.request(batch="a"))

        def broken():
            yield self.request(batch="b", more=True)
            yield self.request(batch="b", more=True)
            self.daemon.kill()
            yield self.request(batch="b")

        with self.assertRaises(genesis.UnavailableError):
            self.client.connection.send("AppendTrajectories", broken())
        self.daemon = self.start()
        self.client = self.connect()
        self.assertEqual(len(stored(self.folder("raw"))["x"]), 2)
        self.assertEqual(list(self.folder("").glob(".part-*")), [])
        self.assertEqual(self.send(self.request(batch="b", more=True), self.request(batch="b")).buffer_transitions, 6)

    def test_recorders_side_by_side_lose_nothing(self):
        def record(number):
            client = self.connect()
            with client.append("shared") as buffer:
                for episode in range(EPISODES):
                    rows = 3 + (number + episode) % 5
                    if episode % 7 == 6:
                        rows = 120  # More than one message.
                    image = numpy.full((rows, 64, 64, 3), number, "u1")
                    step = numpy.arange(rows)
                    buffer.extend(image, numpy.full((rows, 1), episode), step, image, step == rows - 1, recorder=numpy.full(rows, number))
                sent[number] = buffer.transitions

        sent = {}
        recorders = [threading.Thread(target=record, args=(number,)) for number in range(RECORDERS)]
        for recorder in recorders:
            recorder.start()
        for recorder in recorders:
            recorder.join()
        self.assertEqual(len(sent), RECORDERS)
        found = stored(self.folder("shared"))
        self.assertEqual(len(found["rewards"]), sum(sent.values()))
        # Episodes are not mixed, and those of each recorder are in its order.
        ends = numpy.flatnonzero(found["flags"]) + 1
        episodes = {number: [] for number in range(RECORDERS)}
        for begin, end in zip([0, *ends[:-1]], ends):
            number = int(found["recorder"][begin])
            self.assertTrue((found["recorder"][begin:end] == number).all() and (found["observations"][begin:end] == number).all())
            self.assertEqual(found["rewards"][begin:end].tolist(), list(range(end - begin)))
            episodes[number].append(int(found["actions"][begin, 0]))
        self.assertEqual(episodes, {number: list(range(EPISODES)) for number in range(RECORDERS)})

    def test_a_module_follows_images(self):
        import torch

        class Sees(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Linear(4 * 4 * 3, 1)

            def forward(self, observations, rewards):
                return (self.head(observations.flatten(1).float() / 255).squeeze(1) - rewards).square().mean()

        batch = {"observations": torch.randint(0, 256, (4, 4, 4, 3), dtype=torch.uint8), "rewards": torch.randn(4)}
        genesis.export(Sees(), batch, self.folder("sees.pt2"))
        random = numpy.random.default_rng(SEED)

        def record(buffer):
            images = random.integers(0, 256, (50, 4, 4, 3), "u1")
            buffer.extend(images, numpy.zeros((50, 1)), images.mean((1, 2, 3)) / 255, images, numpy.arange(50) % 10 == 9)

        with self.client.append("seen") as buffer:
            record(buffer)
            job = self.client.submit({"model": {"exported": {"path": "sees.pt2"}}, "dataset": {"replay": {"path": "seen", "follow": True}},
                                      "training": {"max_steps": 10**12, "batch_size": 8}})
            harness.wait_for("a step", lambda: job.refresh().progress.step > 0)
            record(buffer)
            harness.wait_for("what was appended", lambda: job.refresh().progress.next_transition == 100)
        job.cancel()


if __name__ == "__main__":
    unittest.main()
