"""Tests jobs whose ranks run on several hosts: network namespaces with their own addresses and host names, connected by a link that can be
cut. They share one disk, as the hosts of a cluster do."""

import os
import pathlib
import signal
import subprocess
import unittest
import unittest.mock

import harness
import tiers
import secure
from harness import BIN
from test_gangs import STEPS, gang

SHORTEST = ("--workers-reattach-timeout-seconds", "21", "--grpc-keepalive-seconds", "10")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


class Host:
    """A network namespace with a link to that of the daemon."""

    count = 0

    def __init__(self, test):
        # The number is unique, because the kernel removes a link some time after its namespace.
        Host.count += 1
        number = Host.count
        tag = f"{os.getpid() % 100000}-{number}"
        self.name, self.link = f"gh{tag}", f"gl{tag}"
        third = os.getpid() % 250 + 1
        self.near, self.address = f"10.{200 + number}.{third}.1", f"10.{200 + number}.{third}.2"
        made = run("ip", "netns", "add", self.name)
        if made.returncode != 0:
            harness.not_run(f"network namespaces are forbidden here: {made.stderr}")
        test.addCleanup(run, "ip", "netns", "del", self.name)
        made = run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        if made.returncode != 0:
            harness.not_run(f"links between network namespaces are forbidden here: {made.stderr}")
        for command in (("addr", "add", f"{self.near}/24", "dev", self.link), ("link", "set", self.link, "up"),
                        ("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0"),
                        ("-n", self.name, "link", "set", "eth0", "up"), ("-n", self.name, "link", "set", "lo", "up"),
                        ("-n", self.name, "route", "add", "default", "via", self.near)):
            done = run("ip", *command)
            test.assertEqual(done.returncode, 0, done.stderr)

    def cut(self):
        run("ip", "link", "set", self.link, "down")

    def mend(self):
        run("ip", "link", "set", self.link, "up")


class GangHosts(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.host = Host(self)
        folder = pathlib.Path(self.data_dir)
        self.authority = secure.Authority(folder / "authority")
        certificate, key = self.authority.issue("trainer", address=self.host.near)
        tokens = {role: secure.new_token(role, role) for role in ("worker", "admin")}
        secure.write_secret(folder / "tokens", "\n".join(line for _, line in tokens.values()) + "\n")
        secure.write_secret(folder / "worker.token", tokens["worker"][0] + "\n")
        patch = unittest.mock.patch.dict(os.environ, GENESIS_TLS_CA=str(self.authority.certificate),
                                         GENESIS_TOKEN=tokens["admin"][0])
        patch.start()
        self.addCleanup(patch.stop)
        self.flags = ("--workers-remote", "true", "--grpc-listen", f"{self.host.near}:0", "--tls-certificate-file",
                      str(certificate), "--tls-key-file", str(key), "--auth-tokens-file", str(folder / "tokens"))

    def worker(self, daemon, name):
        """Starts a genesis-worker on the other host, with this host name."""
        path = pathlib.Path(self.data_dir) / f"{name}.log"
        environment = harness.clean_environment()
        environment.pop("GENESIS_TOKEN", None)
        with open(path, "wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.host.name, "unshare", "--uts", "sh", "-c",
                 f'hostname {name}; exec "$0" "$@"', BIN / "genesis-worker", "--daemon", daemon.grpc, "--device",
                 "cpu", "--checkpoint-dir", daemon.data_dir / "checkpoints", "--tls-ca", self.authority.certificate,
                 "--token-file", pathlib.Path(self.data_dir) / "worker.token"],
                stdout=log, stderr=log, env=environment)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()

        self.addCleanup(end)
        process.log = path.read_text
        return process

    def begin(self, *flags):
        """Starts a daemon with one local slot, and a worker on the other host. Returns both."""
        daemon = self.start(*self.flags, *flags)
        worker = self.worker(daemon, "far")
        harness.wait_for("the worker of the other host", lambda: any(
            each["device"] == "far/cpu" for each in daemon.ctl("workers").get("workers", [])))
        return daemon, worker

    def test_two_hosts_train_one_job(self):
        daemon, worker = self.begin()
        daemon.train("wide", gang())
        ended = daemon.wait_for_end("wide")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", (ended, worker.log()))
        self.assertEqual(sorted(rank["worker"]["device"] for rank in ended["ranks"]), ["cpu", "far/cpu"])
        self.assertIn(f"of 2, at {self.host.address}", daemon.log())
        self.assertIn(f"of 2, at {self.host.near}", daemon.log())
        self.assertEqual(worker.wait(harness.LONG), 0, worker.log())

    def test_each_host_writes_a_shard_of_the_checkpoints(self):
        daemon, worker = self.begin()
        daemon.train("wide", {**gang(), "checkpoint": {"every_steps": 20, "sharded": True}})
        ended = daemon.wait_for_end("wide")
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", (ended, worker.log()))
        newest = daemon.ctl("checkpoints", "wide")["checkpoints"][0]
        self.assertEqual(newest["shard_count"], 2)
        checked = run(BIN / "genesis-worker", "--verify", newest["path"])
        self.assertEqual(checked.returncode, 0, checked.stderr)
        # A single process on one host continues from the checkpoint.
        daemon.train("after", {**gang(), "distributed": {"ranks": 1}, "start_from_checkpoint": newest["id"]})
        self.assertEqual(daemon.wait_for_end("after")["state"], "JOB_STATE_SUCCEEDED")

    @tiers.nightly
    def test_a_link_that_is_cut_is_a_restart_on_what_is_left(self):
        daemon, worker = self.begin(*SHORTEST)
        daemon.train("cut", gang(max_steps=STEPS))
        harness.wait_for("a checkpoint", lambda: daemon.job("cut").get("latest_checkpoint"))
        self.host.cut()
        # The daemon gives up the far rank after some time without a connection, and ends the near one.
        waiting = harness.wait_for("the end of the attempt", lambda: (
            job := daemon.job("cut"))["state"] == "JOB_STATE_QUEUED" and job)
        self.assertEqual(int(waiting["restarts"]), 1)
        self.assertIn("rank", waiting["state_reason"])
        self.assertIn("needs 2 slots at one time", waiting["queue_reason"])
        # The far rank does not continue, because it lost its peer and then its daemon.
        self.assertEqual(worker.wait(harness.LONG), 1, worker.log())
        self.host.mend()
        self.worker(daemon, "again")
        resumed = harness.wait_for("the next attempt", lambda: (
            job := daemon.job("cut"))["state"] == "JOB_STATE_RUNNING" and job)
        self.assertEqual((int(resumed["claim"]), int(resumed["restarts"])), (2, 1))
        daemon.wait_for_step("cut", int(resumed["latest_checkpoint"]["step"]) + 50)
        daemon.ctl("cancel", "cut", "--now")

    @tiers.nightly
    def test_a_far_rank_that_is_killed_is_a_restart(self):
        daemon, worker = self.begin(*SHORTEST)
        daemon.train("killed", gang(max_steps=STEPS))
        harness.wait_for("a checkpoint", lambda: daemon.job("killed").get("latest_checkpoint"))
        second = self.worker(daemon, "spare")
        harness.wait_for("a spare worker", lambda: any(
            each["device"] == "spare/cpu" for each in daemon.ctl("workers").get("workers", [])))
        worker.send_signal(signal.SIGKILL)
        harness.wait_for("the restart", lambda: int(daemon.job("killed")["claim"]) == 2)
        job = harness.wait_for("steps", lambda: (
            job := daemon.job("killed"))["state"] == "JOB_STATE_RUNNING" and job)
        self.assertEqual(int(job["restarts"]), 1)
        self.assertIn("spare/cpu", [rank["worker"]["device"] for rank in job["ranks"]])
        daemon.ctl("cancel", "killed")
        self.assertEqual(daemon.wait_for_end("killed")["state"], "JOB_STATE_CANCELLED")
        self.assertEqual(second.wait(harness.LONG), 0, second.log())


if __name__ == "__main__":
    unittest.main()
