"""Tests the check that a compiled package must pass before it is installed."""

import unittest

import torch

import compiled_job  # noqa: F401 - sets the path of the scripts.
import step

GRADIENTS = [torch.full((16,), 0.5), torch.arange(1.0, 17.0), torch.full((4,), 3.0)]
INPUTS = [torch.tensor(1.0), *(torch.zeros_like(gradient) for gradient in GRADIENTS)]


def described(mode):
    return {"mode": mode, "parameters": [{"name": name} for name in "abc"], "buffers": []}


def giving(*errors):
    """Returns a step whose gradients have the given relative errors."""
    def run(scale, *_):
        return (torch.tensor(2.0), *(scale * gradient * (1 + error)
                                     for gradient, error in zip(GRADIENTS, errors, strict=True)))
    return run


def check(mode, twin, package):
    reference = step.run(giving(0, 0, 0), INPUTS, described(mode))
    return step.check_package(giving(*package), giving(*twin), described(mode), INPUTS, reference)


class PackageCheckTest(unittest.TestCase):
    def test_accepts_what_rounds_as_the_twin_does(self):
        self.assertLess(check("MIXED_BF16", (0.01, 0.01, 0.01), (-0.01, 0.02, 0.01)), 1)

    def test_does_not_ask_for_the_twins_luck(self):
        self.assertLess(check("MIXED_BF16", (0.01, 0.0001, 0.01), (0.01, 0.015, 0.01)), 1)

    def test_refuses_a_gradient_that_is_wrong(self):
        with self.assertRaisesRegex(step.StepError, "gradient of b differs from the twin's by"):
            check("MIXED_BF16", (0.01, 0.0001, 0.01), (0.01, 0.05, 0.01))

    def test_refuses_numbers_that_are_not_finite(self):
        for mode in ("FP32", "MIXED_BF16"):
            for number in ("nan", "inf"):
                with self.assertRaisesRegex(step.StepError, "package's gradient of c is not finite where the twin's is"):
                    check(mode, (0.01, 0.01, 0.01), (0.01, 0.01, float(number)))
                with self.assertRaisesRegex(step.StepError, "the gradient of c is not finite on a batch of random numbers"):
                    check(mode, (0.01, 0.01, float(number)), (0.01, 0.01, float(number)))

    def test_a_mask_may_be_infinite(self):
        description = {"mode": "FP32", "parameters": [{"name": "a"}], "buffers": [{"name": "mask"}]}
        inputs = [torch.tensor(1.0), torch.zeros(3), torch.tensor([0.0, -torch.inf, 0.0])]

        def step_of(change):
            def run(scale, weight, mask):
                mask.copy_(change(mask))
                return torch.tensor(2.0), scale * torch.ones(3)
            return run

        kept = step_of(lambda mask: mask)
        reference = step.run(kept, inputs, description)
        self.assertLess(step.check_package(kept, kept, description, inputs, reference), 1)
        for change in (lambda mask: mask + 1, lambda mask: -mask, lambda mask: mask * 0):
            with self.assertRaisesRegex(step.StepError, "the package's buffer mask"):
                step.check_package(step_of(change), kept, description, inputs, reference)

    def test_asks_for_the_same_numbers_in_fp32(self):
        self.assertLess(check("FP32", (0, 0, 0), (1e-6, 0, 0)), 1)
        with self.assertRaisesRegex(step.StepError, "gradient of a differs"):
            check("FP32", (0, 0, 0), (1e-3, 0, 0))

    def test_compares_a_model_whose_gradients_are_all_zero(self):
        zero = [torch.tensor(1.0), torch.zeros(3)]
        description = {"mode": "MIXED_BF16", "parameters": [{"name": "a"}], "buffers": []}

        def nothing(scale, *_):
            return torch.tensor(0.0), torch.zeros(3)

        reference = step.run(nothing, zero, description)
        self.assertEqual(step.check_package(nothing, nothing, description, zero, reference), 0)


if __name__ == "__main__":
    unittest.main()
