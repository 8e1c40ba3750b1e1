"""Computes the median and the spread of measured values."""

import random
import statistics


def quantile(values, share):
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def summary(values):
    """Returns the median and the quartiles."""
    return {"median": statistics.median(values), "low": quantile(values, 0.25),
            "high": quantile(values, 0.75), "count": len(values)}


def median_interval(values, share=0.95, draws=2000):
    """Returns the median with its bootstrap interval, from medians of as many values drawn with replacement."""
    values = list(values)
    generator = random.Random(1)  # With a fixed seed, equal values give an equal interval.
    medians = [statistics.median(generator.choices(values, k=len(values))) for _ in range(draws)]
    return {"median": statistics.median(values), "low": quantile(medians, (1 - share) / 2),
            "high": quantile(medians, (1 + share) / 2), "count": len(values)}
