"""Tests which counts the guard accepts, without running a program."""

import contextlib
import io
import unittest

import guard

RECORDED = {"step": {"instructions": 1000.0, "allocations": 0.0}, "get_job": {"instructions": 50.0, "allocations": 20.0}}


class Check(unittest.TestCase):
    def worse(self, **changes):
        found = {path: {**figures, **changes.get(path, {})} for path, figures in RECORDED.items()}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            worse = guard.check(found, RECORDED)
        self.assertEqual(len(printed.getvalue().splitlines()), 4)
        return worse

    def test_what_is_as_recorded_or_better_is_accepted(self):
        self.assertEqual(self.worse(), [])
        self.assertEqual(self.worse(step={"instructions": 1.0}), [])
        self.assertEqual(self.worse(step={"instructions": 1099.0}), [])

    def test_more_instructions_are_refused(self):
        self.assertEqual(self.worse(step={"instructions": 1101.0}),
                         ["step takes 1101.0 instructions a time; recorded: 1000.0; accepted: 1.1 times that"])

    def test_one_more_allocation_is_refused(self):
        self.assertEqual(len(self.worse(step={"allocations": 1.0})), 1)
        self.assertEqual(len(self.worse(get_job={"allocations": 21.0})), 1)


if __name__ == "__main__":
    unittest.main()
