"""The figures of criteria.py from a Prometheus, by PromQL over HTTP."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT = 30


class Prometheus:
    def __init__(self, url, moment):
        self.url = url.rstrip("/")
        self.moment = moment

    def value(self, query, moment=None):
        """The one number of a query; None when there is no series or no number."""
        parameters = urllib.parse.urlencode({"query": query, "time": moment or self.moment})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}",
                                        timeout=TIMEOUT) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{query}: {error.read().decode(errors='replace')}") from error
        result = answer["data"]["result"]
        if not result:
            return None
        number = float(result[0]["value"][1])
        return number if math.isfinite(number) else None


def day_trouble(server, label, moment):
    """Why the 24 hours before `moment` do not count as stable; "" when they do."""
    # A minute here and there is a restart; an hour in which nothing was scraped is not known.
    hours = server.value(f"count(count_over_time(genesis_ready{label}[1d:1h]))", moment)
    samples = server.value(f"max(count_over_time(genesis_ready{label}[1d:1h]))", moment)
    if not hours or not samples or samples < 22:
        return f"figures of {samples or 0:.0f} of 24 hours"
    fallbacks = server.value(
        "sum(increase(genesis_precision_changes_total"
        f"{with_label(label, 'trigger!=' + quoted('promotion'))}[1d]))", moment)
    if fallbacks and fallbacks >= 0.5:
        return f"{fallbacks:.0f} jobs fell back"
    not_finite = server.value(
        f"sum(increase(genesis_incidents_total{with_label(label, 'rule=' + quoted('non_finite'))}[1d]))",
        moment)
    if not_finite and not_finite >= 0.5:
        return f"{not_finite:.0f} times a loss was NaN or Inf"
    return ""


def quoted(text):
    return '"' + text + '"'


def with_label(label, matcher):
    inner = label.strip("{}")
    return "{" + ",".join(each for each in (inner, matcher) if each) + "}"


def read(url, days, now, deployment):
    server = Prometheus(url, now.timestamp())
    label = '{deployment="' + deployment + '"}' if deployment else ""

    def increase(name):
        return server.value(f"sum(increase({name}{label}[{days}d]))")

    ended, succeeded = increase("genesis_training_total"), increase("genesis_training_success_total")
    made, skipped = (increase("genesis_fp16_training_steps_total"),
                     increase("genesis_fp16_overflow_steps_total"))
    # Of jobs in reduced precision whose FP32 loss is known, while they run.
    deviation = server.value(
        f"max(max_over_time(avg_over_time(abs(genesis_loss_divergence_ratio{label})[1d:5m])"
        f"[{days}d:1d]))") if made else None
    troubles = []
    for day in range(days):
        trouble = day_trouble(server, label, now.timestamp() - day * 86400)
        if trouble:
            troubles.append(f"{day} days ago: {trouble}")
    return {
        "jobs_ended": ended or 0,
        "success_rate": succeeded / ended if ended and succeeded is not None else None,
        "reduced_steps": made or 0,
        "overflow_rate": (skipped or 0) / made if made else None,
        "loss_deviation": deviation,
        "stable_days": days - len(troubles),
        "unstable": "; ".join(troubles[:3]),
    }
