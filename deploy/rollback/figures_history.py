"""Reads the metrics for criteria.py from the output of `genesisctl history --csv`."""

import collections
import csv
import datetime
import math

import loss_excess

NEEDED = ("timestamp", "job_id", "mode", "loss", "baseline_loss", "fp16_steps", "overflow_steps", "samples_per_second", "state")
# Older daemons wrote a space instead of the T.
FORMATS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")


def moment(text):
    plain = text.replace("Z", "").split("+")[0].split(".")[0]
    for form in FORMATS:
        try:
            return datetime.datetime.strptime(plain, form).replace(tzinfo=datetime.timezone.utc)
        except ValueError:
            continue
    raise ValueError(f"the timestamp {text!r} is none; accepted: 2026-01-31 12:00:00 or 2026-01-31T12:00:00Z")


def number(text):
    """Returns the number in a field; None if the field is empty. NaN stays NaN."""
    return float(text) if text else None


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in NEEDED if name not in (reader.fieldnames or [])]
        if missing:
            raise ValueError(f"lacks the columns {', '.join(missing)}; it is not what `genesisctl history --csv` prints")
        yield from reader


class Day:
    """The metrics of 24 hours, counted back from now."""

    def __init__(self):
        self.rows = 0
        self.ended = {}
        self.not_finite = 0

    def add(self, row):
        self.rows += 1
        state = row["state"].removeprefix("JOB_STATE_").upper()
        if state in ("SUCCEEDED", "FAILED"):
            self.ended[row["job_id"]] = state
        loss = number(row["loss"])
        # The database stores NaN as NULL, so a running job without a loss had a loss that was not finite.
        if (not math.isfinite(loss)) if loss is not None else row["samples_per_second"]:
            self.not_finite += 1

    def succeeded(self):
        return sum(state == "SUCCEEDED" for state in self.ended.values())

    def trouble(self):
        """Returns why the day does not count as stable; empty if it does."""
        if not self.rows:
            return "no figures"
        if self.not_finite:
            return f"{self.not_finite} losses were NaN or Inf"
        if self.ended and self.succeeded() / len(self.ended) <= 0.5:
            return f"{len(self.ended) - self.succeeded()} of {len(self.ended)} jobs failed"
        return ""


class Losses:
    """The losses of one job in reduced precision, relative to those in FP32, by day."""

    def __init__(self):
        self.windows = collections.defaultdict(list)  # Means over the watchdog's window.
        self.steps = collections.defaultdict(list)  # Single steps, from the table of an older daemon.
        self.found = None  # Divergences that the watchdog found; None if it did not compare.

    def add(self, row, day):
        if not (number(row["fp16_steps"]) or 0) or row["mode"] == "FP32":
            return
        if row.get("divergences"):
            self.found = max(self.found or 0, int(float(row["divergences"])))
        window, loss, baseline = (number(row.get(name)) for name in ("divergence_ratio", "loss", "baseline_loss"))
        if window is not None and math.isfinite(window) and window > -1:
            self.windows[day].append(math.log1p(window))
        elif loss is not None and math.isfinite(loss) and loss > 0 and (baseline or 0) > 0:
            self.steps[day].append(math.log(loss / baseline))


def read(path, days, now):
    by_day = [Day() for _ in range(days)]
    steps = collections.defaultdict(lambda: (0.0, 0.0))
    losses = collections.defaultdict(Losses)
    for row in rows_of(path):
        age = (now - moment(row["timestamp"])).total_seconds()
        index = int(age // 86400)
        if age < 0 or index >= days:
            continue
        by_day[index].add(row)
        losses[row["job_id"]].add(row, index)
        # These are counters of the job, so the largest value is the latest.
        made, skipped = steps[row["job_id"]]
        steps[row["job_id"]] = (max(made, number(row["fp16_steps"]) or 0), max(skipped, number(row["overflow_steps"]) or 0))
    return {**summary(by_day, steps), "loss": loss_excess.judge(
        {(job, day): values for job, each in losses.items() for day, values in (each.windows or each.steps).items()},
        [job for job, each in losses.items() if each.found],
        sum(each.found is not None for each in losses.values()))}


def summary(by_day, steps):
    ended = {job: state for day in reversed(by_day) for job, state in day.ended.items()}
    made = sum(each[0] for each in steps.values())
    skipped = sum(each[1] for each in steps.values())
    troubles = [f"{index} days ago: {day.trouble()}" for index, day in enumerate(by_day) if day.trouble()]
    return {
        "jobs_ended": len(ended),
        "success_rate": sum(state == "SUCCEEDED" for state in ended.values()) / len(ended) if ended else None,
        "reduced_steps": made,
        "overflow_rate": skipped / made if made else None,
        "stable_days": len(by_day) - len(troubles),
        "unstable": "; ".join(troubles[:3]),
    }
