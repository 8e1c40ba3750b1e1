"""The incident texts of a rollback from the data saved before and after it: the alert or notice, then the all-clear.

A value that was not measured is marked as such."""

import json
import re

SERIES = re.compile(r"^([a-z0-9_]+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Snapshot:
    """The data in one folder that `PostMortem.snapshot` wrote, in which the values are texts."""

    def __init__(self, folder):
        self.metrics = {}
        for name, value in SERIES.findall(read(folder / "metrics.txt")):
            self.metrics[name] = self.metrics.get(name, 0.0) + float(value)
        self.status = json_of(folder / "status.json")
        self.running = [job for job in json_of(folder / "jobs.json").get("jobs", []) if job.get("state") == "JOB_STATE_RUNNING"]
        self.reduced = [job for job in self.running if "16" in job.get("precision", {}).get("mode", "")]
        speed = sum(job.get("progress", {}).get("samples_per_second", 0) for job in self.running)
        self.success = shown("{:.1%}", self.ratio("genesis_training_success_total", "genesis_training_total"))
        self.overflow = shown("{:.1%}", self.ratio("genesis_fp16_overflow_steps_total", "genesis_fp16_training_steps_total"))
        self.deviation = shown("{:.1%}", self.metrics.get("genesis_loss_divergence_ratio"), abs)
        self.loss = shown("{:.4g}", self.metrics.get("genesis_training_loss"))
        self.baseline = shown("{:.4g}", self.metrics.get("genesis_fp32_baseline_loss"))
        self.step_time = shown("{:.4g} ms a step", self.ratio("genesis_step_duration_seconds_sum", "genesis_step_duration_seconds_count"),
                               lambda seconds: 1000 * seconds)
        self.memory = shown("{:,.0f} MiB", self.metrics.get("genesis_cuda_memory_allocated_bytes"), lambda size: size / 2**20)
        self.throughput = shown("{:,.0f} samples/s", speed or None)

    def ratio(self, part, whole):
        return self.metrics.get(part, 0.0) / self.metrics[whole] if self.metrics.get(whole) else None


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def json_of(path):
    try:
        return json.loads(read(path))
    except ValueError:
        return {}


def shown(form, value, convert=float):
    return "not measured" if value is None else form.format(convert(value))


def actions(options, target, before):
    jobs = len(before.reduced)
    if options.procedure == "gradual":
        return [f"New training jobs use FP32 (on {target})",
                f"In-flight jobs in reduced precision completed normally ({jobs} at the beginning)",
                "Service restarted with ENABLE_FP16_TRAINING=false"]
    handled = "killed; they go on from their last checkpoint" if options.force else "checkpointed"
    return [f"FP16 disabled (ENABLE_FP16_TRAINING=false on {target})",
            f"In-flight jobs {handled} ({len(before.running)} ran, {jobs} of them in reduced precision)",
            "Service restarted in FP32"]


def alert(options, target, recovered, checks_failed, before):
    subject = "Training Rollback - Action Required" if options.procedure == "emergency" else "Gradual Rollback"
    numbered = [f"{number}. {text}" for number, text in enumerate(actions(options, target, before), 1)]
    return [f"SUBJECT: [{options.severity}] Genesis FP16 {subject}", "",
            f"IMPACT: {options.reason}",
            f"STATUS: {'NOT VERIFIED' if checks_failed else 'done'} in {recovered}", "",
            "ACTIONS TAKEN:", *numbered, "",
            "FIGURES BEFORE:",
            f"- Training success rate: {before.success}",
            f"- Overflow rate: {before.overflow}",
            f"- Loss against the FP32 baseline: {before.deviation} off",
            f"- Throughput: {before.throughput}", "",
            "NEXT STEPS:",
            "1. Monitor training success rate (target >95%)",
            "2. Verify loss convergence matches baseline",
            "3. Post-mortem scheduled for [TIME]",
            *(["", f"CURRENT STATUS: {options.dashboard}"] if options.dashboard else [])]


def all_clear(recovered, before, after):
    confirmed = after.status.get("fp16_enabled_runtime") is False
    return ["SUBJECT: [RESOLVED] Genesis FP16 Rollback Complete", "",
            f"STATUS: FP32 mode {'confirmed' if confirmed else 'NOT confirmed'}",
            f"DURATION: Rollback completed in {recovered}", "",
            "VERIFICATION (since the restart):",
            f"- Training success rate: {after.success}",
            f"- Loss: {after.loss} (before: {before.loss}, FP32 baseline: {before.baseline})",
            f"- Overflow errors: {after.metrics.get('genesis_fp16_overflow_steps_total', 0):.0f}",
            f"- Steps in reduced precision: {after.metrics.get('genesis_fp16_training_steps_total', 0):.0f}",
            f"- Jobs in reduced precision: {len(after.reduced)}", "",
            "PERFORMANCE:",
            f"- Training time: {after.step_time} (before: {before.step_time})",
            f"- VRAM usage: {after.memory} (before: {before.memory})",
            f"- Throughput: {after.throughput} (before: {before.throughput})", "",
            "ROOT CAUSE: [Brief description]", "FOLLOW-UP: Post-mortem scheduled for [TIME]"]


def text(folder, options, target, recovered, checks_failed):
    """Returns the texts for a rollback on `target`, with snapshots and step times in a folder. `recovered` is the time until FP32."""
    before, after = Snapshot(folder / "before"), Snapshot(folder / "after")
    steps = [line.split("\t") for line in read(folder / "steps.tsv").splitlines()]
    end = [f"No all-clear: {checks_failed} checks failed."] if checks_failed else all_clear(recovered, before, after)
    return "\n".join([*alert(options, target, recovered, checks_failed, before), "", "TIMELINE:",
                      *(f"- {took:>8}  {step}" for took, step in steps), "", "-" * 72, "", *end, ""])
