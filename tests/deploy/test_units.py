"""Tests the systemd units with systemd's own tools, and running under a real systemd as the package installs them."""

import json
import pathlib
import re
import subprocess
import unittest

from machine import Service, package_file  # Must come first, because it adds the harness to the path.
import tiers
from harness import LONG, SOURCE, wait_for

UNITS = SOURCE / "deploy" / "systemd"
# Runs longer than any test, and writes checkpoints only on request.
LONG_JOB = """
model: {world_model: {hidden_size: 32, latent_size: 16}}
dataset:
  synthetic:
    trajectories: {episodes: 32, episode_length: 32, observation_size: 8, action_size: 2}
training: {max_steps: 100000000, batch_size: 64}
"""


@tiers.nightly
class Judged(unittest.TestCase):
    def test_exposure_is_at_most_two(self):
        for unit in ("genesis-trainer.service", "genesis-worker@.service", "genesis-job@.service"):
            done = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20",
                 UNITS / unit], capture_output=True, text=True, timeout=LONG, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, r"Overall exposure level for .*: [01]\.\d|2\.0")

    def test_the_threshold_is_one_that_refuses(self):
        bare = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", "/dev/stdin"],
            input="[Service]\nExecStart=/bin/true\n", capture_output=True, text=True, timeout=LONG,
            check=False)
        self.assertNotEqual(bare.returncode, 0)


@tiers.nightly
class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = Service()
        cls.addClassCleanup(cls.machine.stop)

    def setUp(self):
        self.machine.run("systemctl reset-failed; rm -rf /run/systemd/system/*.d")
        self.machine.run("systemctl daemon-reload")
        self.machine.environment("ENABLE_FP16_TRAINING=false")
        self.addCleanup(self.cancel_all)

    def cancel_all(self):
        jobs = json.loads(self.machine.run("genesisctl --output json jobs").stdout)["jobs"]
        for job in jobs:
            self.machine.run(f"genesisctl cancel {job['id']}", check=False)

    def main_pid(self):
        return int(self.machine.property("MainPID"))

    def wait_for_another(self, before):
        wait_for("the next daemon", lambda: self.main_pid() not in (0, before) and
                 self.machine.property("SubState") == "running")

    def workers(self):
        """Returns the IDs of the processes that run LibTorch."""
        return {int(pid) for pid in self.machine.run(
            "pgrep -f ^/usr/lib/genesis/genesis-worker", check=False).stdout.split()}

    def drop_in(self, text, unit="genesis-trainer.service"):
        self.machine.run(f"mkdir -p /run/systemd/system/{unit}.d && cat > "
                         f"/run/systemd/system/{unit}.d/test.conf && systemctl daemon-reload",
                         stdin=text)

    def test_systemd_finds_no_fault(self):
        for unit in ("genesis-trainer.service", "genesis-worker@cpu.service",
                     "genesis-job@x.service"):
            done = self.machine.run(f"systemd-analyze verify --man=no {unit}")
            self.assertEqual(done.stdout + done.stderr, "")

    def test_started_means_served(self):
        self.machine.run("systemctl stop genesis-trainer")
        done = self.machine.run("systemctl start genesis-trainer && curl -fsS 127.0.0.1:8080/readyz")
        self.assertTrue(json.loads(done.stdout)["ready"])
        self.assertEqual(self.machine.property("Result"), "success")
        self.assertIn("Serves gRPC", self.machine.property("StatusText"))

    def test_the_name_that_operators_type(self):
        before = self.main_pid()
        self.machine.run("systemctl restart genesis-orchestrator")
        self.assertNotEqual(self.main_pid(), before)
        self.machine.run("systemctl disable genesis-trainer")
        try:
            self.machine.run("systemctl restart genesis-orchestrator")
        finally:
            self.machine.run("systemctl enable genesis-trainer")
        # If there is no such worker, the command does nothing and succeeds.
        self.machine.run("systemctl restart 'genesis-worker@*'")

    def test_a_second_line_in_the_environment_wins(self):
        self.machine.environment("ENABLE_FP16_TRAINING=true")
        self.assertIn("fp16_enabled: True", self.machine.log().splitlines()[-2])
        self.machine.run('echo "ENABLE_FP16_TRAINING=false" >> /etc/genesis/environment && '
                         "systemctl restart genesis-orchestrator")
        status = json.loads(self.machine.run("curl -fsS 127.0.0.1:8080/api/training/status").stdout)
        self.assertFalse(status["fp16_enabled_runtime"])
        expected = self.machine.run(
            'tail -n 3 /var/log/genesis/orchestrator.log | grep -i "fp16\\|fp32"').stdout
        self.assertIn("FP16 training disabled - using FP32", expected)
        self.assertIn("fp16_enabled: False", expected)

    def test_a_crash_of_the_daemon_costs_no_step(self):
        self.machine.train("survivor", LONG_JOB)
        self.machine.wait_for_step("survivor", 20)
        [busy] = self.workers() - self.spares()
        before = self.main_pid()
        self.machine.run(f"kill -KILL {before}")
        self.wait_for_another(before)
        step = int(self.machine.wait_for_step("survivor", 21)["progress"]["step"])
        job = self.machine.wait_for_step("survivor", step + 20)
        self.assertEqual((job.get("restarts", 0), job["claim"]), (0, "1"))
        self.assertIn(busy, self.workers())

    def spares(self):
        workers = json.loads(self.machine.run("genesisctl --output json workers").stdout)["workers"]
        return {each["pid"] for each in workers if not each.get("job_id")}

    def test_an_operator_may_restart_as_often_as_it_takes(self):
        for _ in range(12):
            self.machine.run("systemctl kill --signal=KILL genesis-trainer; "
                             "systemctl restart genesis-orchestrator")

    def test_a_crash_of_a_worker_is_not_the_end_of_the_service(self):
        self.machine.train("crashed", LONG_JOB)
        self.machine.wait_for_step("crashed", 5)
        before = self.main_pid()
        [busy] = self.workers() - self.spares()
        self.machine.run(f"kill -KILL {busy}")
        wait_for("the restart of the job", lambda: self.machine.job("crashed").get("restarts") == 1)
        self.assertEqual(self.main_pid(), before)
        self.assertEqual(self.machine.property("OOMPolicy"), "continue")

    def test_stopping_drains_and_leaves_no_process(self):
        self.machine.train("drained", LONG_JOB)
        self.machine.wait_for_step("drained", 5)
        self.machine.run("systemctl stop genesis-trainer")
        self.assertEqual(self.machine.property("Result"), "success")
        self.assertEqual(self.machine.property("ExecMainStatus"), "0")
        self.assertEqual(self.workers(), set())
        self.assertIn("genesisd ended cleanly", self.machine.log())
        files = self.machine.run("ls /data/checkpoints").stdout
        self.assertIn("drained-step-", files)
        self.machine.run("systemctl start genesis-trainer")
        self.assertIn("resumed from", wait_for(
            "the job to go on", lambda: "resumed from" in self.machine.log() and self.machine.log()))

    def test_a_daemon_that_only_exists_is_restarted(self):
        self.drop_in("[Service]\nWatchdogSec=2\n")
        self.machine.run("systemctl restart genesis-trainer")
        before = self.main_pid()
        self.machine.run(f"kill -STOP {before}")
        self.wait_for_another(before)
        self.assertIn("Watchdog timeout",
                      self.machine.run("journalctl --no-pager --unit genesis-trainer").stdout)

    def test_an_unusable_setting_is_not_tried_again(self):
        self.machine.run("echo GENESIS_WORKERS_SLOTS=none >> /etc/genesis/environment")
        done = self.machine.run("systemctl restart genesis-trainer", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.machine.property("ExecMainStatus"), "2")
        self.assertEqual(self.machine.property("ActiveState"), "failed")
        self.assertEqual(self.machine.property("NRestarts"), "0")
        journal = self.machine.run("journalctl --no-pager --unit genesis-trainer").stdout
        self.assertIn('GENESIS_WORKERS_SLOTS is "none"', journal)
        self.machine.environment("ENABLE_FP16_TRAINING=false")

    def test_what_the_process_may_not_do(self):
        status = self.machine.read(f"/proc/{self.main_pid()}/status")
        user = self.machine.run("id -u genesis").stdout.strip()
        self.assertRegex(status, rf"Uid:\t{user}\t{user}\t{user}\t{user}\n")
        self.assertRegex(status, r"CapEff:\t0+\n")
        self.assertRegex(status, r"CapBnd:\t0+\n")
        self.assertIn("NoNewPrivs:\t1\n", status)
        self.assertIn("Seccomp:\t2\n", status)
        inside = f"nsenter --target {self.main_pid()} --mount runuser -u genesis -- "
        for path in ("/etc/genesis/x", "/usr/x", "/data/x", "/home/x", "/opt/x"):
            self.assertNotEqual(self.machine.run(f"{inside} touch {path}", check=False).returncode, 0)
        for path in ("/var/lib/genesis/x", "/data/checkpoints/x", "/var/log/genesis/x"):
            self.machine.run(f"{inside} touch {path} && rm {path}")

    def test_rotated_logs_are_opened_anew(self):
        self.machine.run("echo old >> /var/log/genesis/orchestrator.log && "
                         "logrotate --force /etc/logrotate.d/genesis-trainer")
        wait_for("the new log", lambda: "info" in self.machine.log())
        self.assertNotIn("old\n", self.machine.log())
        self.assertIn("old\n", self.machine.read("/var/log/genesis/orchestrator.log.1"))
        owner = self.machine.run("stat -c %U:%a /var/log/genesis/orchestrator.log").stdout.strip()
        self.assertEqual(owner, "genesis:640")

    def test_a_reload_is_a_hangup(self):
        before = self.main_pid()
        self.machine.run("systemctl reload genesis-trainer")
        wait_for("the reload", lambda: "genesis_config_reloads_total{deployment=\"stable\",result="
                 '"success"} 1' in self.machine.run("curl -fsS 127.0.0.1:8080/metrics").stdout)
        self.assertEqual(self.main_pid(), before)

    def test_a_job_without_a_daemon(self):
        self.machine.run("cat > /etc/genesis/jobs/alone.yaml", stdin=LONG_JOB.replace(
            "100000000", "200"))
        self.machine.run("systemctl start genesis-job@alone")
        wait_for("its end", lambda: self.machine.property(
            "ActiveState", "genesis-job@alone") == "inactive")
        self.assertEqual(self.machine.property("Result", "genesis-job@alone"), "success")
        self.assertRegex(self.machine.run("ls /var/lib/genesis-job/alone").stdout,
                         re.compile(r"-step-0*200\.pt", re.MULTILINE))

    def test_restarting_a_job_without_a_daemon_goes_on_where_it_was(self):
        self.machine.run("cat > /etc/genesis/jobs/again.yaml",
                         stdin=LONG_JOB + "checkpoint: {every_steps: 20}\n")
        self.machine.run("systemctl start genesis-job@again")
        self.addCleanup(self.machine.run, "systemctl stop genesis-job@again")
        wait_for("a checkpoint", lambda: self.machine.run(
            "ls /var/lib/genesis-job/again", check=False).stdout)
        # Operators type the command in this way.
        self.machine.run("systemctl restart genesis-job@*")
        journal = "journalctl --no-pager --unit genesis-job@again"
        wait_for("the resumption", lambda: "resumed from" in self.machine.run(journal).stdout)


    def test_a_worker_for_the_daemon_of_another_host(self):
        # This machine is both hosts. The test shows that the unit reaches the daemon and may write.
        self.drop_in("[Service]\nEnvironment=GENESIS_WORKERS_REMOTE=true GENESIS_WORKERS_DEVICES=none\n")
        self.addCleanup(self.machine.run, "systemctl restart genesis-trainer")
        self.addCleanup(self.machine.run, "rm -r /run/systemd/system/*.d; systemctl daemon-reload")
        self.machine.run("systemctl restart genesis-trainer")
        self.machine.run("cat > /etc/genesis/worker", stdin="GENESIS_DAEMON=127.0.0.1:50051\n"
                         "GENESIS_CHECKPOINTS_DIR=/data/checkpoints\n")
        self.machine.run("systemctl start genesis-worker@cpu")
        self.addCleanup(self.machine.run, "systemctl stop genesis-worker@cpu")
        self.machine.run("cat > /tmp/far.yaml", stdin=LONG_JOB.replace("100000000", "200"))
        for name in ("far-1", "far-2"):  # After the first job the worker is available for the second.
            self.machine.run(f"genesisctl train -f /tmp/far.yaml --job-id {name} --watch")
            job = json.loads(self.machine.run(f"genesisctl --output json job {name}").stdout)
            self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED")
            self.machine.run(f"test -s {job['latest_checkpoint']['path']}")


@tiers.nightly
class ByHand(unittest.TestCase):
    def test_every_path_of_a_unit_is_one_that_the_package_installs(self):
        listing = subprocess.run(["dpkg-deb", "--contents", package_file()], capture_output=True,
                                 text=True, check=True).stdout
        installed = {line.split()[5].lstrip(".") for line in listing.splitlines()}
        for unit in UNITS.glob("*.service"):
            for path in re.findall(r"^Exec\w+=(/\S+)", unit.read_text(), re.MULTILINE):
                self.assertTrue(path in installed or pathlib.Path(path).exists(), path)


if __name__ == "__main__":
    unittest.main()
