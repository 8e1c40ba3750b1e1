"""Runs unittest for CTest: python ctest_main.py TEST..., in the folder of the test.

Exit code: 0 if every test ran and passed; 1 if a test failed, or was skipped for another reason than this machine; 77, which CTest
reports as not run, if no test failed but this kernel or container forbids what a test needs (harness.not_run). The reasons are printed
for deploy/test.sh, which lists them.
"""

import os
import sys
import time
import unittest

NOT_RUN = 77
sys.path[:0] = [os.getcwd(), os.path.dirname(os.path.abspath(__file__))]

import tiers  # noqa: E402

# Seconds from which on the duration of a test is printed.
SLOW = 1.0


class Result(unittest.TextTestResult):
    """Prints the durations of slow tests."""

    def startTest(self, test):
        self._began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        seconds = time.monotonic() - self._began
        if seconds >= SLOW:
            self.stream.writeln(f"{seconds:7.1f} s  {test.id()}")


class Loader(unittest.TestLoader):
    """Loads only the tests of the current tier."""

    def loadTestsFromNames(self, names, module=None):
        return tiers.select(super().loadTestsFromNames(names, module))


def choose_math_functions(torch):
    """Does what trainer/kernels/math_functions.h does, for the torch that results are compared with."""
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype)
        for name in "acos asin atan cos erf erfc erfinv exp log log2 log10 sin sqrt tan tanh trunc".split():
            getattr(torch, name)(one)


class Program(unittest.TestProgram):
    """Runs the tests that the arguments name."""

    def runTests(self):
        if "torch" in sys.modules:
            choose_math_functions(sys.modules["torch"])
        super().runTests()


def main():
    runner = unittest.TextTestRunner(verbosity=0, resultclass=Result)
    result = Program(module=None, exit=False, testRunner=runner, testLoader=Loader()).result
    reasons = sorted({reason for _, reason in result.skipped})
    for reason in reasons:
        print(reason, file=sys.stderr)
    if not result.wasSuccessful() or not (result.testsRun or reasons):
        return 1
    if any(not reason.startswith(tiers.NOT_RUN) for reason in reasons):
        return 1
    return NOT_RUN if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
