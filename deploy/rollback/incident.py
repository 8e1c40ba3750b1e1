#!/usr/bin/env python3
"""Prints the incident texts of a rollback from the data saved before and after it: the alert or notice, then the all-clear.

A value that was not measured is marked as such."""

import argparse
import json
import pathlib
import re

SERIES = re.compile(r"^([a-z0-9_]+)(?:\{[^}]*\})? (\S+)$")


class Snapshot:
    """The data in one folder that snapshot() of post_mortem.sh wrote."""

    def __init__(self, folder):
        self.metrics = {}
        if (folder / "metrics.txt").exists():
            for line in (folder / "metrics.txt").read_text().splitlines():
                found = SERIES.match(line)
                if found:
                    name, value = found.groups()
                    self.metrics[name] = self.metrics.get(name, 0.0) + float(value)
        self.jobs = self.document(folder / "jobs.json").get("jobs", [])
        self.status = self.document(folder / "status.json")

    @staticmethod
    def document(path):
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return {}

    def ratio(self, part, whole):
        if not self.metrics.get(whole):
            return None
        return self.metrics.get(part, 0.0) / self.metrics[whole]

    def running(self):
        return [job for job in self.jobs if job.get("state") == "JOB_STATE_RUNNING"]

    def reduced(self):
        return [job for job in self.running()
                if "16" in job.get("precision", {}).get("mode", "")]

    def samples_per_second(self):
        speeds = [job.get("progress", {}).get("samples_per_second", 0) for job in self.running()]
        return sum(speeds) or None

    def loss(self):
        return self.metrics.get("genesis_training_loss")

    def baseline(self):
        return self.metrics.get("genesis_fp32_baseline_loss")

    def step_milliseconds(self):
        seconds = self.ratio("genesis_step_duration_seconds_sum", "genesis_step_duration_seconds_count")
        return None if seconds is None else 1000 * seconds

    def device_mebibytes(self):
        allocated = self.metrics.get("genesis_cuda_memory_allocated_bytes")
        return None if allocated is None else allocated / 2**20

    def deviation(self):
        divergence = self.metrics.get("genesis_loss_divergence_ratio")
        return None if divergence is None else abs(divergence)


def percent(value):
    return "not measured" if value is None else f"{value:.1%}"


def figure(value, unit):
    return "not measured" if value is None else f"{value:,.0f} {unit}"


def small(value, unit=""):
    return "not measured" if value is None else f"{value:.4g}{unit}"


def overflow(snapshot):
    return snapshot.ratio("genesis_fp16_overflow_steps_total", "genesis_fp16_training_steps_total")


def success(snapshot):
    return snapshot.ratio("genesis_training_success_total", "genesis_training_total")


def actions(flags, before):
    jobs = len(before.reduced())
    if flags.procedure == "gradual":
        return [f"New training jobs use FP32 (on {flags.target})",
                f"In-flight jobs in reduced precision completed normally ({jobs} at the beginning)",
                "Service restarted with ENABLE_FP16_TRAINING=false"]
    handled = "killed; they go on from their last checkpoint" if flags.forced else "checkpointed"
    return [f"FP16 disabled (ENABLE_FP16_TRAINING=false on {flags.target})",
            f"In-flight jobs {handled} ({len(before.running())} ran, {jobs} of them in reduced precision)",
            "Service restarted in FP32"]


def alert(flags, before):
    emergency = flags.procedure == "emergency"
    subject = ("Genesis FP16 Training Rollback - Action Required" if emergency
               else "Genesis FP16 Gradual Rollback")
    lines = [f"SUBJECT: [{flags.severity}] {subject}", "",
             f"IMPACT: {flags.reason}",
             f"STATUS: {'done' if flags.checks_failed == 0 else 'NOT VERIFIED'} in {flags.recovered}", "",
             "ACTIONS TAKEN:"]
    lines += [f"{index}. {text}" for index, text in enumerate(actions(flags, before), 1)]
    lines += ["", "FIGURES BEFORE:",
              f"- Training success rate: {percent(success(before))}",
              f"- Overflow rate: {percent(overflow(before))}",
              f"- Loss against the FP32 baseline: {percent(before.deviation())} off",
              f"- Throughput: {figure(before.samples_per_second(), 'samples/s')}", "",
              "NEXT STEPS:",
              "1. Monitor training success rate (target >95%)",
              "2. Verify loss convergence matches baseline",
              "3. Post-mortem scheduled for [TIME]"]
    return lines + (["", f"CURRENT STATUS: {flags.dashboard}"] if flags.dashboard else [])


def all_clear(flags, before, after):
    if flags.checks_failed:
        return [f"No all-clear: {flags.checks_failed} checks failed."]
    enabled = after.status.get("fp16_enabled_runtime")
    return ["SUBJECT: [RESOLVED] Genesis FP16 Rollback Complete", "",
            "STATUS: FP32 mode confirmed" if enabled is False else "STATUS: FP32 mode NOT confirmed",
            f"DURATION: Rollback completed in {flags.recovered}", "",
            "VERIFICATION (since the restart):",
            f"- Training success rate: {percent(success(after))}",
            f"- Loss: {small(after.loss())} (before: {small(before.loss())}, FP32 baseline: {small(before.baseline())})",
            f"- Overflow errors: {after.metrics.get('genesis_fp16_overflow_steps_total', 0):.0f}",
            f"- Steps in reduced precision: {after.metrics.get('genesis_fp16_training_steps_total', 0):.0f}",
            f"- Jobs in reduced precision: {len(after.reduced())}", "",
            "PERFORMANCE:",
            f"- Training time: {small(after.step_milliseconds(), ' ms a step')}"
            f" (before: {small(before.step_milliseconds(), ' ms a step')})",
            f"- VRAM usage: {figure(after.device_mebibytes(), 'MiB')}"
            f" (before: {figure(before.device_mebibytes(), 'MiB')})",
            f"- Throughput: {figure(after.samples_per_second(), 'samples/s')}"
            f" (before: {figure(before.samples_per_second(), 'samples/s')})", "",
            "ROOT CAUSE: [Brief description]", "FOLLOW-UP: Post-mortem scheduled for [TIME]"]


def main():
    parser = argparse.ArgumentParser()
    for name in ("--folder", "--procedure", "--severity", "--target", "--recovered", "--reason"):
        parser.add_argument(name, required=True)
    parser.add_argument("--checks-failed", type=int, default=0)
    parser.add_argument("--forced", action="store_true")
    parser.add_argument("--dashboard", default="")
    flags = parser.parse_args()
    folder = pathlib.Path(flags.folder)
    before, after = Snapshot(folder / "before"), Snapshot(folder / "after")
    steps = [line.split("\t") for line in (folder / "steps.tsv").read_text().splitlines()]
    timeline = ["", "TIMELINE:"] + [f"- {took:>8}  {text}" for took, text in steps]
    print("\n".join(alert(flags, before) + timeline + ["", "-" * 72, ""] +
                    all_clear(flags, before, after)))


if __name__ == "__main__":
    main()
