"""Tests that GradScaler and torch.amp.GradScaler agree bit for bit over a long sequence of overflows."""

import random
import struct
import subprocess
import unittest

import torch

import twin


def torch_scales(settings, script, device="cpu"):
    scale, growth, backoff, interval = settings
    scaler = torch.amp.GradScaler(device, init_scale=scale, growth_factor=growth,
                                  backoff_factor=backoff, growth_interval=interval)
    parameter = torch.nn.Parameter(torch.zeros(1, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scales = []
    for overflow in script:
        scaler.scale(parameter.sum())  # Creates the scaler's tensors.
        parameter.grad = torch.tensor([float("inf") if overflow else 1.0], device=device)
        scaler.step(optimizer)
        scaler.update()
        scales.append(struct.pack(">f", scaler.get_scale()).hex())
    return scales


class GradScalerTest(unittest.TestCase):
    def compare(self, settings, rate):
        chooser = random.Random(1)
        script = [int(chooser.random() < rate) for _ in range(5000)]
        text = " ".join(map(str, [*settings, *script]))
        ours = subprocess.run([twin.SCALER_DRIVER], input=text, capture_output=True, text=True,
                              check=True).stdout.split()
        self.assertEqual(ours, torch_scales(settings, script))

    def test_defaults(self):
        self.compare((65536.0, 2.0, 0.5, 2000), 0.0005)

    def test_frequent_overflows_and_odd_factors(self):
        self.compare((1000.0, 1.7, 0.31, 3), 0.2)

    def test_growth_up_to_the_largest_float(self):
        self.compare((65536.0, 2.0, 0.5, 5), 0.001)


if __name__ == "__main__":
    unittest.main()
