"""The criteria for enabling reduced precision again."""

import figures_history
import figures_prometheus
import loss_excess
from command import Failure

SUCCESS, OVERFLOW = 0.98, 0.05
# The first stage produces the metrics that later stages require, so it cannot require them itself.
FIRST_STAGE = "staging"


def judge(figures, days, stage):
    """Returns (text, met) for each criterion, from a dict of metrics in which None means "not measured"."""
    measured_here, jobs, steps = stage != FIRST_STAGE, figures["jobs_ended"], figures["reduced_steps"]
    return [
        ratio_above("training success rate", figures["success_rate"], SUCCESS, f"{jobs:.0f} jobs ended"),
        ratio_below("overflow rate", figures["overflow_rate"], OVERFLOW, measured_here, f"{steps:.0f} steps in reduced precision"),
        loss_against_fp32(*figures["loss"], measured_here),
        stable_days(figures["stable_days"], days, figures["unstable"])]


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


def stable_days(stable, days, unstable):
    return f"stable days: {stable} of {days}" + (f" ({unstable})" if unstable else ""), stable >= days


def verdicts(options):
    """Returns (text, met) for each criterion, from the Prometheus or the file of the options; raises `Failure` if it cannot be read."""
    try:
        if options.prometheus:
            figures = figures_prometheus.read(options.prometheus, options.days, options.now, options.measure)
        else:
            figures = figures_history.read(options.history, options.days, options.now)
    except (OSError, ValueError) as error:
        raise Failure(f"{options.prometheus or options.history}: {error}") from error
    return judge(figures, options.days, options.stage)


def line(text, met):
    return f"{'met    ' if met else 'NOT MET'} {text}"
