"""Tests changes of the kernel's state under a running daemon: its clock, its file handles, the size of its files."""

import os
import pathlib
import resource
import stat
import unittest

import harness
from harness import FAKE_WORKER, spec

SET_CLOCK = FAKE_WORKER.parent / "set_clock.so"


class Limits(harness.DaemonTest):
    def fake(self, *flags, environment=None):
        return self.start("--workers-program", str(FAKE_WORKER), *flags, environment=environment)

    def test_a_clock_that_is_set_back_holds_up_no_restart_and_no_deadline(self):
        clock = pathlib.Path(self.data_dir) / "clock"
        clock.write_text("0")
        daemon = self.fake("--workers-slots", "2", environment={
            "LD_PRELOAD": str(SET_CLOCK), "GENESIS_TEST_CLOCK": str(clock)})
        limited = spec()
        limited["scheduling"] = {"deadline_seconds": 4}
        daemon.train("hold-1", limited)
        daemon.wait_for_step("hold-1", 5)
        clock.write_text("-3600")
        # The restarts pause for 1 and 2 seconds. The changed clock does not affect this.
        crashing = spec()
        crashing["max_restarts"] = 3
        daemon.train("crash-1", crashing)
        self.assertEqual(daemon.wait_for_end("crash-1")["restarts"], 3)
        self.assertEqual(daemon.wait_for_end("hold-1")["failure"]["cause"], "FAILURE_CAUSE_DEADLINE")
        # Setting the clock forward does not shorten the deadline of a job that is accepted afterwards.
        clock.write_text("86400")
        limited["scheduling"] = {"deadline_seconds": 3600}
        daemon.train("ok-1", limited)
        self.assertEqual(daemon.wait_for_end("ok-1")["state"], "JOB_STATE_SUCCEEDED")

    def test_a_limit_on_the_size_of_files_ends_no_daemon(self):
        daemon = self.fake()
        daemon.train("ok-1", spec())
        daemon.wait_for_end("ok-1")
        pid = daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
        refused = daemon.ctl("train", "-f", str(daemon.data_dir / "ok-1.yaml"), "--job-id", "ok-2",
                             check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIsNone(daemon.process.poll())
        self.assertEqual(daemon.job("ok-1")["state"], "JOB_STATE_SUCCEEDED")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        harness.wait_for("a store that takes changes", lambda: daemon.ctl(
            "train", "-f", str(daemon.data_dir / "ok-1.yaml"), "--job-id", "ok-2",
            check=False).returncode == 0)
        self.assertEqual(daemon.wait_for_end("ok-2")["state"], "JOB_STATE_SUCCEEDED")

    def test_workers_attach_again_after_the_file_handles_ran_out(self):
        daemon = self.fake()
        daemon.train("ok-1", spec())
        daemon.wait_for_end("ok-1")
        harness.wait_for("a warm worker", lambda: daemon.get_json("/api/training/stats")["warm_workers"])
        pid = daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
        for each in daemon.worker_pids():
            os.kill(each, 9)
        harness.wait_for("a complaint", lambda: "before it was warm" in daemon.log()
                         or "cannot start worker" in daemon.log() or "cannot watch" in daemon.log()
                         or "connection is refused" in daemon.log())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        daemon.train("ok-2", spec())
        self.assertEqual(daemon.wait_for_end("ok-2")["state"], "JOB_STATE_SUCCEEDED")

    def test_nobody_else_reads_or_writes_what_an_open_umask_would_let_them(self):
        before = os.umask(0)
        try:
            daemon = self.fake()
        finally:
            os.umask(before)
        daemon.train("ok-1", spec())
        daemon.wait_for_end("ok-1")
        open_to_others = [
            str(path) for path in daemon.data_dir.rglob("*")
            if stat.S_IMODE(path.lstat().st_mode) & 0o007
            and path.name not in ("stderr", "ok-1.yaml", "datasets", "pendulum.npz", "cartpole.npz")]
        self.assertEqual(open_to_others, [])
        socket = daemon.data_dir / "run" / "worker.sock"
        self.assertEqual(stat.S_IMODE(socket.stat().st_mode), 0o600)


if __name__ == "__main__":
    unittest.main()
