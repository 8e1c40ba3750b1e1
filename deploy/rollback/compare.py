"""Compares the metrics of canary and stable in a Prometheus. It shows values and does not judge them."""

import figures_prometheus
from command import Failure

ROWS = (
    ("training success rate",
     "sum(increase(genesis_training_success_total{L}[W])) / sum(increase(genesis_training_total{L}[W]))",
     "{:.2%}"),
    ("jobs ended", "sum(increase(genesis_training_total{L}[W]))", "{:.0f}"),
    ("training duration, 95th percentile",
     "histogram_quantile(0.95, sum by (le) (increase(genesis_training_duration_seconds_bucket{L}[W])))",
     "{:.1f} s"),
    ("overflow rate", "sum(increase(genesis_fp16_overflow_steps_total{L}[W])) / sum(increase(genesis_fp16_training_steps_total{L}[W]))",
     "{:.2%}"),
    ("samples per second", "sum(rate(genesis_training_samples_total{L}[W]))", "{:,.0f}"),
    ("training loss", "avg(avg_over_time(genesis_training_loss{L}[W]))", "{:.6g}"),
    ("CUDA memory", "max(max_over_time(genesis_cuda_memory_allocated_bytes{L}[W])) / 2^20", "{:,.0f} MiB"),
)


def table(url, hours, now):
    """Yields the lines of the comparison over the hours before `now`; raises `Failure` if Prometheus does not answer."""
    server = figures_prometheus.Prometheus(url, now.timestamp())
    yield f"{f'last {hours} h':<36}{'canary':>16}{'stable':>16}"
    try:
        for name, query, form in ROWS:
            cells = []
            for label in ("canary", "stable"):
                value = server.value(query.replace("{L}", '{deployment="' + label + '"}').replace("[W]", f"[{hours}h]"))
                cells.append("not measured" if value is None else form.format(value))
            yield f"{name:<36}{cells[0]:>16}{cells[1]:>16}"
    except (OSError, ValueError) as error:
        raise Failure(f"{url}: {error}") from error
