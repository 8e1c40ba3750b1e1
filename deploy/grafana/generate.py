#!/usr/bin/env python3
"""Generates the dashboards beside this file, dashboards/*.json, with grafana-foundation-sdk.

usage: deploy/grafana/generate.py [FOLDER]

Change a dashboard here and not in its JSON. A test compares the two, and runs every query of every panel against a Prometheus that
scrapes a running daemon.
"""

import pathlib
import sys

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (DataSourceRef, Threshold, ThresholdsMode,
                                                     VariableOption, VariableRefresh)

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# Label matchers with the two variables of each dashboard.
CHOSEN = 'deployment=~"$deployment", instance=~"$instance"'
RATE = "$__rate_interval"
FULL, HALF, THIRD, SIXTH = 24, 12, 8, 4


def thresholds(steps):
    """Builds thresholds from (value, color) pairs. The first value is None: its color applies below the second value."""
    return (dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
            .steps([Threshold(value=value, color=color) for value, color in steps]))


def with_queries(panel, title, description, unit, queries, width, height, steps):
    panel.title(title).description(description).unit(unit).datasource(SOURCE)
    panel.span(width).height(height)
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(prometheus.Dataquery().expr(expression).legend_format(legend)
                          .ref_id(chr(ord("A") + number)))
    if steps:
        panel.thresholds(thresholds(steps))
    return panel


def graph(title, description, unit, *queries, width=HALF, steps=None):
    """Builds a panel with a line for each series."""
    panel = (timeseries.Panel()
             .legend(VizLegendOptions().display_mode(LegendDisplayMode.LIST)
                     .placement(LegendPlacement.BOTTOM).show_legend(True))
             .tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI)))
    return with_queries(panel, title, description, unit, queries, width, 7, steps)


def figure(title, description, unit, *queries, width=SIXTH, steps=None):
    """Builds a panel that shows the latest value as a large number."""
    return with_queries(stat.Panel(), title, description, unit, queries, width, 4, steps)


def row(title):
    return dashboard.Row(title)


def variable(name, metric):
    return (dashboard.QueryVariable(name).label(name).datasource(SOURCE)
            .query(f"label_values({metric}, {name})").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True).include_all(True).all_value(".*")
            .current(VariableOption(selected=True, text="All", value="$__all")))


def page(uid, title, description, *panels):
    made = (dashboard.Dashboard(title).uid(uid).description(description).tags(["genesis"])
            .refresh("15s").time("now-3h", "now").timezone("browser").readonly()
            .link(dashboard.DashboardLink("Genesis").type("dashboards").tags(["genesis"])
                  .as_dropdown(True).include_vars(True).keep_time(True))
            .with_variable(dashboard.DatasourceVariable("datasource").label("data source")
                           .type("prometheus"))
            .with_variable(variable("deployment", "genesis_build_info"))
            .with_variable(variable("instance", "genesis_build_info")))
    for number, panel in enumerate(panels, 1):
        panel.id(number)
        if isinstance(panel, dashboard.Row):
            made.with_row(panel)
        else:
            made.with_panel(panel)
    return made.build()


def quantile(q, histogram, by="", where=CHOSEN):
    return (f"histogram_quantile({q}, sum by (le{by}) "
            f"(rate({histogram}_bucket{{{where}}}[{RATE}])))")


def side_by_side():
    """Builds a row with pairs of panels, stable on the left and canary on the right."""
    panels = [row("Stable and canary, side by side")]
    shown = [
        ("success rate", "Jobs that succeeded, of those that ended within an hour.", "percentunit",
         'deployment:genesis_training_success:ratio_increase1h{{deployment="{0}"}}'),
        ("overflow", "Part of the steps in reduced precision that overflowed, over an hour.",
         "percentunit", 'deployment:genesis_fp16_overflow:ratio_rate1h{{deployment="{0}"}}'),
        ("job duration, 95 %", "Of the jobs that ended within an hour.", "s",
         'deployment:genesis_training_duration_seconds:p95_1h{{deployment="{0}"}}'),
        ("throughput", "Transitions trained on per second.", "ops",
         'deployment:genesis_training_samples:rate5m{{deployment="{0}"}}'),
    ]
    for title, description, unit, expression in shown:
        for name in ("stable", "canary"):
            panels.append(graph(f"{name.capitalize()}: {title}", description, unit,
                                (expression.format(name), name)))
    return panels


def overview():
    return page(
        "genesis-overview", "Genesis: overview", "Is training going well, and where is it not.",
        row("Now"),
        figure("Running", "Jobs that run.", "short",
               (f'sum(genesis_jobs{{state="running", {CHOSEN}}})', "")),
        figure("Queued", "Jobs that wait for a slot.", "short",
               (f"sum(genesis_queue_depth{{{CHOSEN}}})", "")),
        figure("Success rate", "Jobs that succeeded, of those that ended within an hour.",
               "percentunit",
               (f"sum(increase(genesis_training_success_total{{{CHOSEN}}}[1h])) "
                f"/ sum(increase(genesis_training_total{{{CHOSEN}}}[1h]))", ""),
               steps=[(None, "red"), (0.95, "yellow"), (0.98, "green")]),
        figure("Throughput", "Transitions trained on per second.", "ops",
               (f"sum(rate(genesis_training_samples_total{{{CHOSEN}}}[{RATE}]))", "")),
        figure("Daemons that are ready", "Of those that Prometheus reaches.", "short",
               (f"sum(genesis_ready{{{CHOSEN}}})", "")),
        figure("Firing alerts", "Rules of deploy/prometheus that fire now.", "short",
               ('count(ALERTS{alertname=~"FP16.*|Genesis.*", alertstate="firing"}) or vector(0)',
                ""), steps=[(None, "green"), (1, "red")]),
        row("Jobs"),
        graph("Jobs by state", "Finished ones are those that the daemon remembers.", "short",
              (f"sum by (state) (genesis_jobs{{{CHOSEN}}})", "{{state}}")),
        graph("Jobs that ended", "By state and, for failed ones, cause.", "short",
              (f"sum by (state, cause) (increase(genesis_jobs_finished_total{{{CHOSEN}}}[{RATE}]))",
               "{{state}} {{cause}}")),
        graph("Job duration", "From the first step of work to the end.", "s",
              (quantile(0.5, "genesis_training_duration_seconds"), "half"),
              (quantile(0.95, "genesis_training_duration_seconds"), "95 %")),
        graph("Queue and slots", "Jobs that wait, and jobs that can run at once.", "short",
              (f"sum(genesis_queue_depth{{{CHOSEN}}})", "queued"),
              (f"sum(genesis_worker_slots{{{CHOSEN}}})", "slots")),
        *side_by_side(),
        row("Daemons"),
        graph("Processor", "Of the daemon; workers are processes of their own.", "percentunit",
              (f"rate(process_cpu_seconds_total{{{CHOSEN}}}[{RATE}])", "{{instance}}")),
        graph("Memory", "Resident, of the daemon.", "bytes",
              (f"process_resident_memory_bytes{{{CHOSEN}}}", "{{instance}}")),
        graph("Requests", "By protocol and code.", "reqps",
              (f"sum by (protocol, code) (rate(genesis_requests_total{{{CHOSEN}}}[{RATE}]))",
               "{{protocol}} {{code}}")),
        graph("File handles", "Open, of what is allowed.", "percentunit",
              (f"process_open_fds{{{CHOSEN}}} / process_max_fds{{{CHOSEN}}}", "{{instance}}")),
        figure("Version", "What runs.", "short",
               (f"sum by (version) (genesis_build_info{{{CHOSEN}}})", "{{version}}"), width=THIRD),
        figure("Up since", "Start of the daemon.", "dateTimeFromNow",
               (f"min(process_start_time_seconds{{{CHOSEN}}}) * 1000", ""), width=THIRD),
        figure("Settings in error", "Could not be read and were replaced by safe ones.", "short",
               (f"sum(genesis_config_errors{{{CHOSEN}}})", ""), width=THIRD,
               steps=[(None, "green"), (1, "red")]),
    )


def precision():
    return page(
        "genesis-precision", "Genesis: precision and rollback",
        "Whether reduced precision is on, how it does, and what was rolled back.",
        row("Now"),
        figure("Gate", "1: jobs may run in reduced precision. 0: every job runs in FP32.", "short",
               (f"min(genesis_reduced_precision_enabled{{{CHOSEN}}})", "")),
        figure("Newest job runs in", "Effective precision and device.", "short",
               (f"genesis_effective_precision_info{{{CHOSEN}}}", "{{mode}} on {{device}}")),
        figure("Overflow", "Of the steps in reduced precision, over 5 minutes.", "percentunit",
               (f"max(genesis:fp16_overflow:ratio_rate5m{{{CHOSEN}}})", ""),
               steps=[(None, "green"), (0.05, "yellow"), (0.1, "orange"), (0.3, "red")]),
        figure("Divergence", "How far the loss is from FP32's.", "percentunit",
               (f"genesis:training_loss:divergence_ratio{{{CHOSEN}}}", "{{instance}}"),
               steps=[(None, "green"), (0.05, "orange"), (0.2, "red")]),
        figure("Rollbacks", "Moves of running jobs to a safer precision, in a day.", "short",
               (f'sum(increase(genesis_precision_changes_total{{trigger!="promotion", {CHOSEN}}}'
                "[1d]))", "")),
        figure("Failed jobs", "Of those that ended within an hour.", "percentunit",
               (f"max(genesis:training_failures:ratio_increase1h{{{CHOSEN}}})", ""),
               steps=[(None, "green"), (0.05, "orange"), (0.5, "red")]),
        row("Numbers"),
        graph("Overflow rate", "P2 above 10 %, P1 above 30 %. An overflow needs a lower loss scale.",
              "percentunit", (f"genesis:fp16_overflow:ratio_rate5m{{{CHOSEN}}}", "{{instance}}"),
              steps=[(None, "green"), (0.1, "orange"), (0.3, "red")]),
        graph("Loss and FP32's loss", "The same workload at the same step.", "none",
              (f"genesis_training_loss{{{CHOSEN}}}", "now {{instance}}"),
              (f"genesis_fp32_baseline_loss{{{CHOSEN}}}", "FP32 {{instance}}")),
        graph("Loss scale", "Halved by an overflow, doubled after a clean interval.", "none",
              (f"genesis_loss_scale{{{CHOSEN}}}", "{{instance}}")),
        graph("Changes of the scale", "Per second.", "ops",
              (f"sum(rate(genesis_scale_backoffs_total{{{CHOSEN}}}[{RATE}]))", "lower"),
              (f"sum(rate(genesis_scale_growths_total{{{CHOSEN}}}[{RATE}]))", "higher")),
        graph("Steps by precision", "Per second, skipped ones included.", "ops",
              (f"sum by (mode) (rate(genesis_optimizer_steps_total{{{CHOSEN}}}[{RATE}]))",
               "{{mode}}")),
        graph("Skipped steps", "Per second.", "ops",
              (f"sum by (reason) (rate(genesis_skipped_steps_total{{{CHOSEN}}}[{RATE}]))",
               "{{reason}}")),
        row("What was done about it"),
        graph("Precision changes", "All but promotion are rollbacks.", "short",
              (f"sum by (trigger) (increase(genesis_precision_changes_total{{{CHOSEN}}}[{RATE}]))",
               "{{trigger}}")),
        graph("Incidents", "Rules of the watchdog that fired, since the daemon's start.", "short",
              (f"sum by (rule) (genesis_incidents_total{{{CHOSEN}}})", "{{rule}}")),
        row("What it is worth"),
        graph("Speed beside FP32", "Of the slowest running job, on its own workload; 2 is twice as fast. "
              "P2 is decided by times measured in turn.", "none",
              (f"genesis:step_speed:ratio_to_fp32{{{CHOSEN}}}", "{{instance}}"),
              steps=[(None, "red"), (0.8, "green")]),
        graph("Duration of a step", "Mean over half an hour.", "s",
              (f"genesis:step_duration_seconds:mean30m{{{CHOSEN}}}", "{{mode}} {{instance}}")),
        graph("GPU memory beside FP32", "Of the tensors; above 80 % FP16 saves too little.",
              "percentunit",
              (f"genesis:cuda_memory:fp16_to_fp32_ratio{{{CHOSEN}}}", "{{instance}}"),
              steps=[(None, "green"), (0.8, "orange")]),
        graph("GPU memory by precision", "Allocated at the last report.", "bytes",
              (f"genesis_cuda_memory_allocated_bytes{{{CHOSEN}}}", "{{mode}} {{instance}}")),
    )


def job():
    return page(
        "genesis-job", "Genesis: one job",
        "The job that reported last: choose one instance. Metrics carry no job's name; "
        "`genesisctl job NAME` and /api/training/status have it.",
        row("Learning"),
        graph("Loss", "Training loss, FP32's at the same step, and on held-out data.", "none",
              (f"genesis_training_loss{{{CHOSEN}}}", "training"),
              (f"genesis_fp32_baseline_loss{{{CHOSEN}}}", "FP32"),
              (f"genesis_held_out_loss{{{CHOSEN}}}", "held out")),
        graph("Norm of the gradients", "Unscaled, before clipping.", "none",
              (f"genesis_grad_norm{{{CHOSEN}}}", "{{instance}}")),
        row("Speed"),
        graph("Steps", "Per second, by precision.", "ops",
              (f"sum by (mode) (rate(genesis_optimizer_steps_total{{{CHOSEN}}}[{RATE}]))",
               "{{mode}}")),
        graph("Samples", "Per second.", "ops",
              (f"sum(rate(genesis_training_samples_total{{{CHOSEN}}}[{RATE}]))", "samples")),
        graph("Duration of a step", "Half, 95 % and 99 % of the steps are shorter.", "s",
              (quantile(0.5, "genesis_step_duration_seconds", ", mode"), "half, {{mode}}"),
              (quantile(0.95, "genesis_step_duration_seconds", ", mode"), "95 %, {{mode}}"),
              (quantile(0.99, "genesis_step_duration_seconds", ", mode"), "99 %, {{mode}}")),
        graph("Time since a step", "Since any worker reported one.", "s",
              (f"time() - genesis_last_step_timestamp_seconds{{{CHOSEN}}}", "{{instance}}")),
        graph("Waiting for other ranks", "Part of a step, of the rank that waits longest.", "percentunit",
              (f"genesis_rank_wait_ratio{{{CHOSEN}}}", "{{instance}}"),
              steps=[(None, "green"), (0.5, "orange")]),
        row("Safety"),
        graph("Duration of a checkpoint", "From the snapshot until it is durable.", "s",
              (quantile(0.5, "genesis_checkpoint_duration_seconds"), "half"),
              (quantile(0.95, "genesis_checkpoint_duration_seconds"), "95 %")),
        graph("Checkpoints", "Written and failed.", "short",
              (f"sum(increase(genesis_checkpoints_total{{{CHOSEN}}}[{RATE}]))", "durable"),
              (f"sum(increase(genesis_checkpoint_failures_total{{{CHOSEN}}}[{RATE}]))", "failed")),
        figure("Newest checkpoint", "Its size.", "bytes",
               (f"genesis_checkpoint_bytes{{{CHOSEN}}}", "{{instance}}"), width=THIRD),
        figure("Work at risk", "Since when no checkpoint protects a running job.", "s",
               (f"time() - genesis_unprotected_since_timestamp_seconds{{{CHOSEN}}}",
                "{{instance}}"), width=THIRD, steps=[(None, "green"), (3600, "orange")]),
        figure("Runs in", "Effective precision and device.", "short",
               (f"genesis_effective_precision_info{{{CHOSEN}}}", "{{mode}} on {{device}}"),
               width=THIRD),
    )


def devices():
    by_device = "{{instance}} {{device}}"
    return page(
        "genesis-devices", "Genesis: workers and devices",
        "What trains, on what, and whether it is healthy.",
        row("Workers"),
        graph("Workers", "Busy ones run a job; warm ones wait for one.", "short",
              (f"sum by (state) (genesis_workers{{{CHOSEN}}})", "{{state}}"),
              (f"sum(genesis_worker_slots{{{CHOSEN}}})", "slots")),
        graph("Workers that were replaced", "Since the daemon's start, by reason.", "short",
              (f"sum by (reason) (genesis_worker_restarts_total{{{CHOSEN}}})", "{{reason}}")),
        row("GPUs"),
        graph("Memory in use", "Of the whole device, by any process.", "percentunit",
              (f"genesis_gpu_memory_used_bytes{{{CHOSEN}}} "
               f"/ genesis_gpu_memory_total_bytes{{{CHOSEN}}}", by_device)),
        graph("Utilization", "Part of the time in which a kernel ran.", "percentunit",
              (f"genesis_gpu_utilization_ratio{{{CHOSEN}}}", by_device)),
        graph("Power", "Drawn now.", "watt", (f"genesis_gpu_power_watts{{{CHOSEN}}}", by_device)),
        graph("Temperature", "Of the chip.", "celsius",
              (f"genesis_gpu_temperature_celsius{{{CHOSEN}}}", by_device)),
        graph("Slowed down", "1 for each reason that holds the clock back.", "short",
              (f"genesis_gpu_throttled{{{CHOSEN}}}", by_device + " {{reason}}")),
        graph("Quarantined", "1 while a device gets no jobs.", "short",
              (f"genesis_device_quarantined{{{CHOSEN}}}", by_device)),
        graph("Memory of the tensors", "Of the worker's CUDA allocator, by precision.", "bytes",
              (f"genesis_cuda_memory_allocated_bytes{{{CHOSEN}}}", "allocated {{mode}}"),
              (f"genesis_cuda_memory_peak_bytes{{{CHOSEN}}}", "peak {{mode}}"),
              (f"genesis_cuda_memory_reserved_bytes{{{CHOSEN}}}", "reserved {{mode}}"),
              width=FULL),
        row("Volumes"),
        graph("Free space", "Of the volumes for data and checkpoints.", "percentunit",
              (f"genesis_volume_free_bytes{{{CHOSEN}}} / genesis_volume_size_bytes{{{CHOSEN}}}",
               "{{instance}} {{volume}}"), width=FULL,
              steps=[(None, "red"), (0.03, "orange"), (0.1, "green")]),
    )


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else (
        pathlib.Path(__file__).resolve().parent / "dashboards")
    folder.mkdir(parents=True, exist_ok=True)
    for made in (overview(), precision(), job(), devices()):
        text = JSONEncoder(sort_keys=True, indent=2).encode(made)
        (folder / f"{made.uid}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
