"""The chart of a job, drawn by matplotlib."""

from __future__ import annotations

import bisect
import io
import math
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from matplotlib.figure import Figure

from genesis.events import Event, fleet_events_of
from genesis.requests import event_filter

if TYPE_CHECKING:
    from genesis.job import Job

# Minimum number of seconds between two drawings of a running job.
SECONDS = 1.0
# Weight of the earlier points in the smoothed loss; the dashboard has the same default.
SMOOTHING = 0.6
EVENTS = ("state_changed", "precision_changed", "evaluated", "metrics_reported")
# Maximum number of reported metrics in a chart, taken in the order of their names.
MOST_REPORTED = 6


class Chart(Figure):
    """A figure that a notebook shows without ``%matplotlib inline``."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


def chart_of(job: "Job") -> Chart:
    """Draws loss, reported metrics, loss scale and throughput of a job by step, with its evaluations, precision changes and restarts."""
    curves = job.curves(["loss", "loss_scale", "step_seconds"])
    steps, events = curves["last_step"], list(_events(job))
    reported = _reported(events)
    # FP32 has the scale 1.
    scaled = any(scale > 0 and scale != 1 for scale in curves["loss_scale"])
    heights = [3] + [1] * (len(reported) + scaled + 1)
    chart = Chart(figsize=(9, 4 + 1.5 * (len(heights) - 1)), layout="constrained")
    loss, *others = chart.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    loss.set_title(f"{job.id} {job.state}")
    loss.fill_between(steps, curves["loss_min"], curves["loss_max"], color="tab:blue", alpha=0.15, linewidth=0)
    loss.plot(steps, curves["loss"], color="tab:blue", alpha=0.35, linewidth=1, label="loss")
    loss.plot(steps, _smoothed(curves["loss"]), color="tab:blue", label="smoothed")
    evaluations = [event.value for event in events if event.kind == "evaluated"]
    if evaluations:
        loss.plot([each.step for each in evaluations], [each.loss for each in evaluations], "o", color="tab:green", markersize=4, label="held-out loss")
    for name, color, places in (("precision change", "tab:purple", [event.step for event in events if event.kind == "precision_changed"]),
                                ("restart", "tab:orange", list(_restarts(events, curves)))):
        for number, step in enumerate(places):
            for axes in (loss, *others):
                axes.axvline(step, color=color, linestyle="--", linewidth=1, label="" if number or axes is not loss else name)
    if steps:
        loss.legend()
    loss.set_ylabel("loss")
    for axes, (name, values) in zip(others, reported.items()):
        axes.plot(list(values), list(values.values()), ".-", color="tab:brown")
        axes.set_ylabel(name)
    if scaled:
        scale = others[-2]
        scale.step(steps, curves["loss_scale"], where="post", color="tab:purple")
        scale.set_yscale("log", base=2)
        scale.set_ylabel("loss scale")
    others[-1].plot(steps, _throughput(curves), color="tab:green")
    others[-1].set_ylabel("examples / s")
    others[-1].set_xlabel("step")
    return chart


def follow(job: "Job", timeout: float) -> None:
    """Shows the chart in a cell of a notebook and redraws it until the job ends."""
    from IPython import display

    shown, drawn = display.display(chart_of(job), display_id=True), time.monotonic()
    for _ in job.events(cursor=-1, timeout=timeout):
        if time.monotonic() - drawn >= SECONDS:
            shown.update(chart_of(job))
            drawn = time.monotonic()
    shown.update(chart_of(job))


def _events(job: "Job") -> Iterator[Event]:
    wanted, cursor = event_filter(job.id, "", None, EVENTS, ()), 0
    while True:
        page = job._connection.call("ListEvents", cursor=cursor, page_size=1000, filter=wanted)
        yield from fleet_events_of(page)
        if not page.events:
            return
        cursor = page.cursor


def _reported(events: Sequence[Event]) -> Dict[str, Dict[int, float]]:
    """Returns the values of each reported metric by step. A later report of a step replaces the earlier one."""
    found: Dict[str, Dict[int, float]] = {}
    for event in events:
        if event.kind == "metrics_reported":
            for name, value in event.value.values.items():
                found.setdefault(name, {})[event.step] = value
    return {name: dict(sorted(found[name].items())) for name in sorted(found)[:MOST_REPORTED]}


def _restarts(events: Sequence[Event], curves: Any) -> Iterator[int]:
    """Yields the step of each loss of a worker, after which another worker recovers the job."""
    for event in events:
        if event.kind == "state_changed" and event.state == "RECOVERING" and curves["last_step"]:
            place = bisect.bisect_left(curves["time"], event.time.timestamp() if event.time else 0.0)
            yield curves["last_step"][min(place, len(curves["last_step"]) - 1)]


def _smoothed(values: Sequence[float]) -> List[float]:
    """Returns an exponential moving average with bias correction, so that a constant sequence stays constant."""
    found, total, weight = [], 0.0, 0.0
    for value in values:
        if math.isfinite(value):
            total, weight = total * SMOOTHING + (1 - SMOOTHING) * value, weight * SMOOTHING + 1 - SMOOTHING
        found.append(total / weight if math.isfinite(value) else math.nan)
    return found


def _throughput(curves: Any) -> List[float]:
    """Returns examples per second of each point."""
    found: List[float] = []
    before: Optional[Tuple[int, float]] = None
    for first, last, samples, seconds in zip(curves["first_step"], curves["last_step"], curves["samples"], curves["step_seconds"]):
        steps, trained = (last - before[0], samples - before[1]) if before else (last - first + 1, samples * (last - first + 1) / max(1, last))
        found.append(trained / max(1, steps) / seconds if seconds > 0 else math.nan)
        before = last, samples
    return found
