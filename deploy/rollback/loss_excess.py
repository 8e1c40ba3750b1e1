"""Tests whether losses in reduced precision are larger than those in FP32.

The relative difference of two noisy losses is noise of either sign, so its absolute value has a mean above zero however similar the runs
are. Therefore the mean of log(loss / baseline) is taken with its sign, and counts only if it is significant by Student's t-test.
"""

import math
import typing

# A mean is reported as an excess if it is above LIMIT, and significantly above half of LIMIT.
LIMIT = 0.05
FALSE_ALARMS = 1e-3
# The sample is large enough if an excess of this size would have been detected with this confidence.
PLANTED = 0.10
CONFIDENCE = 0.995
# Minimum number of values from which the noise of correlated, consecutive rows can be estimated.
FEWEST = 20
# With at least this many jobs, each job counts once, whatever its length.
MANY_JOBS = 12


class Mean(typing.NamedTuple):
    value: float
    error: float  # Standard error.
    freedom: float

    def ratio(self):
        return math.expm1(self.value)

    def surely_above(self, bound, chance):
        return student_tail((self.value - math.log1p(bound)) / self.error, self.freedom) < chance

    def surely_below(self, bound, chance):
        return student_tail((math.log1p(bound) - self.value) / self.error, self.freedom) < chance


def student_tail(t, freedom):
    """Returns P(T > t) of Student's t-distribution by Simpson's rule, as the integral of cos^(freedom - 1) from
    atan(t / sqrt(freedom)) to pi / 2."""
    if t < 0:
        return 1 - student_tail(-t, freedom)
    begin, intervals = math.atan(t / math.sqrt(freedom)), 400
    width = (math.pi / 2 - begin) / intervals
    total = sum((1 if i in (0, intervals) else 4 if i % 2 else 2) * max(math.cos(begin + i * width), 0) ** (freedom - 1)
                for i in range(intervals + 1))
    return total * width / 3 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def mean_of(series):
    """Returns the mean over jobs, each a list of logarithms; None if there are too few values to estimate its error."""
    values = [sum(each) / len(each) for each in series if each]
    if len(values) < MANY_JOBS:
        values = [value for each in series for value in each]
        if len(values) < FEWEST:
            return None
    number = len(values)
    mean = sum(values) / number
    rest = [value - mean for value in values]
    squares = sum(each * each for each in rest)
    # Consecutive rows are correlated, so their effective number is smaller: a first-order autoregressive model.
    alike = sum(a * b for a, b in zip(rest, rest[1:])) / squares if squares else 0
    alike = min(max(alike + 1 / number, 0), 0.95)
    alone = max(number * (1 - alike) / (1 + alike), 2)
    return Mean(mean, max(math.sqrt(squares / (number - 1) / alone), 1e-6), alone - 1)


def judge(logs, found, watched):
    """Judges the criterion of the loss.

    Args:
        logs: {(job, day): [log(loss / baseline), ...]}.
        found: jobs in which the watchdog found a divergence.
        watched: number of jobs that the watchdog compared with FP32.

    Returns:
        (excess, detail, met). The excess is None if it was not measured. `met` is None if there is too little data to decide.
    """
    days, jobs = {}, {}
    for (job, day), values in logs.items():
        days.setdefault(day, []).append(values)
        jobs.setdefault(job, []).extend(values)
    whole = mean_of(list(jobs.values()))
    figure = whole.ratio() if whole else None
    if found:
        return figure, f"the watchdog found that {', '.join(sorted(found)[:3])} lost more than FP32", False
    groups = [(job, mean_of([values])) for job, values in sorted(jobs.items())]
    groups += [(f"{day} days ago", mean_of(series)) for day, series in sorted(days.items())]
    measured = [(name, mean) for name, mean in groups if mean]
    above = [(name, mean) for name, mean in measured
             if mean.ratio() > LIMIT and mean.surely_above(LIMIT / 2, FALSE_ALARMS / len(measured))]
    # A single test, so it needs no correction for many tests.
    if whole and whole.ratio() > LIMIT and whole.surely_above(LIMIT / 2, 1 - CONFIDENCE):
        above.append(("all jobs", whole))
    if above:
        name, mean = max(above, key=lambda each: each[1].value)
        return mean.ratio(), f"{name}; signed mean, more than chance", False
    if whole and whole.surely_below(PLANTED, 1 - CONFIDENCE):
        return figure, f"signed mean of {len(jobs)} jobs, within chance", True
    if watched:
        return figure, f"the watchdog compared {watched} jobs with FP32 and found no divergence", True
    rows = sum(map(len, logs.values()))
    return figure, f"{rows} measurements are too few to tell {PLANTED:.0%} from chance", None
