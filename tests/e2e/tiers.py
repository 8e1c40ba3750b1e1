"""Selects the tests of a Python file by cost: those of the gate, which each change must pass, or the nightly ones, which
deploy/test.sh --all adds.

GENESIS_TIER is "gate" or "nightly". If it is not set, all tests run."""

import os
import unittest

# Prefix of the reason if harness.not_run skips a test.
NOT_RUN = "NOT RUN: "
TIER = os.environ.get("GENESIS_TIER", "")


def nightly(test):
    """Decorates a method or class that runs only at night."""
    test.nightly = True
    return test


def runs_now(test: unittest.TestCase) -> bool:
    """Returns whether the test belongs to the current tier."""
    method = getattr(type(test), test._testMethodName, None)
    at_night = getattr(type(test), "nightly", False) or getattr(method, "nightly", False)
    return not TIER or at_night == (TIER == "nightly")


def select(suite: unittest.TestSuite) -> unittest.TestSuite:
    """Returns the tests of the suite that run now. The failure of a file that cannot be imported is kept."""
    chosen = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            chosen.addTest(select(test))
        elif runs_now(test):
            chosen.addTest(test)
    return chosen
