#!/usr/bin/env python3
"""Compares the metrics of canary and stable in a Prometheus: compare.py --prometheus URL [--hours 4]

Prints values and does not judge them."""

import argparse
import datetime
import sys

import figures_prometheus

ROWS = (
    ("training success rate",
     "sum(increase(genesis_training_success_total{L}[W])) / sum(increase(genesis_training_total{L}[W]))",
     "{:.2%}"),
    ("jobs ended", "sum(increase(genesis_training_total{L}[W]))", "{:.0f}"),
    ("training duration, 95th percentile",
     "histogram_quantile(0.95, sum by (le) (increase(genesis_training_duration_seconds_bucket{L}[W])))",
     "{:.1f} s"),
    ("overflow rate", "sum(increase(genesis_fp16_overflow_steps_total{L}[W])) / "
     "sum(increase(genesis_fp16_training_steps_total{L}[W]))", "{:.2%}"),
    ("samples per second", "sum(rate(genesis_training_samples_total{L}[W]))", "{:,.0f}"),
    ("training loss", "avg(avg_over_time(genesis_training_loss{L}[W]))", "{:.6g}"),
    ("CUDA memory", "max(max_over_time(genesis_cuda_memory_allocated_bytes{L}[W])) / 2^20", "{:,.0f} MiB"),
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--hours", type=int, default=4)
    parser.add_argument("--now")
    flags = parser.parse_args()
    now = datetime.datetime.now(datetime.timezone.utc)
    if flags.now:
        now = datetime.datetime.fromisoformat(flags.now.replace("Z", "+00:00"))
    server = figures_prometheus.Prometheus(flags.prometheus, now.timestamp())
    print(f"{f'last {flags.hours} h':<36}{'canary':>16}{'stable':>16}")
    try:
        for name, query, form in ROWS:
            cells = []
            for label in ("canary", "stable"):
                full = query.replace("{L}", '{deployment="' + label + '"}').replace(
                    "[W]", f"[{flags.hours}h]")
                value = server.value(full)
                cells.append("not measured" if value is None else form.format(value))
            print(f"{name:<36}{cells[0]:>16}{cells[1]:>16}")
    except (OSError, ValueError) as error:
        sys.exit(f"compare.py: {flags.prometheus}: {error}")


if __name__ == "__main__":
    main()
