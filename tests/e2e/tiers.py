"""Selects the tests of a Python file by cost: those of the gate, which each change passes, or the nightly ones, which
deploy/test.sh --all adds. GENESIS_TIER is "gate" or "nightly"; without it everything runs."""

import os
import typing
import unittest

# How harness.not_run begins the reason of a test that this machine forbids.
NOT_RUN = "NOT RUN: "
TIER = os.environ.get("GENESIS_TIER", "")
Case = typing.TypeVar("Case")


def nightly(test):
    """Decorates a method or class that only runs at night."""
    test.nightly = True
    return test


def share(cases: typing.Iterable[Case], gate: typing.Container[Case]) -> list[Case]:
    """Returns the cases of a matrix that run now; those in `gate` run in the gate, the others at night."""
    return [case for case in cases if not TIER or (case in gate) == (TIER == "gate")]


def runs_now(test: unittest.TestCase) -> bool:
    """Whether the tier has the test. A test that shares a matrix out is in both."""
    method = getattr(type(test), test._testMethodName, None)
    at_night = getattr(type(test), "nightly", False) or getattr(method, "nightly", False)
    shared = getattr(method, "shared", False) and not getattr(type(test), "nightly", False)
    return not TIER or shared or at_night == (TIER == "nightly")


def shared(test):
    """Decorates a method whose matrix `share` divides."""
    test.shared = True
    return test


def select(suite: unittest.TestSuite) -> unittest.TestSuite:
    """Returns the tests of the suite that run now. A file that cannot be imported stays."""
    chosen = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            chosen.addTest(select(test))
        elif runs_now(test):
            chosen.addTest(test)
    return chosen
