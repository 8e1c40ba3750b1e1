"""Measures the maximum speed that torch reaches on this machine, with which a step is compared."""

import time

import torch


def rate(call, operations, seconds=0.25, synchronize=lambda: None):
    """Returns the operations per second of the fastest call within `seconds`, as an upper bound."""
    call()
    synchronize()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        synchronize()
        best = min(best, time.perf_counter() - begin)
    return operations / best


def matrix_rates(kind, sizes=(512, 1024, 2048), device="cpu", **timing):
    for size in sizes:
        left, right, out = (torch.randn(size, size, device=device).to(kind) for _ in range(3))
        yield rate(lambda: torch.mm(left, right, out=out), 2 * size**3, **timing)
        if device == "cpu" and kind == torch.float32:  # oneDNN, because torch.mm uses MKL.
            yield rate(lambda: torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], None),
                       2 * size**3, **timing)


def convolution_rates(kind):
    for channels, size in ((64, 64), (128, 32), (256, 16)):
        images = torch.randn(8, channels, size, size).to(kind, memory_format=torch.channels_last)
        layer = torch.nn.Conv2d(channels, channels, 3, padding=1).to(
            kind, memory_format=torch.channels_last)
        yield rate(lambda: layer(images), 2 * 8 * channels**2 * 9 * size**2)


def limits(request):
    """Returns the GFLOP/s of the fastest matrix product and convolution, by format."""
    found = {}
    with torch.no_grad():
        for name in request["formats"]:
            kind = {"FP32": torch.float32, "BF16": torch.bfloat16}[name]
            found[name] = {"GEMM": max(matrix_rates(kind)) / 1e9,
                           "convolution": max(convolution_rates(kind)) / 1e9}
    return found
