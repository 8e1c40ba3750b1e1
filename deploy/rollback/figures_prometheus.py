"""Reads the metrics for criteria.py from a Prometheus, with PromQL over HTTP."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request

import loss_excess

TIMEOUT = 30
SECONDS_PER_DAY = 86400
# Seconds between samples of the loss. The watchdog's windows are shorter.
STEP = 300


class Prometheus:
    def __init__(self, url, moment):
        self.url = url.rstrip("/")
        self.moment = moment

    def value(self, query, moment=None):
        """Returns the first value of a query; None if it has no series or is not finite."""
        result = self.ask("query", query=query, time=moment or self.moment)
        if not result:
            return None
        number = float(result[0]["value"][1])
        return number if math.isfinite(number) else None

    def series(self, query, days):
        """Returns {instance: [(age in seconds, value), ...]} for the last days."""
        found = {}
        for each in self.ask("query_range", query=query, start=self.moment - days * SECONDS_PER_DAY + STEP,
                             end=self.moment, step=STEP):
            found.setdefault(instance_of(each), []).extend(
                (self.moment - float(at), float(value)) for at, value in each["values"])
        return found

    def ask(self, path, **parameters):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}",
                                        timeout=TIMEOUT) as response:
                return json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters['query']}: {error.read().decode(errors='replace')}") from error


def instance_of(series):
    return series["metric"].get("instance", "this daemon")


def day_trouble(server, label, moment):
    """Returns why the 24 hours before `moment` do not count as stable; empty if they do."""
    # genesis_ready is looked up once an hour. Two lookups may find no sample, as in a restart.
    hours = server.value(f"count(count_over_time(genesis_ready{label}[1d:1h]))", moment)
    samples = server.value(f"max(count_over_time(genesis_ready{label}[1d:1h]))", moment)
    if not hours or not samples or samples < 22:
        return f"figures of {samples or 0:.0f} of 24 hours"
    changes = with_label(label, 'trigger!="promotion"')
    fallbacks = server.value(f"sum(increase(genesis_precision_changes_total{changes}[1d]))", moment)
    if fallbacks and fallbacks >= 0.5:
        return f"{fallbacks:.0f} jobs fell back"
    incidents = with_label(label, 'rule="non_finite"')
    not_finite = server.value(f"sum(increase(genesis_incidents_total{incidents}[1d]))", moment)
    if not_finite and not_finite >= 0.5:
        return f"{not_finite:.0f} times a loss was NaN or Inf"
    return ""


def with_label(label, matcher):
    inner = label.strip("{}")
    return "{" + ",".join(each for each in (inner, matcher) if each) + "}"


def read(url, days, now, deployment):
    server = Prometheus(url, now.timestamp())
    label = '{deployment="' + deployment + '"}' if deployment else ""

    def increase(name):
        return server.value(f"sum(increase({name}{label}[{days}d]))")

    ended, succeeded = increase("genesis_training_total"), increase("genesis_training_success_total")
    made, skipped = increase("genesis_fp16_training_steps_total"), increase("genesis_fp16_overflow_steps_total")
    by_day = [day_trouble(server, label, now.timestamp() - day * SECONDS_PER_DAY) for day in range(days)]
    troubles = [f"{day} days ago: {trouble}" for day, trouble in enumerate(by_day) if trouble]
    return {
        "jobs_ended": ended or 0,
        "success_rate": succeeded / ended if ended and succeeded is not None else None,
        "reduced_steps": made or 0,
        "overflow_rate": (skipped or 0) / made if made else None,
        "loss": losses(server, label, days),
        "stable_days": days - len(troubles),
        "unstable": "; ".join(troubles[:3]),
    }


def losses(server, label, days):
    """Judges the divergences of the loss. Each sample is that of the running job with the largest divergence."""
    logs = {}
    for instance, values in server.series(f"genesis_loss_divergence_ratio{label}", days).items():
        for age, ratio in values:
            if math.isfinite(ratio) and ratio > -1:
                logs.setdefault((instance, int(age // SECONDS_PER_DAY)), []).append(math.log1p(ratio))
    matcher = with_label(label, 'rule="divergence"')
    incidents = server.ask("query", time=server.moment,
                           query=f"sum by (instance) (increase(genesis_incidents_total{matcher}[{days}d])) >= 0.5")
    return loss_excess.judge(logs, [f"a job of {instance_of(each)}" for each in incidents], 0)
