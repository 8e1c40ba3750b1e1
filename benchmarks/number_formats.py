"""Measures how much FP16 and BF16 lose of the gradients of a real model, for docs/mixed_precision.md.

A world model with two hidden layers of 128 learns Pendulum-v1 in FP32 with torch in Python. At every 50th step its gradients are rounded to
both formats."""

import pathlib
import sys

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 1000
FORMATS = {"FP16": torch.float16, "BF16": torch.bfloat16}


def batches():
    recorded = numpy.load(ROOT / "examples/trajectories/pendulum.npz")
    observations = torch.tensor(recorded["observations"], dtype=torch.float32)
    actions = torch.tensor(recorded["actions"], dtype=torch.float32).reshape(len(observations), -1)
    following = torch.tensor(recorded["next_observations"], dtype=torch.float32)
    inputs = torch.cat([observations, actions], 1)
    generator = torch.Generator().manual_seed(1)
    while True:
        rows = torch.randint(len(inputs), (256,), generator=generator)
        yield inputs[rows], following[rows]


def gradients_of_a_training():
    torch.manual_seed(1)
    data = batches()
    inputs, targets = next(data)
    model = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], 128), torch.nn.SiLU(), torch.nn.Linear(128, 128),
        torch.nn.SiLU(), torch.nn.Linear(128, targets.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for step in range(STEPS):
        inputs, targets = next(data)
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        if step % 50 == 0:
            seen.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        optimizer.step()
    return torch.cat(seen)


def describe_formats():
    print(f"{'format':8}{'largest':>12}{'smallest normal':>18}{'smallest':>12}{'unit roundoff':>16}")
    for name, kind in {**FORMATS, "FP32": torch.float32}.items():
        info = torch.finfo(kind)
        print(f"{name:8}{info.max:12.4g}{info.smallest_normal:18.4g}"
              f"{info.smallest_normal * info.eps:12.4g}{info.eps / 2:16.4g}")


def lost(gradients, kind, scale):
    """Returns the fractions of entries that become zero and that become zero or subnormal, and whether any entry overflows."""
    held = (gradients * scale).to(kind)
    flushed = (held == 0).double().mean()
    tiny = (held.abs().float() < torch.finfo(kind).smallest_normal).double().mean()
    return flushed, tiny, bool(held.isinf().any())


def main():
    describe_formats()
    gradients = gradients_of_a_training()
    gradients = gradients[gradients != 0]
    magnitudes = gradients.abs().double().log2()
    print(f"\n{len(gradients):,} gradients that are not zero: 2^{magnitudes.min():.0f} to "
          f"2^{magnitudes.max():.0f}, median 2^{magnitudes.median():.0f}\n")
    print(f"{'format':8}{'scale':>10}{'lost to zero':>16}{'below normal':>16}{'overflow':>10}")
    for name, kind in FORMATS.items():
        for power in ((0, 8, 16, 20, 24) if name == "FP16" else (0,)):
            flushed, tiny, overflows = lost(gradients, kind, 2.0 ** power)
            print(f"{name:8}{'2^' + str(power):>10}{flushed:16.3%}{tiny:16.3%}"
                  f"{'yes' if overflows else 'no':>10}")
    print("\nerror of a product of 256 x 256 matrices of unit normal numbers, inputs rounded, sums in "
          "FP32, beside FP64, relative to its norm:")
    torch.manual_seed(2)
    left, right = torch.randn(2, 256, 256, dtype=torch.float64)
    exact = left @ right
    for name, kind in {**FORMATS, "FP32": torch.float32}.items():
        product = left.to(kind).float() @ right.to(kind).float()
        print(f"{name:8}{float((product.double() - exact).norm() / exact.norm()):12.2e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
