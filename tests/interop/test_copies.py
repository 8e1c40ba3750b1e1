"""Tests that an export which uses several processors has the same result as on one, whatever happens to the copies of its process."""

import os
import pathlib
import signal
import tempfile
import threading
import unittest
import warnings
import zipfile
from unittest import mock

import tiers
import torch

import genesis
from genesis.exporting import copies

HERE = os.getpid()


def in_copies(count):
    """Makes `run` use this number of copies, whatever the machine has."""
    return mock.patch.object(copies, "_count", lambda most: min(most, count))


class Begun:
    """An event that a copy of this process sets."""

    def __init__(self):
        self._reading, self._writing = os.pipe()

    def set(self):
        os.write(self._writing, b".")

    def wait(self):
        os.read(self._reading, 1)


class CopiesTest(unittest.TestCase):
    def setUp(self):
        self.begun = Begun()

    def run_one(self, function):
        """Returns the outcome of a function that a copy begins, and the processes in which it ran."""
        ran = pathlib.Path(tempfile.mkdtemp()) / "ran"

        def noted():
            with ran.open("a") as file:
                file.write(f"{os.getpid()}\n")
            self.begun.set()
            return function()

        with in_copies(1):
            outcome = copies.run(self.begun.wait, {"other": noted}, lambda text: None)["other"]
        self.assert_no_child()
        return outcome, [int(line) for line in ran.read_text().split()]

    def assert_no_child(self):
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_the_result_of_a_copy_comes_back(self):
        outcome, (process,) = self.run_one(lambda: {"weights": torch.arange(5, dtype=torch.bfloat16), "records": {"a": b"\0" * 3_000_000}})
        self.assertNotEqual(process, HERE)
        self.assertTrue(torch.equal(outcome.get()["weights"], torch.arange(5, dtype=torch.bfloat16)))
        self.assertEqual(len(outcome.get()["records"]["a"]), 3_000_000)

    def test_its_error_comes_back(self):
        def refuse():
            raise genesis.ExportError("the module cannot be exported: é")
        outcome, (process,) = self.run_one(refuse)
        self.assertNotEqual(process, HERE)
        with self.assertRaisesRegex(genesis.ExportError, "cannot be exported: é"):
            outcome.get()

    def test_its_warnings_are_repeated(self):
        def warn():
            warnings.warn("the loss does not add up", UserWarning)
        with self.assertWarnsRegex(UserWarning, "does not add up") as caught:
            self.run_one(warn)
        self.assertEqual(pathlib.Path(caught.filename).name, "test_copies.py")

    def test_one_that_is_killed_is_replaced(self):
        def die():
            if os.getpid() != HERE:
                os.kill(os.getpid(), signal.SIGKILL)
            return "here"
        outcome, processes = self.run_one(die)
        self.assertEqual(outcome.get(), "here")
        self.assertEqual(len(processes), 2)
        self.assertEqual(processes[1], HERE)

    def test_one_that_does_not_end_is_replaced(self):
        def hang():
            if os.getpid() != HERE:
                signal.pause()
            return "here"
        with mock.patch.multiple(copies, LEAST_PATIENCE=0.1, PATIENCE=0.0):
            outcome, processes = self.run_one(hang)
        self.assertEqual(outcome.get(), "here")
        self.assertEqual(processes[1], HERE)

    def test_an_unexpected_error_is_raised_here(self):
        with self.assertRaises(ZeroDivisionError):
            self.run_one(lambda: 1 / 0)
        self.assert_no_child()

    def test_an_error_of_this_process_ends_the_copies(self):
        def refuse():
            self.begun.wait()
            raise genesis.ExportError("in FP32")

        def hang():
            self.begun.set()
            signal.pause()
        with in_copies(1), self.assertRaisesRegex(genesis.ExportError, "in FP32"):
            copies.run(refuse, {"other": hang}, lambda text: None)
        self.assert_no_child()

    def test_each_function_runs_once_whoever_runs_it(self):
        for count in (0, 1, 3):
            with in_copies(count):
                outcomes = copies.run(lambda: None, {str(each): lambda each=each: each ** 2 for each in range(7)}, lambda text: None)
            self.assertEqual({name: outcome.get() for name, outcome in outcomes.items()}, {str(each): each ** 2 for each in range(7)})
            self.assert_no_child()

    def test_one_processor_makes_no_copy(self):
        with mock.patch.object(os, "sched_getaffinity", lambda process: {0}):
            self.assertEqual(copies._count(4), 0)

    def test_cuda_makes_no_copy(self):
        with mock.patch.object(os, "sched_getaffinity", lambda process: set(range(8))):
            self.assertGreater(copies._count(4), 0)
            with mock.patch.object(torch.cuda, "is_available", lambda: True):
                self.assertEqual(copies._count(4), 0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.GRU(6, 8, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.recurrent(x)[0][:, -1]) * torch.tensor([0.5] * 8))


@tiers.nightly
class ExportTest(unittest.TestCase):
    def records(self, count):
        torch.manual_seed(0)
        batch = {"x": torch.randn(6, 4, 6), "target": torch.randint(0, 3, (6,))}
        with tempfile.TemporaryDirectory() as folder, in_copies(count):
            path = genesis.export(Net(), batch, pathlib.Path(folder) / "net.pt2", loss="cross_entropy")
            with zipfile.ZipFile(path) as archive:
                return {name: archive.read(name) for name in archive.namelist()}

    def test_the_file_is_the_same_on_any_number_of_processors(self):
        alone = self.records(0)
        self.assertEqual(self.records(1), alone)
        self.assertEqual(self.records(3), alone)

    def test_in_a_thread_of_the_caller(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(self.records(2)))
        thread.start()
        thread.join()
        self.assertEqual(found, [self.records(0)])
