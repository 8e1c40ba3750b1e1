"""Runs the drills of docs/rollback.md: with a real systemd and the installed package; and for Kubernetes and Compose with fakes that check
names and start and stop a real daemon."""

import datetime
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import unittest

from machine import Service  # Must come first, because it adds the harness to the path.
import tiers
from harness import BIN, LONG, SOURCE, clean_environment, wait_for

sys.path.append(str(SOURCE / "deploy" / "rollback"))
import arguments  # noqa: E402
import compare  # noqa: E402
import criteria  # noqa: E402
import figures_history  # noqa: E402
import target_kubernetes  # noqa: E402
from command import Failure, quoted  # noqa: E402

ROLLBACK = SOURCE / "deploy" / "rollback.sh"
FAKES = pathlib.Path(__file__).resolve().parent / "fakes"
EMULATED = ("ENABLE_FP16_TRAINING=true", "GENESIS_PRECISION_CPU_FALLBACK=emulate",
            "GENESIS_HISTORY_INTERVAL_SECONDS=1", "GENESIS_REHEARSALS_ALLOWED=true")


def job(steps):
    return f"""
model: {{world_model: {{hidden_size: 32, latent_size: 16}}}}
dataset:
  synthetic:
    trajectories: {{episodes: 32, episode_length: 32, observation_size: 8, action_size: 2}}
training: {{max_steps: {steps}, batch_size: 32}}
precision:
  mode: MIXED_FP16
  watchdog: {{slowdown: {{action: "OFF"}}, divergence: {{action: "OFF"}}}}
"""


def steps_of(output):
    """Returns (seconds since the start, text) of each step in the output."""
    return [(float(seconds), text) for seconds, text in
            re.findall(r"^\[ *([0-9.]+) s\] \d+/\d+ (.*)$", output, re.MULTILINE)]


def in_order(test, output, texts):
    at = 0
    for text in texts:
        found = output.find(text, at)
        test.assertGreaterEqual(found, 0, f"{text!r} after {output[:at]!r} in\n{output}")
        at = found + len(text)


PAGE = (SOURCE / "docs" / "rollback.md").read_text()
PLAN = pathlib.Path(__file__).with_name("rollback_plan_commands.txt").read_text().splitlines()
# Commands that need a GPU, which this machine lacks.
NEEDS_GPU = ("nvidia-smi",)
# Commands that do not end or that need a terminal, with text that must be in their output.
ENDLESS = {
    'tail -f /var/log/genesis/orchestrator.log | grep "FP32"': "FP16 training disabled - using FP32",
    'tail -f /var/log/genesis/orchestrator.log | grep -i "fp16\\|fp32"': "fp16_enabled: False",
    'tail -f /var/log/genesis/orchestrator.log | grep -i "fp32"': "FP16 training disabled - using FP32",
    "watch -n 5 'tail -20 /var/log/genesis/orchestrator.log | grep \"training complete\"'": "training complete",
    "top -p $(pgrep -d, genesis-worker)": "genesis"}


def replaced():
    """Returns {command of the founding plan: its replacement}, from the page."""
    section = PAGE.split("## Commands of the founding plan", 1)[1]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| .+ \|$", section, re.MULTILINE)
    return {ours.replace("\\|", "|"): theirs.replace("\\|", "|") for ours, theirs in rows}


class Page(unittest.TestCase):
    """Tests that docs/rollback.md names only what exists."""

    def test_what_it_replaces_is_of_the_plan(self):
        self.assertGreater(len(replaced()), 15)
        for command in replaced():
            self.assertIn(command, PLAN)

    def test_each_option_of_genesis_rollback_exists(self):
        usage = subprocess.run([ROLLBACK, "--help"], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"genesis-rollback ([^`\n|#]*)", PAGE)
        self.assertGreater(len(found), 15)
        for words in found:
            self.assertRegex(usage, rf"(?m)^  {re.escape(words.split()[0])}\b", words)
            for option in re.findall(r"--[a-z-]+", words):
                self.assertRegex(usage, rf"(?m)^  {option}\b", words)

    def test_each_command_and_option_of_genesisctl_exists(self):
        found = re.findall(r"genesisctl ([^`\n|]*)", PAGE)
        self.assertGreater(len(found), 15)
        for words in found:
            words = re.sub(r"--output \w+ ?", "", words).split()
            usage = subprocess.run([BIN / "genesisctl", words[0], "--help"], capture_output=True, text=True, check=True).stdout
            self.assertIn(f"Usage: genesisctl {words[0]}", usage)
            for option in words[1:]:
                if option.startswith("-"):
                    self.assertIn(f"  {option} ", usage, words)

    def test_each_metric_exists(self):
        listed = (SOURCE / "docs" / "metrics.md").read_text()
        for name in set(re.findall(r"genesis_[a-z0-9_]+", PAGE)):
            self.assertIn(f"`{name}`", listed)


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Service()
        cls.addClassCleanup(cls.machine.stop)

    def setUp(self):
        self.machine.run("rm -rf /tmp/pm*")
        self.machine.environment(*EMULATED)

    def tearDown(self):
        jobs = json.loads(self.machine.run("genesisctl --output json jobs").stdout)["jobs"]
        for each in jobs:
            self.machine.run(f"genesisctl cancel --now {each['id']}", check=False)

    def start_reduced(self, job_id, steps=100000000, more=""):
        self.machine.train(job_id, job(steps) + more)
        found = self.machine.wait_for_step(job_id, 5)
        self.assertEqual(found["precision"]["mode"], "PRECISION_MODE_MIXED_FP16")

    def test_emergency(self):
        self.start_reduced("storm")
        wait_for("its history", lambda: "storm," in self.machine.run("genesisctl history --csv").stdout)
        done = self.machine.run("genesis-rollback emergency --yes --output /tmp/pm "
                                "--reason 'overflow rate 45 %' --dashboard http://grafana/d/1")
        in_order(self, done.stdout, [
            "What the daemon says now", "Gate shut", "echo 'ENABLE_FP16_TRAINING=false' >> /etc/genesis/environment", "Restart in FP32",
            "systemctl restart genesis-trainer.service", "ready:", "Verify FP32", "ok      service: active",
            "FP16 training disabled - using FP32", "fp16_enabled: False", "fp16_enabled_runtime: false",
            "genesis_reduced_precision_enabled: 0", "jobs in reduced precision: none",
            "SUCCEEDED in FP32", "Done in"])
        self.assertNotIn("FAILED", done.stdout)
        # The founding documents require 5 minutes.
        recovered = float(re.search(r"in FP32 ([0-9.]+) s after", done.stdout).group(1))
        print(f"\nemergency on a real systemd: in FP32 after {recovered} s")
        self.assertLess(recovered, 60)
        # No step was lost, and the remaining steps are in FP32.
        log = self.machine.log()
        # The probe job may have stopped it once more.
        stopped = int(re.findall(r"job storm: stopped at step (\d+)", log)[0])
        self.assertIn(f"at step {stopped}", wait_for("the job to go on", lambda: next(
            (line for line in self.machine.log().splitlines()
             if "job storm: resumed from" in line), None)))
        self.assertEqual(self.machine.wait_for_step("storm", stopped + 5)["precision"]["mode"],
                         "PRECISION_MODE_FP32")
        # The service stays in FP32 after another restart.
        self.machine.run("systemctl restart genesis-orchestrator")
        self.machine.run("genesis-rollback verify")
        self.check_post_mortem()

    def check_post_mortem(self):
        files = self.machine.run("cd /tmp/pm && find . -type f").stdout.split()
        for each in ("./before/metrics.txt", "./before/status.json", "./after/metrics.txt",
                     "./details/logs/orchestrator.log", "./details/journal.txt", "./details/settings.txt",
                     "./details/environment.txt", "./incident.txt"):
            self.assertIn(each, files)
        # The post-mortem contains all files that the rollback plan collects.
        self.assertNotIn("./NOT_COLLECTED", files)
        for name in ("history.csv", "fp16-stats.csv"):
            self.assertRegex(self.machine.read(f"/tmp/pm/details/{name}"), r"storm,\d+,MIXED_FP16,")
        exported = json.loads(self.machine.read("/tmp/pm/details/metrics-export.json"))
        self.assertIn("storm", {each["job_id"] for each in exported["history"]})
        self.assertTrue(json.loads(self.machine.read("/tmp/pm/before/status.json"))
                        ["fp16_enabled_runtime"])
        packed = self.machine.run("tar tzf /tmp/pm.tar.gz").stdout
        self.assertIn("pm/incident.txt", packed)
        incident = self.machine.read("/tmp/pm/incident.txt")
        self.assertIn("SUBJECT: [P0] Genesis FP16 Training Rollback - Action Required", incident)
        self.assertIn("IMPACT: overflow rate 45 %", incident)
        self.assertIn("(1 ran, 1 of them in reduced precision)", incident)
        self.assertRegex(incident, r"Overflow rate: \d+\.\d%")
        self.assertRegex(incident, r"Throughput: [\d,]+ samples/s")
        self.assertIn("STATUS: FP32 mode confirmed", incident)
        self.assertIn("CURRENT STATUS: http://grafana/d/1", incident)

    @tiers.nightly
    def test_emergency_by_force_kills_what_does_not_stop(self):
        self.start_reduced("stuck")
        # A worker that ignores SIGTERM would delay the drain by 20 s.
        self.machine.run("pkill -STOP -f ^/usr/lib/genesis/genesis-worker")
        done = self.machine.run("genesis-rollback emergency --force --yes --output /tmp/pm")
        in_order(self, done.stdout, ["systemctl kill --signal=KILL", "systemctl restart", "Done in"])
        self.assertIn("killed; they go on from their last checkpoint",
                      self.machine.read("/tmp/pm/incident.txt"))

    def test_a_dry_run_changes_nothing(self):
        before = self.machine.property("MainPID")
        environment = self.machine.read("/etc/genesis/environment")
        for words in ("emergency", "emergency --force", "gradual", "canary start"):
            done = self.machine.run(f"genesis-rollback {words} --dry-run --output /tmp/pm")
            self.assertIn("+ systemctl restart genesis-trainer.service", done.stdout)
            self.assertIn("Nothing was changed.", done.stdout)
        self.assertEqual(self.machine.property("MainPID"), before)
        self.assertEqual(self.machine.read("/etc/genesis/environment"), environment)
        self.assertEqual(self.machine.run("ls -d /tmp/pm*", check=False).stdout, "")

    def test_nothing_is_done_without_a_word(self):
        before = self.machine.property("MainPID")
        done = self.machine.run("genesis-rollback emergency --output /tmp/pm", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nobody is at a terminal", done.stderr)
        for typed, code in (("yes", 1), ("rollback", 0)):
            # script(1) provides a terminal.
            done = self.machine.run("script -qec 'genesis-rollback emergency --output /tmp/pm' /dev/null",
                                    stdin=typed + "\n", check=False)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertEqual(self.machine.property("MainPID") == before, code == 1)
        self.assertIn("Done in", done.stdout)

    @tiers.nightly
    def test_verify_tells_when_it_is_not_fp32(self):
        self.start_reduced("reduced")
        done = self.machine.run("genesis-rollback verify", check=False)
        self.assertEqual(done.returncode, 1)
        for text in ("FAILED  log", "FAILED  /api/training/status fp16_enabled_runtime: true",
                     "FAILED  /metrics genesis_reduced_precision_enabled: 1",
                     "FAILED  jobs in reduced precision: reduced", "SUCCEEDED in MIXED_FP16"):
            self.assertIn(text, done.stdout)

    def test_verify_tells_when_nothing_runs(self):
        self.machine.run("systemctl stop genesis-trainer")
        done = self.machine.run("genesis-rollback verify", check=False)
        self.machine.run("systemctl start genesis-trainer")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED  service: inactive", done.stdout)

    @tiers.nightly
    def test_gradual(self):
        # The job takes at least half a minute, so that it is still running when the rollback starts.
        slow = "rehearsals: [{kind: SLOW, at_step: 1, steps: 2000, amount: 0.015}]\n"
        self.start_reduced("running", 2000, slow)
        with self.in_background("genesis-rollback gradual --yes --output /tmp/pm") as finish:
            wait_for("the policy", lambda: not json.loads(self.machine.run(
                "genesisctl --output json precision").stdout)["reduced_precision_enabled"])
            self.machine.train("later", job(50))
            done = finish()
        in_order(self, done, [
            "New attempts in FP32", "genesisctl", "precision disable --running new-attempts",
            "ENABLE_FP16_TRAINING=false", "Wait for the jobs", "1 left: running", "none is left",
            "systemctl restart genesis-trainer.service", "precision allow", "SUCCEEDED in FP32", "Done in"])
        running = self.machine.job("running")
        # The later job runs after the restart.
        later = wait_for("the job submitted meanwhile", lambda: (job := self.machine.job("later")).get("precision") and job)
        # The first job finished in FP16 without a restart. The later one ran in FP32.
        self.assertEqual((running["state"], running["precision"]["mode"], running.get("restarts", 0)),
                         ("JOB_STATE_SUCCEEDED", "PRECISION_MODE_MIXED_FP16", 0))
        self.assertEqual(running["progress"]["reduced_precision_steps"], "2000")
        self.assertEqual(later["precision"]["mode"], "PRECISION_MODE_FP32")
        # A single line opens the gate again, because the rollback has reset the policy.
        self.machine.run("echo ENABLE_FP16_TRAINING=true >> /etc/genesis/environment && "
                         "systemctl restart genesis-trainer")
        self.assertTrue(json.loads(self.machine.run("genesisctl --output json precision").stdout)
                        ["reduced_precision_enabled"])
        self.assertIn("[P2] Genesis FP16 Gradual Rollback", self.machine.read("/tmp/pm/incident.txt"))

    def in_background(self, command):
        machine = self.machine

        class Background:
            def __enter__(self):
                machine.run(f"({command}; echo code $?) > /tmp/pm-output 2>&1 &")
                return self.finish

            @staticmethod
            def finish():
                return wait_for(command, lambda: "\ncode " in machine.read("/tmp/pm-output") and
                                machine.read("/tmp/pm-output"))

            def __exit__(self, *_):
                self.finish()

        return Background()

    @tiers.nightly
    def test_gradual_does_not_wait_for_ever(self):
        self.start_reduced("endless")
        done = self.machine.run("genesis-rollback gradual --yes --wait-minutes 0 --output /tmp/pm")
        self.assertIn("0 minutes are over; these are checkpointed at the restart and go on in FP32: endless",
                      done.stdout)
        self.assertIn("SUCCEEDED in FP32", done.stdout)

    def commands_of(self, page):
        blocks = re.findall(r"^```sh needs-service\n(.*?)^```$",
                            (SOURCE / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
        return self.machine.run("set -eu\n" + "".join(blocks)).stdout

    def test_the_commands_of_the_runbook(self):
        # A finished job gives the commands of "root cause" some output.
        self.machine.train("done", job(20))
        wait_for("a job", lambda: "training complete" in self.machine.log())
        output = self.commands_of("rollback.md")
        self.assertIn("SUCCEEDED in FP32", output)
        self.assertIn("training complete", output)
        self.assertIn("fp16_enabled: True", output)

    def test_the_commands_of_other_pages_for_operators(self):
        self.commands_of("troubleshooting.md")
        self.commands_of("history.md")

    def looked_at(self, command):
        """Checks the output of an endless command on a terminal. Repeats the command if it ends, as top does when there is no worker."""
        shown = pathlib.Path("/tmp/pm-shown")
        self.machine.run(f"cat > {shown}.sh", stdin=command + "\n")
        self.machine.run(f"(TERM=xterm COLUMNS=200 timeout 600 script -qefc 'until bash {shown}.sh; do sleep 1; done' {shown} & echo $! > {shown}.pid) "
                         "> /dev/null 2>&1 < /dev/null")
        wait_for(command, lambda: ENDLESS[command] in self.machine.run(f"cat {shown}", check=False).stdout)
        self.machine.run(f"pkill --parent $(cat {shown}.pid); rm {shown}*", check=False)

    def test_the_commands_of_the_founding_plan(self):
        """Each command works unchanged, or the page has a replacement that works."""
        self.machine.run("genesis-rollback emergency --yes --output /tmp/pm")
        self.machine.train("done", job(20))
        wait_for("a job", lambda: "training complete" in self.machine.log())
        # One of the commands sets a policy that survives a restart.
        self.addCleanup(self.machine.run, "genesisctl precision allow")
        places, ran = replaced(), 0
        for command in [*[each for each in PLAN if each not in places], *places.values()]:
            # These commands are tested with the fakes and in test_kubernetes.
            if command.startswith(("kubectl", "docker-compose", "genesis-rollback", *NEEDS_GPU)):
                continue
            with self.subTest(command):
                ran += 1
                if command in ENDLESS:
                    self.looked_at(command)
                else:
                    done = self.machine.run('sudo() { "$@"; }; cd /tmp; ' + command)
                    self.assertNotIn("not found", done.stderr)
        self.assertGreater(ran, 12)

    def test_what_the_page_replaces_does_not_do_what_is_meant(self):
        for command in ('pkill -SIGTERM -f "^world_model.train"', "python3 verify_fp32_mode.py", "pgrep -x python"):
            self.assertNotEqual(self.machine.run(command, check=False).returncode, 0, command)
        self.machine.run("export ENABLE_FP16_TRAINING=false; systemctl restart genesis-orchestrator")
        self.assertTrue(json.loads(self.machine.run("genesisctl --output json precision").stdout)
                        ["reduced_precision_enabled"])

    def test_canary(self):
        done = self.machine.run("genesis-rollback canary start --yes")
        self.assertIn("SUCCEEDED in FP32", done.stdout)
        self.assertIn('genesis_ready{deployment="canary"} 1',
                      self.machine.run("curl -fsS 127.0.0.1:8080/metrics").stdout)
        self.machine.run("genesis-rollback canary abort --yes")
        metrics = self.machine.run("curl -fsS 127.0.0.1:8080/metrics").stdout
        self.assertIn('genesis_reduced_precision_enabled{deployment="stable"} 1', metrics)
        self.machine.run("genesis-rollback canary start --yes --no-probe")
        self.machine.run("genesis-rollback canary promote --yes")
        metrics = self.machine.run("curl -fsS 127.0.0.1:8080/metrics").stdout
        self.assertIn('genesis_reduced_precision_enabled{deployment="stable"} 0', metrics)

    def test_re_enable_refuses_and_allows(self):
        self.machine.environment("ENABLE_FP16_TRAINING=false", *EMULATED[1:])
        before = self.machine.property("MainPID")
        # The machine's own history starts today.
        done = self.machine.run("genesis-rollback re-enable --yes", check=False)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"NOT MET stable days: [01] of 7 \(1 days ago: no figures",
                         self.machine.run("genesisctl history --csv --since 7d").stdout)
        for name, code in (("bad", 3), ("good", 0)):
            self.machine.run(f"cat > /tmp/{name}.csv", stdin=history(good=name == "good"))
            done = self.machine.run(
                f"genesis-rollback re-enable --yes --history /tmp/{name}.csv --now {NOW}", check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertEqual(self.machine.property("MainPID") == before, code == 3)
        self.assertIn("met     training success rate: 100.00%, needs more than 98%", done.stdout)
        self.assertTrue(json.loads(self.machine.run("genesisctl --output json precision").stdout)
                        ["reduced_precision_enabled"])


NOW = "2026-03-10T00:00:00Z"
COLUMNS = ("timestamp,job_id,step,mode,loss,baseline_loss,loss_scale,training_steps,fp16_steps,"
           "overflow_steps,overflow_rate,fp16_enabled,memory_allocated_bytes,samples_per_second,state,"
           "divergence_ratio,held_out_loss,divergences")


def history(good=True, days=7, **changed):
    """Returns output like that of genesisctl history --csv for a canary with four jobs a day."""
    what = {"overflow": 4 if good else 80, "loss": 0.102 if good else 0.13,
            "failed_every": 1000 if good else 10, "nan_day": None, "space": " ", **changed}
    lines = [COLUMNS]
    number = 0
    for day in range(days):
        for hour in (1, 7, 13, 19):
            number += 1
            moment = f"2026-03-{9 - day:02d}{what['space']}{hour:02d}:30:00"
            state = "FAILED" if number % what["failed_every"] == 0 else "SUCCEEDED"
            loss = "" if day == what["nan_day"] and hour == 7 else what["loss"]
            for step, ended in ((500, "RUNNING"), (1000, state)):
                lines.append(f"{moment},job-{number},{step},MIXED_FP16,{loss},0.1,65536,{step},{step},"
                             f"{what['overflow'] * step // 1000},,1,,900,{ended}")
    return "\n".join(lines) + "\n"


def paired_history(chance, *, noise, alike, rows, jobs=1, decay=3, excess=0.0, excess_of=None, divergences=""):
    """Returns the history of jobs in MIXED_BF16, each paired with the same job in FP32. All run at the same time, and their losses fall by
    a factor of e^decay.

    Args:
        noise: relative noise of a mean over the watchdog's window.
        alike: correlation between consecutive windows.
    """

    def run():
        value = chance.gauss(0, noise / 2 ** 0.5)
        while True:
            yield value
            value = alike * value + chance.gauss(0, noise / 2 ** 0.5 * (1 - alike ** 2) ** 0.5)

    lines, begin = [COLUMNS], datetime.datetime(2026, 3, 9, 22)
    for job in range(jobs):
        reduced, fp32 = run(), run()
        more = (excess_of or {}).get(job, excess)
        for row in range(rows):
            baseline = math.exp(-decay * row / rows + next(fp32))
            loss = math.exp(-decay * row / rows + next(reduced)) * (1 + more)
            moment = begin - datetime.timedelta(days=job % 7, seconds=30 * (rows - row))
            state = "SUCCEEDED" if row == rows - 1 else "RUNNING"
            lines.append(f"{moment},job-{job},{100 * row + 100},MIXED_BF16,{loss * math.exp(chance.gauss(0, 0.3))},"
                         f"{baseline},,{100 * row + 100},{100 * row + 100},0,0,1,,900,{state},{loss / baseline - 1},,"
                         f"{divergences}")
    return "\n".join(lines) + "\n"


class Criteria(unittest.TestCase):
    """Tests the criteria of re-enable, from the history and from a Prometheus."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="genesis-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def judge(self, *words):
        """Returns the exit code and the output that the criteria give to genesis-rollback re-enable."""
        try:
            judged = criteria.verdicts(arguments.parse(["re-enable", "--now", NOW, *map(str, words)]))
        except Failure as failure:
            return subprocess.CompletedProcess(words, failure.code, "", str(failure))
        code = 0 if all(met for _, met in judged) else 3
        return subprocess.CompletedProcess(words, code, "".join(criteria.line(*each) + "\n" for each in judged), "")

    def judge_history(self, text, *words):
        path = self.folder / "history.csv"
        path.write_text(text)
        return self.judge("--history", path, *words)

    def test_all_met(self):
        for space in (" ", "T"):
            done = self.judge_history(history(space=space))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.splitlines(), [
                "met     training success rate: 100.00%, needs more than 98% (28 jobs ended)",
                "met     overflow rate: 0.40%, needs less than 5% (28000 steps in reduced precision)",
                "met     loss against the FP32 baseline: +2.00%, needs less than 5% "
                "(signed mean of 28 jobs, within chance)",
                "met     stable days: 7 of 7"])

    def test_each_criterion_refuses_with_its_figure(self):
        for changed, said in (
                ({"failed_every": 20}, "NOT MET training success rate: 96.43%"),
                ({"overflow": 51}, "NOT MET overflow rate: 5.10%"),
                ({"loss": 0.106}, "NOT MET loss against the FP32 baseline: +6.00%"),
                ({"nan_day": 3}, "NOT MET stable days: 6 of 7 (3 days ago: 2 losses were NaN or Inf)"),
                ({"days": 6}, "NOT MET stable days: 6 of 7 (6 days ago: no figures)")):
            done = self.judge_history(history(**changed))
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertIn(said, done.stdout)
            self.assertEqual(done.stdout.count("NOT MET"), 1, done.stdout)

    def losses(self, pairs, **changed):
        """Returns the criterion of the loss for a history of paired jobs."""
        return figures_history.read(self.written(paired_history(pairs, **changed)), 7, datetime.datetime.fromisoformat(
            NOW.replace("Z", "+00:00")))["loss"]

    def written(self, text):
        path = self.folder / "history.csv"
        path.write_text(text)
        return path

    def test_noise_is_no_divergence_and_a_divergence_is_not_lost_in_noise(self):
        for shape in (
                {"noise": 0.12, "alike": 0.5, "rows": 150},
                {"noise": 0.10, "alike": 0.0, "rows": 80, "decay": 6},
                {"noise": 0.10, "alike": 0.3, "rows": 40, "jobs": 4},  # All at the same time.
                {"noise": 0.08, "alike": 0.0, "rows": 2, "jobs": 28}):
            healthy = [self.losses(random.Random(seed), **shape) for seed in range(200)]
            refused = [each for each in healthy if not each[2]]
            self.assertLessEqual(len(refused), 1, (shape, refused[:3]))
            planted = [self.losses(random.Random(seed), excess=0.10, **shape) for seed in range(200)]
            missed = [each for each in planted if each[2]]
            self.assertLessEqual(len(missed), 2, (shape, missed[:3]))

    def test_a_divergence_of_all_jobs_is_not_excused_by_the_watchdog(self):
        for shape in ({"noise": 0.18, "alike": 0, "rows": 1, "jobs": 203}, {"noise": 0.25, "alike": 0.5, "rows": 5, "jobs": 140}):
            for excess, most in ((0.0, 0), (0.10, 1)):
                judged = [self.losses(random.Random(seed), divergences=0, excess=excess, **shape) for seed in range(40)]
                wrong = [each for each in judged if bool(each[2]) != (excess == 0)]
                self.assertLessEqual(len(wrong), most, (shape, wrong[:3]))

    def test_losses_at_or_below_zero_are_not_compared(self):
        rows = paired_history(random.Random(3), noise=0.05, alike=0, rows=20).splitlines()
        row = dict(zip(COLUMNS.split(","), rows[-1].split(",")), loss="0.1", baseline_loss="-0.2", divergence_ratio="", divergences="0.0")
        self.assertEqual(self.judge_history("\n".join([*rows, ",".join(row.values())]) + "\n").stderr, "")

    def test_a_lower_loss_needs_no_rescue(self):
        self.assertTrue(self.losses(random.Random(1), noise=0.05, alike=0, rows=50, excess=-0.2)[2])

    def test_one_job_of_many_that_lost_more_is_named(self):
        figure, detail, met = self.losses(random.Random(1), noise=0.03, alike=0.2, rows=60, jobs=9, excess_of={3: 0.15})
        self.assertFalse(met)
        self.assertGreater(figure, 0.12)
        self.assertIn("job-3", detail)

    def test_one_bad_day_is_not_hidden_by_the_others(self):
        _, detail, met = self.losses(random.Random(1), noise=0.02, alike=0, rows=3, jobs=84, excess_of={
            job: 0.10 for job in range(84) if job % 7 == 2})
        self.assertFalse(met)
        self.assertRegex(detail, r"\d days ago")

    def test_what_the_watchdog_found_counts(self):
        # A short job has only one row, which is not significant on its own.
        for divergences, code, said in ((0, 0, "the watchdog compared 1 jobs with FP32 and found no divergence"),
                                        (1, 3, "the watchdog found that job-0 lost more than FP32"),
                                        ("", 3, "1 measurements are too few to tell 10% from chance")):
            rows = paired_history(random.Random(3), noise=0.12, alike=0, rows=1, divergences=divergences)
            done = self.judge_history(rows)
            line = next(each for each in done.stdout.splitlines() if "baseline" in each)
            self.assertIn(said, line)
            self.assertEqual(line.startswith("NOT MET"), code == 3, line)

    def test_no_history_is_a_refusal_and_a_wrong_file_an_error(self):
        done = self.judge_history(COLUMNS + "\n")
        self.assertEqual(done.returncode, 3)
        self.assertIn("training success rate: not measured", done.stdout)
        done = self.judge_history("a,b\n1,2\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("lacks the columns timestamp, job_id", done.stderr)

    def test_staging_does_not_need_what_only_it_measures(self):
        fp32 = history().replace("MIXED_FP16", "FP32")
        fp32 = re.sub(r"(,\d+),\d+,\d+,,1,", r"\1,0,0,,0,", fp32)
        self.assertEqual(self.judge_history(fp32, "--stage", "staging").returncode, 0)
        done = self.judge_history(fp32, "--stage", "canary")
        self.assertEqual(done.returncode, 3)
        self.assertIn("NOT MET overflow rate: not measured", done.stdout)

    # `failures` and `overflow` are fractions, and the baseline of `loss` is 0.1.
    def prometheus(self, *, hours=9 * 24, failures=0.0, overflow=0.004, loss=0.102, noise=0.0, fallback_hour=None,
                   divergence_hour=None):
        """Starts a real Prometheus with a history that promtool writes. Returns its URL."""
        end = datetime.datetime(2026, 3, 10, tzinfo=datetime.timezone.utc).timestamp()
        series = {name: [] for name in (
            "genesis_training_total", "genesis_training_success_total", "genesis_fp16_training_steps_total",
            "genesis_fp16_overflow_steps_total", "genesis_loss_divergence_ratio",
            "genesis_ready", 'genesis_precision_changes_total{trigger="overflow"}',
            'genesis_incidents_total{rule="divergence"}')}
        chance = random.Random(7)
        for minute in range(0, hours * 60 + 1, 5):
            hour, moment = minute / 60, end - hours * 3600 + minute * 60
            values = (10 * hour, 10 * hour * (1 - failures), 1000 * hour, 1000 * hour * overflow,
                      loss / 0.1 * math.exp(chance.gauss(0, noise)) - 1, 1,
                      1 if fallback_hour is not None and hour >= fallback_hour else 0,
                      1 if divergence_hour is not None and hour >= divergence_hour else 0)
            for name, value in zip(series, values):
                series[name].append(f"{self.labelled(name)} {value} {moment:.0f}")
        text = []
        for name, lines in series.items():
            plain = name.split("{")[0]
            kind = "counter" if plain.endswith("_total") else "gauge"
            text += [f"# TYPE {plain.removesuffix('_total')} {kind}", *lines]
        (self.folder / "metrics").write_text("\n".join(text) + "\n# EOF\n")
        tools = pathlib.Path(os.environ["GENESIS_PROMETHEUS"])
        subprocess.run([tools / "promtool", "tsdb", "create-blocks-from", "openmetrics",
                        self.folder / "metrics", self.folder / "tsdb"], check=True, timeout=LONG,
                       stdout=subprocess.DEVNULL)
        (self.folder / "prometheus.yml").write_text("{}\n")
        port = free_port()
        server = subprocess.Popen(
            [tools / "prometheus", f"--config.file={self.folder}/prometheus.yml",
             f"--storage.tsdb.path={self.folder}/tsdb", "--storage.tsdb.retention.time=10y",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait, LONG)
        self.addCleanup(server.terminate)
        url = f"http://127.0.0.1:{port}"
        wait_for("Prometheus", lambda: subprocess.run(
            ["curl", "-fs", f"{url}/-/ready"], stdout=subprocess.DEVNULL, check=False).returncode == 0)
        return url

    @staticmethod
    def labelled(name):
        plain, _, rest = name.partition("{")
        return plain + '{deployment="canary"' + ("," + rest if rest else "}")

    def test_prometheus_all_met(self):
        url = self.prometheus()
        done = self.judge("--prometheus", url, "--measure", "canary")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in ("success rate: 100.00%", "overflow rate: 0.40%", "baseline: +2.00%", "7 of 7"):
            self.assertIn(text, done.stdout)
        # The other deployment has no metrics, so re-enabling is refused.
        done = self.judge("--prometheus", url, "--measure", "stable")
        self.assertEqual(done.returncode, 3)
        self.assertIn("stable days: 0 of 7", done.stdout)
        shown = "\n".join(compare.table(url, 4, arguments.parse(["canary", "--now", NOW]).now))
        self.assertRegex(shown, r"training success rate +100.00% +not measured")

    def test_prometheus_each_refusal(self):
        done = self.judge("--prometheus", self.prometheus(
            failures=0.03, overflow=0.06, loss=0.11, fallback_hour=7.5 * 24))
        self.assertEqual(done.returncode, 3, done.stderr)
        for text in ("NOT MET training success rate: 97.00%", "NOT MET overflow rate: 6.00%",
                     "NOT MET loss against the FP32 baseline: +10.00%",
                     "NOT MET stable days: 6 of 7 (1 days ago: 1 jobs fell back)"):
            self.assertIn(text, done.stdout)

    @tiers.nightly
    def test_prometheus_judges_the_signed_loss_and_what_the_watchdog_found(self):
        done = self.judge("--prometheus", self.prometheus(loss=0.1, noise=0.2))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        shutil.rmtree(self.folder / "tsdb")
        done = self.judge("--prometheus", self.prometheus(loss=0.1, noise=0.2, divergence_hour=7.5 * 24))
        self.assertIn("NOT MET loss against the FP32 baseline", done.stdout)
        self.assertIn("the watchdog found that a job of this daemon lost more than FP32", done.stdout)

    def test_prometheus_that_watched_too_short(self):
        done = self.judge("--prometheus", self.prometheus(hours=4 * 24))
        self.assertEqual(done.returncode, 3)
        self.assertIn("stable days: 4 of 7", done.stdout)

    def test_prometheus_that_does_not_answer(self):
        done = self.judge("--prometheus", f"http://127.0.0.1:{free_port()}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Connection refused", done.stderr)


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


class Faked(unittest.TestCase):
    """Base class of tests in which the service manager is a fake and the daemon is real."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="genesis-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.ports = {"grpc": free_port(), "http": free_port()}
        self.write_state({})
        self.environment = clean_environment({
            "FAKE_STATE": str(self.folder), "GENESIS_BIN": str(BIN), "PYTHONPATH": str(FAKES),
            "PATH": f"{FAKES}:{os.environ['PATH']}"})
        self.addCleanup(self.end_daemon)

    def write_state(self, state):
        (self.folder / "state.json").write_text(json.dumps({"ports": self.ports, **state}))

    def state(self):
        return json.loads((self.folder / "state.json").read_text())

    def calls(self):
        return [" ".join(json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()]

    def end_daemon(self):
        subprocess.run(["python3", "-c", "import fake_service as f; f.stop()"], env=self.environment,
                       check=True, timeout=LONG)

    def start_daemon(self, environment):
        subprocess.run(["python3", "-c", f"import fake_service as f; f.start({environment!r})"],
                       env=self.environment, check=True, timeout=LONG)

    WHERE = ()

    def rollback(self, *words, code=0, meanwhile=None):
        """Runs genesis-rollback and returns its output. `meanwhile` is (text, action): the action runs once the text has been printed."""
        log = self.folder / "rollback-output"
        with open(log, "wb") as output:
            running = subprocess.Popen(
                [ROLLBACK, *words, *self.WHERE, "--output", self.folder / "pm", "--http",
                 f"http://127.0.0.1:{self.ports['http']}", "--server", f"127.0.0.1:{self.ports['grpc']}"],
                env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        if meanwhile:
            wait_for(meanwhile[0], lambda: running.poll() is not None or meanwhile[0] in log.read_text())
            meanwhile[1]()
        ended = running.wait(LONG)
        self.assertEqual(ended, code, log.read_text())
        return log.read_text()

    def gradual(self):
        """Runs a gradual rollback during a job in FP16, which ends as soon as the rollback waits for it. Returns the output."""
        self.start_reduced("running", 100000000)
        output = self.rollback("gradual", "--yes", meanwhile=(
            "1 left: running", lambda: self.ctl("cancel", "running")))
        ended = self.ctl("job", "running")
        self.assertEqual((ended["state"], ended["restarts"], ended["precision"]["mode"]),
                         ("JOB_STATE_CANCELLED", 0, "PRECISION_MODE_MIXED_FP16"))
        return output

    def ctl(self, *words, stdin=None):
        return json.loads(subprocess.run(
            [BIN / "genesisctl", "--server", f"127.0.0.1:{self.ports['grpc']}", "--output", "json", *words],
            input=stdin, capture_output=True, text=True, check=True, timeout=LONG).stdout)

    def start_reduced(self, job_id, steps):
        self.ctl("train", "--file", "-", "--job-id", job_id, stdin=job(steps))
        wait_for("steps in FP16", lambda: int(self.ctl("job", job_id).get("progress", {}).get(
            "reduced_precision_steps", 0)) > 5)

    def changing(self):
        """Returns the calls that change something, in order."""
        return [call for call in self.calls() if " exec " not in call and re.search(
            r" (set env|rollout restart|patch|delete|label|apply|up|kill|restart)\b", " " + call)]


class Kubernetes(Faked):
    def setUp(self):
        super().setUp()
        configmap = dict(each.split("=") for each in EMULATED)
        self.write_state({
            "configmap": configmap, "own": {}, "generation": 1, "canary": False, "labels": {},
            "labelled": [], "manifests": str(SOURCE / "deploy" / "kubernetes")})
        self.start_daemon(configmap)

    def test_emergency(self):
        self.start_reduced("storm", 100000000)
        output = self.rollback("emergency", "--yes")
        in_order(self, output, ["on kubernetes: deployment/genesis-orchestrator in namespace genesis",
                                "ready:", "SUCCEEDED in FP32", "Done in"])
        self.assertEqual(self.changing(), [
            '--namespace genesis patch configmap genesis-config --type merge --patch '
            '{"data":{"ENABLE_FP16_TRAINING":"false"}}',
            "--namespace genesis set env deployment/genesis-orchestrator ENABLE_FP16_TRAINING=false",
            "--namespace genesis rollout restart deployment/genesis-workers"])
        state = self.state()
        self.assertEqual((state["configmap"]["ENABLE_FP16_TRAINING"], state["own"]),
                         ("false", {"ENABLE_FP16_TRAINING": "false"}))
        with tarfile.open(self.folder / "pm.tar.gz") as archive:
            self.assertIn("pm/details/deployment.yaml", archive.getnames())
        # Until a worker has the job again, its record shows the attempt before.
        wait_for("the job in FP32", lambda: self.ctl("job", "storm")["precision"]["mode"] == "PRECISION_MODE_FP32")

    @tiers.nightly
    def test_emergency_by_force(self):
        self.rollback("emergency", "--yes", "--force")
        in_order(self, "\n".join(self.changing()), [
            "patch configmap", "delete pods -l app=genesis-training --force --grace-period=0", "set env"])

    @tiers.nightly
    def test_a_gate_that_was_shut_is_restarted_all_the_same(self):
        self.rollback("emergency", "--yes", "--no-probe")
        (self.folder / "calls").unlink()
        self.rollback("emergency", "--yes", "--no-probe")
        self.assertIn("--namespace genesis rollout restart deployment/genesis-orchestrator",
                      self.changing())

    @tiers.nightly
    def test_gradual_restarts_only_when_the_jobs_have_ended(self):
        in_order(self, self.gradual(), [
            "precision disable --running new-attempts", "1 left: running", "none is left", "set env",
            "precision allow", "SUCCEEDED in FP32"])

    @tiers.nightly
    def test_canary(self):
        manifests = SOURCE / "deploy" / "kubernetes"
        where = ("--yes", "--nodes", "worker-1 worker-2", "--manifests", str(manifests))
        self.assertIn("FAILED", self.rollback("canary", "start", *where, code=1))
        self.assertEqual(self.state()["labels"], {each: {"fp16": "disabled"} for each in ("worker-1", "worker-2")})
        self.rollback("canary", "promote", *where)
        self.assertEqual(self.changing(), [
            "label nodes worker-1 worker-2 fp16=disabled --overwrite",
            f"apply -k {manifests}/overlays/canary",
            '--namespace genesis patch configmap genesis-config --type merge --patch '
            '{"data":{"ENABLE_FP16_TRAINING":"false"}}',
            "--namespace genesis set env deployment/genesis-orchestrator ENABLE_FP16_TRAINING=false",
            "--namespace genesis rollout restart deployment/genesis-workers",
            "--namespace genesis delete deployment/genesis-orchestrator-canary "
            "service/genesis-orchestrator-canary --ignore-not-found",
            "label nodes worker-1 worker-2 fp16-"])
        self.assertIn("needs --nodes", self.rollback("canary", "abort", "--yes", code=2))

    @tiers.nightly
    def test_re_enable(self):
        self.rollback("emergency", "--yes", "--no-probe")
        for name, code in (("bad", 3), ("good", 0)):
            path = self.folder / f"{name}.csv"
            path.write_text(history(good=name == "good"))
            output = self.rollback("re-enable", "--yes", "--history", str(path), "--now", NOW, code=code)
        self.assertIn("ok      /metrics genesis_reduced_precision_enabled: 1", output)
        self.assertEqual(self.state()["configmap"]["ENABLE_FP16_TRAINING"], "true")

    def test_the_pod_serves_where_it_is_asked(self):
        server = target_kubernetes.Kubernetes.default_server.removeprefix("unix:")
        config = (SOURCE / "deploy/kubernetes/base/config.yaml").read_text()
        self.assertIn(f"  GENESIS_GRPC_UNIX_SOCKET: {server}\n", config)

    def test_another_namespace_is_named(self):
        self.assertIn("kubectl finds no deployment/genesis-orchestrator in namespace elsewhere",
                      self.rollback("status", "--target", "kubernetes", "--namespace", "elsewhere", code=1))

    def test_a_token_goes_ahead_on_stdin(self):
        token = self.folder / "token"
        token.write_text("planted-secret\n")
        self.environment["GENESIS_TOKEN_FILE"] = str(token)
        self.assertIn("reduced precision:  not in use", self.rollback("status"))
        self.assertNotIn("planted-secret", "\n".join(self.calls()))


class Compose(Faked):
    def setUp(self):
        super().setUp()
        self.compose_file = SOURCE / "docker-compose.yml"
        self.environment_file = self.folder / "environment"
        self.environment_file.write_text("ENABLE_FP16_TRAINING=true")
        self.write_state({
            "made_with": dict(each.split("=") for each in EMULATED[1:]),
            "environment_file": str(self.environment_file),
            "entrypoint": str(SOURCE / "deploy" / "container" / "entrypoint.sh")})
        self.WHERE = ("--target", "compose", "--compose-file", str(self.compose_file), "--environment-file",
                      str(self.environment_file))
        self.start_daemon(dict(each.split("=") for each in EMULATED))

    def test_emergency(self):
        output = self.rollback("emergency", "--yes")
        in_order(self, output, ["on compose", "Gate shut", f"echo 'ENABLE_FP16_TRAINING=false' >> "
                                f"{self.environment_file}", "docker-compose restart", "SUCCEEDED in FP32",
                                "Done in"])
        self.assertEqual(self.environment_file.read_text(),
                         "ENABLE_FP16_TRAINING=true\nENABLE_FP16_TRAINING=false\n")
        # This is the command of the rollback plan.
        self.assertEqual([each.split(" ", 2)[2] for each in self.changing()],
                         ["restart genesis-orchestrator genesis-workers"])

    @tiers.nightly
    def test_gradual_then_re_enabled(self):
        in_order(self, self.gradual(), ["precision disable", "none is left", "docker-compose restart",
                                        "precision allow"])
        good = self.folder / "good.csv"
        good.write_text(history())
        self.assertIn("ok      /metrics genesis_reduced_precision_enabled: 1", self.rollback(
            "re-enable", "--yes", "--history", str(good), "--now", NOW))

    @tiers.nightly
    def test_canary(self):
        def series():
            return subprocess.run(["curl", "-fsS", f"http://127.0.0.1:{self.ports['http']}/metrics"], capture_output=True, text=True,
                                  timeout=LONG, check=True).stdout

        self.assertIn("SUCCEEDED in FP32", self.rollback("canary", "start", "--yes"))
        self.assertIn('genesis_reduced_precision_enabled{deployment="canary"} 0', series())
        self.rollback("canary", "abort", "--yes")
        self.assertIn('genesis_reduced_precision_enabled{deployment="stable"} 1', series())
        self.rollback("canary", "start", "--yes", "--no-probe")
        self.rollback("canary", "promote", "--yes")
        self.assertIn('genesis_reduced_precision_enabled{deployment="stable"} 0', series())
        self.assertEqual(self.environment_file.read_text().splitlines()[-2:],
                         ["ENABLE_FP16_TRAINING=false", "GENESIS_DEPLOYMENT=stable"])

    def test_a_dry_run_changes_nothing(self):
        before = self.environment_file.read_text()
        output = self.rollback("emergency", "--dry-run")
        self.assertIn("Nothing was changed.", output)
        self.assertEqual(self.changing(), [])
        self.assertEqual(self.environment_file.read_text(), before)


class Words(unittest.TestCase):
    def refused(self, *words):
        done = subprocess.run([ROLLBACK, *words], capture_output=True, text=True, timeout=LONG, check=False)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        return done.stderr

    def test_what_cannot_be_meant_is_refused(self):
        for words, said in (
                (["now"], '"now" is no procedure; accepted: emergency, gradual, canary, status'),
                (["emergency", "--severity", "P5"], '--severity is "P5"; accepted: P0 P1 P2'),
                (["gradual", "--wait-minutes=soon"], '--wait-minutes is "soon"; accepted: a whole number'),
                (["status", "--target", "vm"], '--target is "vm"; accepted: systemd kubernetes compose'),
                (["status", "--output"], "--output needs a value"),
                (["status", "--colour=red"], "--colour is no option"),
                (["status", "twice"], '"twice" is one word too many')):
            self.assertIn(said, self.refused(*words))

    def test_an_interrupt_and_a_closed_pipe_end_with_a_line(self):
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            slow, begun = pathlib.Path(folder, "docker-compose"), pathlib.Path(folder, "begun")
            slow.write_text(f"#!/bin/sh\ntouch '{begun}'\nexec sleep 600\n")
            slow.chmod(0o755)
            running = subprocess.Popen(
                [ROLLBACK, "status", "--target", "compose", "--compose-file", SOURCE / "docker-compose.yml"],
                env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, stderr=subprocess.PIPE, text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            wait_for("docker-compose", begun.exists)
            running.send_signal(signal.SIGINT)
            self.assertRegex(running.communicate(timeout=LONG)[1], "\\Arollback.sh: interrupted; .*\n\\Z")
            self.assertEqual(running.returncode, 130)
        running = subprocess.Popen([ROLLBACK, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.stdout.close()
        self.assertRegex(running.stderr.read(), "\\Arollback.sh: its output is not read any more; .*\n\\Z")
        self.assertEqual(running.wait(LONG), 141)
        running.stderr.close()

    def test_commands_are_printed_as_bash_reads_them(self):
        for word in ("plain-1.0/x:y@z=%+", "two words", "it's", '"$x" `y` $(z)', "a;b|c&d<e>f(g)h{i,j}", "~x=~y", "#z", "\\*?[]!^", "",
                     "a\nb", "é"):
            done = subprocess.run(["bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, word)

    def test_the_shell_is_clean(self):
        scripts = [ROLLBACK, SOURCE / "deploy" / "package.sh", *(SOURCE / "deploy" / "package" / "debian").glob("p*"),
                   SOURCE / "deploy/systemd/run-job", SOURCE / "deploy/package/genesis-worker",
                   pathlib.Path(__file__).parent / "boot_machine.sh"]
        done = subprocess.run(["shellcheck", "--external-sources", *scripts], capture_output=True, text=True,
                              timeout=LONG, cwd=SOURCE, check=False)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
