"""Writes the tables and the page of `gpu`."""

import charts
import gpu_figures
from gpu_figures import FASTER, GRAPH

KEY = """ours, graph: this side's time over that of genesis-worker, of its CUDA graph; above 1, ours is faster.
over FP32, TF32: the time of the same side there over its time here; these ran one after the other.
MFU: floating-point operations of the step, counted on the model, over the peak of products, measured here /
of the datasheet. Attention counts as its products without mask, and what is computed twice counts once.
saved: of the peak memory of the same side in FP32. skipped: steps of a block without an update, for an overflow."""


def interval(value, digits=2):
    return f"{value['median']:.{digits}f} ({value['low']:.{digits}f}-{value['high']:.{digits}f})"


def _cells(row):
    def ratio(name):
        return interval(row[name]) if name in row else ""

    yield interval(row["ms_per_step"], 3)
    for name in (*FASTER.values(), "speedup", "speedup_over_tf32"):
        yield ratio(name)
    yield "/".join(f"{share:.1%}" for share in row["mfu"].values())
    yield f"{row['peak_mib']:.0f}" if "peak_mib" in row else ""
    yield f"{row['memory_saving']:.1%}" if "memory_saving" in row else ""
    yield f"{row['skipped_steps']:g}/{row['steps_per_block']}"
    yield f"{row['most_loss_difference']:.1e}" if "most_loss_difference" in row else ""


HEADS = ("ms per step", "ours faster by", "graph faster by", "over FP32", "over TF32", "MFU", "peak MiB",
         "saved", "skipped", "loss diff.")
WIDTHS = (26, 21, 21, 21, 21, 14, 10, 8, 9, 12)


def table(rows):
    """Returns a table with a line per side."""
    lines = [f"{'workload, mode':32}{'side':28}" + "".join(map(str.rjust, HEADS, WIDTHS))]
    for row in rows:
        head = f"{row['workload'] + ', ' + row['mode']:32}{row['side']:28}"
        if "refused" in row:
            lines.append(f"{head}refused: {row['refused']}")
        elif "not_run" in row:
            lines.append(f"{head}not run: {row['not_run']}")
        else:
            lines.append(head + "".join(map(str.rjust, _cells(row), WIDTHS)))
    return "\n".join(lines)


def what_was_not_run(rows):
    """Returns the reasons, each with the comparisons that it prevented, as text."""
    reasons = {}
    for row in rows:
        reasons.setdefault((row["side"], row["not_run"]), {}).setdefault(row["workload"], []).append(row["mode"])
    lines = []
    for (side, reason), workloads in reasons.items():
        lines += [f"{side}: {reason}",
                  *(f"    {name}: {', '.join(modes)}" for name, modes in workloads.items())]
    return "\n".join(lines) or "nothing"


def show_peaks(found, peaks):
    listed = gpu_figures.datasheet(found.facts["measured device"])
    lines = [f"{'format':10}{'measured':>12}{'datasheet':>12}"]
    for name, value in peaks.items():
        lines.append(f"{name:10}{value:12.1f}{format(listed[name], '12.1f') if name in listed else '':>12}")
    found.facts["peaks of products, TFLOP/s"] = ", ".join(
        f"{name} {value:.4g}" for name, value in peaks.items())
    found.text("Peak of matrix products, TFLOP/s", "\n".join(lines))


def _chart(found, title, values, unit, line=None):
    """Adds a chart. `values` is a function that returns [(label, interval)] of a row."""
    groups = {}
    for row in found.rows:
        for label, value in values(row):
            groups.setdefault(f"{row['workload']}, {row['mode']}", []).append((label, value))
    if groups:
        found.chart(charts.bars(title, list(groups.items()), unit, line))


def finish(found, judged):
    """Adds what is computed from all rows: comparisons of modes, charts, tables, and targets if `judged`."""
    gpu_figures.relate(found.rows)
    _chart(found, "Time of a step of Python over ours (longer than the line: ours is faster)",
           lambda row: [(f"{row['side']} / {'graph' if ours == GRAPH else 'ours'}", row[name])
                        for ours, name in FASTER.items() if name in row], "x", line=1)
    _chart(found, "Time of a step in FP32 over that in mixed precision",
           lambda row: [(row["side"], row["speedup"])] if "speedup" in row else [], "x", line=1)
    _chart(found, "Time of a step",
           lambda row: [(row["side"], row["ms_per_step"])] if "ms_per_step" in row else [], "ms")
    found.text("All that was measured",
               table([row for row in found.rows if "not_run" not in row]) + "\n\n" + KEY)
    found.text("Not run", what_was_not_run([row for row in found.rows if "not_run" in row]))
    found.text("Targets", "\n".join(gpu_figures.targets(found.rows)) if judged
               else "They are for a GPU; nothing here says whether they are reached.")
