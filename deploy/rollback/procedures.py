"""The procedures of docs/rollback.md: tables of steps."""

import sys
import tempfile
import time

import compare
import criteria
from arguments import one_of
from command import Failure, unusable
from daemon import Daemon
from post_mortem import PostMortem
from progress import Progress
from target_compose import SERVICE, Compose
from target_kubernetes import Kubernetes
from target_systemd import UNIT, Systemd
from verification import Verification

# In the order in which they are searched for.
KINDS = (Systemd, Compose, Kubernetes)
NOT_MET = 3
POLICY_WITHDRAWN = "gradual rollback is done: ENABLE_FP16_TRAINING=false holds the gate shut"


class Procedures:
    """The procedures on the target that the options name, or that is found; raises `Failure` if there is none. Each procedure is a method
    without arguments that returns the exit code."""

    def __init__(self, options):
        self.options = options
        self.progress = Progress(options)
        self.target = choose_target(options, self.progress)
        self.daemon = Daemon(self.target)
        self.checks = Verification(self.daemon)
        self.post_mortem = PostMortem(self.daemon)
        self.recovered = ""

    def perform(self, title, steps, confirmation=()):
        """Runs the steps and returns the exit code; raises `Failure` if a check failed."""
        code = self.progress.perform(f"{title} on {self.target.kind}: {self.target.name()}", steps, confirmation)
        if code:
            return code
        if self.checks.failed:
            raise Failure(f"{self.checks.failed} checks FAILED; the service is not known to run in FP32. "
                          f"Look at {self.target.log_hint()}")
        print("Nothing was changed." if self.options.dry_run else f"Done in {self.progress.elapsed()}.")
        return 0

    def emergency(self):
        running = "KILLED and go on from their last checkpoint" if self.options.force else "checkpointed first"
        question = f"Every job goes to FP32: the gate is shut and the service restarted. Running jobs are {running}."
        return self.roll_back("Emergency rollback", question, [
            ("Gate shut for this and every later start", lambda: self.target.set_gate("false")),
            ("Restart in FP32", self.restart_in_fp32)])

    def gradual(self):
        """Lets running jobs finish unchanged while new ones start in FP32; then restarts, when no job is disturbed."""
        question = ("New attempts start in FP32 from now on; running jobs finish as they are, up to "
                    f"{self.options.wait_minutes} minutes; then the service is restarted with the gate shut.")
        return self.roll_back("Gradual rollback", question, [
            ("New attempts in FP32", self.shut_for_new_attempts),
            ("Wait for the jobs that train in reduced precision", self.wait_for_jobs),
            ("Restart in FP32", self.restart_in_fp32)])

    def roll_back(self, title, question, steps):
        self.post_mortem.create()
        return self.perform(title, [
            ("What the daemon says now", lambda: self.post_mortem.snapshot("before")), *steps,
            ("Verify FP32", self.verify_recovery),
            ("Logs, metrics, history", self.post_mortem.collect_all),
            ("Incident text", lambda: self.post_mortem.write_incident(self.recovered, self.checks.failed)),
            ("Pack", self.post_mortem.pack)], ("rollback", question))

    def restart_in_fp32(self):
        gradual = self.options.procedure == "gradual"
        if self.options.force and not gradual:
            self.target.kill()
        self.restart("false")
        if gradual:
            # The environment closes the gate now, so the policy is no longer needed.
            self.progress.run(self.daemon.ctl("precision", "allow", "--reason", POLICY_WITHDRAWN))

    def restart(self, gate):
        self.target.restart(gate)
        self.daemon.wait_until_ready()

    def verify_recovery(self):
        self.checks.fp32()
        self.recovered = self.progress.elapsed()
        if self.options.procedure == "emergency":
            self.progress.note(f"in FP32 {self.recovered} after the beginning")

    def shut_for_new_attempts(self):
        self.progress.run(self.daemon.ctl("precision", "disable", "--running", "new-attempts", "--reason",
                                          f"gradual rollback: {self.options.reason}"))
        self.target.set_gate("false")

    def wait_for_jobs(self):
        minutes, note = self.options.wait_minutes, self.progress.note
        if self.options.dry_run:
            note(f"would wait at most {minutes} minutes")
            return
        last, deadline = None, time.monotonic() + minutes * 60
        while jobs := self.daemon.jobs_in_reduced_precision():
            if jobs != last:
                note(f"{len(jobs)} left: {' '.join(jobs)}")
            last = jobs
            if time.monotonic() >= deadline:
                note(f"{minutes} minutes are over; these are checkpointed at the restart and go on in FP32: {' '.join(jobs)}")
                return
            time.sleep(1)
        note("none is left")

    def status(self):
        target, daemon = self.target, self.daemon
        print(f"target       {target.kind}: {target.name()}")
        print(f"service      {target.running()}")
        print(f"gate         ENABLE_FP16_TRAINING={target.gate()} at the next start")
        reason = daemon.status("fp16_reason")
        print(f"running with {'no answer' if reason is None else reason}")
        print(f"jobs in reduced precision: {' '.join(daemon.jobs_in_reduced_precision() or ())}")
        return daemon.ctl("stats").run(stdout=None).returncode

    def verify(self):
        return self.perform("Verification", [("FP32 in service, log, status, metrics, jobs and a probe", self.checks.fp32)])

    def canary(self):
        """Runs FP32 on a part of the service, beside the rest: `compare` shows both, and operators decide."""
        actions = {"start": self.canary_start, "compare": self.canary_compare, "promote": self.canary_promote, "abort": self.canary_abort}
        if self.options.action not in actions:
            raise unusable(f'canary action "{self.options.action}"; accepted: start, compare, promote, abort')
        return actions[self.options.action]()

    def canary_start(self):
        question = ('This part of the service is restarted in FP32 with the label deployment="canary"; running jobs are '
                    "checkpointed first.")
        return self.perform("Canary: FP32 on a part", [
            ("FP32 for the canary", self.target.canary_start),
            ("It runs", lambda: self.target.canary_wait(self.daemon)),
            ("Verify FP32", self.checks.fp32)], ("canary", question))

    def canary_promote(self):
        """Ends reduced precision on the rest too."""
        return self.perform("Canary: FP32 everywhere", [
            ("FP32 for all", self.target.canary_promote), ("Ready", self.daemon.wait_until_ready), ("Verify FP32", self.checks.fp32)],
            ("promote", "The canary's FP32 becomes that of the whole service; what changes is restarted."))

    def canary_abort(self):
        return self.perform("Canary: as it was before", [
            ("The gate as it was", self.target.canary_abort), ("Ready", self.daemon.wait_until_ready)],
            ("abort", "The canary ends; its part of the service is restarted as it was before."))

    def canary_compare(self):
        if not self.options.prometheus:
            raise unusable("canary compare needs --prometheus URL, for it compares two services")
        for line in compare.table(self.options.prometheus, self.options.hours, self.options.now):
            print(line)
        return 0

    def re_enable(self):
        """Opens the gate again if the criteria allow it; otherwise changes nothing and returns `NOT_MET`."""
        code = self.perform(f"Re-enabling, stage {self.options.stage}", [
            (f"Success criteria of the last {self.options.days} days", self.check_criteria),
            ("Gate opened", lambda: self.target.set_gate("true")),
            ("Restart", lambda: self.restart("true")),
            ("Verify", self.checks.enabled)])
        if code == NOT_MET:
            print("Refused: nothing was changed. docs/rollback.md says what each criterion means.", file=sys.stderr)
        return code

    def check_criteria(self):
        options = self.options
        with tempfile.NamedTemporaryFile() as history:
            if not options.prometheus and not options.history:
                since = self.daemon.ctl("history", "--csv", "--since", f"{options.days + 1}d")
                if since.run(stdout=history).returncode != 0:
                    raise Failure("genesisctl history did not answer, so there are no figures; give --prometheus URL or --history FILE")
                options.history = history.name
            try:
                verdicts = criteria.verdicts(options)
            except Failure as failure:
                # Metrics that cannot be read do not meet any criterion.
                print(f"rollback.sh: {failure}", file=sys.stderr)
                return NOT_MET
        for text, met in verdicts:
            self.progress.note(criteria.line(text, met))
        if not all(met for _, met in verdicts):
            return NOT_MET
        self.progress.confirm("enable", "The criteria are met. The gate is opened and the service restarted; running jobs are "
                              "checkpointed first.")
        return None


def choose_target(options, progress):
    """Returns the target that the options name, or the first that is found, after its check."""
    targets = {kind.kind: kind(options, progress) for kind in KINDS}
    if options.target:
        one_of("--target", options.target, ("systemd", "kubernetes", "compose"))
    kind = options.target or next((kind for kind, target in targets.items() if target.found()), "")
    if not kind:
        raise Failure(f"no service was found: neither {UNIT}, nor {SERVICE} in {options.compose_file}, nor "
                      f"deployment/genesis-orchestrator in namespace {options.namespace}. Name one with --target")
    targets[kind].check()
    return targets[kind]


def run(options):
    """Runs the procedure of the options and returns the exit code."""
    return getattr(Procedures(options), options.procedure.replace("-", "_"))()
