"""Computes the derived metrics of `gpu`: fractions of a peak, savings, comparisons of modes, targets. A row is one side in one workload and
mode (see gpu_comparison.py)."""

import re

import spread

OURS, GRAPH = "genesis-worker", "genesis-worker, CUDA graph"
PEERS = ("torch eager", "torch.compile")
# Keys in a peer's row: its time divided by that of each side of genesis-worker.
FASTER = {OURS: "ours_is_faster_by", GRAPH: "graph_is_faster_by"}
# The format whose peak bounds a mode.
FORMAT = {"FP32": "FP32", "TF32": "TF32", "MIXED_FP16": "FP16", "MIXED_BF16": "BF16"}
# Dense TFLOP/s from NVIDIA's datasheets. Other devices of these families (PCIe, NVL) are slower and not listed.
HOPPER = {"FP32": 66.9, "TF32": 494.7, "FP16": 989.4, "BF16": 989.4}
DATASHEETS = ((r"\bH100 80GB HBM3$", HOPPER), (r"\bH200$", HOPPER),
              (r"\bA100\b", {"FP32": 19.5, "TF32": 156.0, "FP16": 312.0, "BF16": 312.0}))
SPEED_TARGETS = {"world_model small": 1.5, "transformer": 1.1}
MFU_TARGETS = {"transformer": 0.45}
# Only workloads whose memory is filled by activations, and not by weights, have targets.
MEMORY_TARGETS = {"transformer": 0.40, "radio_unet": 0.40}


def datasheet(device):
    """Returns {format: TFLOP/s} of a device by its name; empty if it is unknown."""
    return next((peaks for name, peaks in DATASHEETS if re.search(name, device)), {})


def mfu(operations, seconds, teraflops):
    """Returns the model FLOPs utilization: the fraction of the peak that a step reaches."""
    return operations / seconds / (teraflops * 1e12)


def saving(peak, whole):
    """Returns by which fraction `peak` is smaller than `whole`."""
    return 1 - peak / whole


def ratio(slower, faster):
    """Returns the ratio of paired times with its interval. Above 1, `faster` is faster."""
    return spread.median_interval([a / b for a, b in zip(slower, faster)])


def relate(rows):
    """Adds to rows how their mode compares with FP32 and TF32: time and memory."""
    measured = {(row["workload"], row["mode"], row["side"]): row
                for row in rows if "ms_of_blocks" in row}
    for (workload, mode, side), row in measured.items():
        for base, name in (("FP32", "speedup"), ("TF32", "speedup_over_tf32")):
            other = measured.get((workload, base, side))
            if other and mode.startswith("MIXED"):
                row[name] = ratio(other["ms_of_blocks"], row["ms_of_blocks"])
        whole = measured.get((workload, "FP32", side))
        if whole and mode.startswith("MIXED") and "peak_mib" in row and "peak_mib" in whole:
            row["memory_saving"] = saving(row["peak_mib"], whole["peak_mib"])


def _verdict(found, wanted, shown):
    """Returns the text about a target. The best value in `found`, [(name, value)], counts."""
    if not found:
        return f"wanted at least {shown(wanted)}: not measured"
    what, best = max(found, key=lambda each: each[1])
    reached = "reached" if best >= wanted else "not reached"
    return f"{shown(best)} ({what}), wanted at least {shown(wanted)}: {reached}"


def targets(rows):
    """Returns a line for each target and mode, with the result and the target."""
    rows = [row for row in rows if "ms_of_blocks" in row]

    def of(workload, mode, sides):
        return [row for row in rows
                if (row["workload"], row["mode"]) == (workload, mode) and row["side"] in sides]

    def times(value):
        return f"{value:.2f}x"

    def percent(value):
        return f"{value:.0%}"

    lines = []
    for workload, wanted in SPEED_TARGETS.items():
        for mode in FORMAT:
            found = [(side, row[name]["median"]) for row in of(workload, mode, PEERS[:1])
                     for side, name in FASTER.items() if name in row]
            lines.append(f"{workload}, {mode}, speed beside {PEERS[0]}: {_verdict(found, wanted, times)}")
    mixed = [mode for mode in FORMAT if mode.startswith("MIXED")]
    for workload, wanted in MFU_TARGETS.items():
        for mode in mixed:
            # The peak of the datasheet is used if it is known, because others report relative to it.
            found = [(f"{row['side']}, of the {peak} peak", row["mfu"][peak])
                     for row in of(workload, mode, (OURS, GRAPH)) for peak in list(row["mfu"])[-1:]]
            lines.append(f"{workload}, {mode}, MFU: {_verdict(found, wanted, percent)}")
    for workload, wanted in MEMORY_TARGETS.items():
        for mode in mixed:
            found = [(row["side"], row["memory_saving"]) for row in of(workload, mode, (OURS, GRAPH))
                     if "memory_saving" in row]
            lines.append(f"{workload}, {mode}, memory saved against FP32: "
                         f"{_verdict(found, wanted, percent)}")
    return lines
