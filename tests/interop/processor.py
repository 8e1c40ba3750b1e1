"""Capabilities of this machine's processor."""

import pathlib
import platform

# Instruction sets that determine the speed of matrix products.
KINDS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "asimd", "bf16")
NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}


def _lines():
    return pathlib.Path("/proc/cpuinfo").read_text().splitlines()


def name():
    for line in _lines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def instruction_sets():
    for line in _lines():
        if line.startswith(("flags", "Features")):
            there = set(line.split(":", 1)[1].split())
            return [kind for kind in KINDS if kind in there]
    return []


def multiplies_bf16():
    """Returns whether the processor has instructions for BF16 products."""
    return bool(NATIVE_BF16 & set(instruction_sets()))


def has_bf16_lstm():
    """Returns whether oneDNN has a BF16 LSTM for this processor. torch always tries it, and fails with "could not create a primitive
    descriptor" if there is none."""
    return platform.machine() != "x86_64" or "avx512f" in instruction_sets()
