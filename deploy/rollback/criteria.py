#!/usr/bin/env python3
"""Checks whether reduced precision may be enabled again. Prints each criterion with its value.

criteria.py --prometheus URL | --history FILE [--days 7] [--stage 100] [--deployment stable|canary]

Exit code: 0 if all criteria are met, 3 if one is not, 1 if the metrics could not be read.
"""

import argparse
import datetime
import sys

import figures_history
import figures_prometheus
import loss_excess

SUCCESS, OVERFLOW = 0.98, 0.05
# The first stage produces the metrics that later stages require, so it cannot require them itself.
FIRST_STAGE = "staging"
STAGES = (FIRST_STAGE, "canary", "25", "50", "100")


def judge(figures, days, stage):
    """Returns (text, met) for each criterion, from a dict of metrics in which None means "not measured"."""
    measured_here = stage != FIRST_STAGE
    return [
        ratio_above("training success rate", figures["success_rate"], SUCCESS,
                    f"{figures['jobs_ended']:.0f} jobs ended"),
        ratio_below("overflow rate", figures["overflow_rate"], OVERFLOW, measured_here,
                    f"{figures['reduced_steps']:.0f} steps in reduced precision"),
        loss_against_fp32(*figures["loss"], measured_here),
        stable_days(figures, days),
    ]


def ratio_above(name, value, bound, detail):
    if value is None:
        return f"{name}: not measured, needs more than {bound:.0%} ({detail})", False
    return f"{name}: {value:.2%}, needs more than {bound:.0%} ({detail})", value > bound


def ratio_below(name, value, bound, needed, detail):
    if value is None:
        text = f"{name}: not measured ({detail})"
        return (f"{text}, needs less than {bound:.0%}", False) if needed else (
            f"{text}, and not asked for in stage {FIRST_STAGE}", True)
    return f"{name}: {value:.2%}, needs less than {bound:.0%} ({detail})", value < bound


def loss_against_fp32(excess, detail, met, needed):
    figure = "not measured" if excess is None else f"{excess:+.2%}"
    return (f"loss against the FP32 baseline: {figure}, needs less than {loss_excess.LIMIT:.0%} ({detail})",
            met if met is not None else not needed)


def stable_days(figures, days):
    stable = figures["stable_days"]
    text = f"stable days: {stable} of {days}"
    if figures["unstable"]:
        text += f" ({figures['unstable']})"
    return text, stable >= days


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prometheus")
    parser.add_argument("--history")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--stage", choices=STAGES, default="100")
    parser.add_argument("--deployment", default="")
    parser.add_argument("--now", help="instead of the present moment, as 2026-01-31T12:00:00Z")
    flags = parser.parse_args()
    now = datetime.datetime.now(datetime.timezone.utc)
    if flags.now:
        now = datetime.datetime.fromisoformat(flags.now.replace("Z", "+00:00"))
    try:
        if flags.prometheus:
            figures = figures_prometheus.read(flags.prometheus, flags.days, now, flags.deployment)
        else:
            figures = figures_history.read(flags.history, flags.days, now)
    except (OSError, ValueError) as error:
        sys.exit(f"criteria.py: {flags.prometheus or flags.history}: {error}")
    verdicts = judge(figures, flags.days, flags.stage)
    for text, met in verdicts:
        print(f"{'met    ' if met else 'NOT MET'} {text}")
    return 0 if all(met for _, met in verdicts) else 3


if __name__ == "__main__":
    sys.exit(main())
