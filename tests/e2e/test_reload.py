"""Tests the configuration at run time: what a reload applies and rejects, that it is all or nothing, and the log file after log
rotation."""

import os
import pathlib
import signal
import unittest

import harness
import secure


class Reload(harness.DaemonTest):
    def start(self, yaml="", *flags):
        self.config = pathlib.Path(self.data_dir) / "genesisd.yaml"
        self.config.write_text(yaml)
        return super().start("--config", str(self.config), "--workers-program",
                             str(secure.FAKE_WORKER), *flags)

    def setting(self, daemon, key):
        found = [each for each in daemon.ctl("config", "show")["settings"] if each["key"] == key]
        self.assertEqual(len(found), 1, key)
        return found[0]

    def refused(self, daemon, *arguments):
        done = daemon.ctl(*arguments, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def reloads(self, daemon, result):
        prefix = f'genesis_config_reloads_total{{deployment="stable",result="{result}"}} '
        line = [each for each in daemon.get("/metrics").splitlines() if each.startswith(prefix)]
        return float(line[0].removeprefix(prefix))

    def test_takes_over_what_may_change(self):
        daemon = self.start("log: {level: info}\n")
        level = self.setting(daemon, "log.level")
        self.assertEqual((level["value"], level["source"], level["reloadable"]),
                         ("info", f"file {self.config}:1", True))
        self.assertFalse(self.setting(daemon, "grpc.listen")["reloadable"])
        self.config.write_text("log: {level: debug}\nqueue: {max_jobs: 2}\n"
                               "drain: {timeout_seconds: 7}\n")
        for _ in range(2):
            would = daemon.ctl("config", "validate")["changed"]
            self.assertEqual({each["key"]: each["value"] for each in would},
                             {"log.level": "debug", "queue.max_jobs": "2",
                              "drain.timeout_seconds": "7"})
        self.assertEqual(self.setting(daemon, "log.level")["value"], "info")
        self.assertEqual(daemon.ctl("config", "reload")["changed"], would)
        self.assertEqual(self.setting(daemon, "queue.max_jobs")["source"], f"file {self.config}:2")
        self.assertEqual(daemon.ctl("config", "reload")["changed"], [])
        self.assertEqual(self.reloads(daemon, "success"), 2)
        # One job runs and two wait, which is the limit.
        for number in range(3):
            daemon.train(f"hold-{number}", harness.spec(max_steps=10))
        harness.wait_for("the first to run", lambda: daemon.job("hold-0")["state"] ==
                         "JOB_STATE_RUNNING")
        self.assertIn("queue.max_jobs is 2",
                      daemon.train("hold-3", harness.spec(max_steps=10), check=False).stderr)
        self.assertEqual(daemon.stop(), 0)
        self.assertIn("checkpointed within 7 s", daemon.log())

    def test_is_all_or_nothing(self):
        daemon = self.start("queue: {max_jobs: 5}\n")
        before = daemon.ctl("config", "show")
        self.config.write_text("queue: {max_jobs: 6}\nhttp: {listen: 127.0.0.1:9}\n"
                               "workers: {slots: 3}\ndeployment: canary\n")
        # A flag sets http.listen, so the value in the file has no effect.
        text = self.refused(daemon, "config", "reload")
        self.assertIn("FAILED_PRECONDITION", text)
        self.assertIn("workers.slots would become \"3\"", text)
        self.assertIn("deployment would become \"canary\"", text)
        self.assertNotIn("http.listen", text)
        self.config.write_text("queue: {max_jobs: 6}\nlog: {level: loud}\nzebra: 1\n")
        text = self.refused(daemon, "config", "reload")
        self.assertIn("INVALID_ARGUMENT", text)
        self.assertIn(":2:14: log.level is \"loud\"; accepted: debug, info, warning or error", text)
        self.assertIn(":3:1: zebra: unknown key", text)
        self.config.write_text("queue: {max_jobs: 6}\nauth: {tokens_file: /nowhere/tokens}\n")
        text = self.refused(daemon, "config", "reload")
        self.assertIn("INVALID_ARGUMENT", text)
        self.assertIn("auth.tokens_file: /nowhere/tokens: no such file; check the path", text)
        self.config.unlink()
        self.assertIn("no such file", self.refused(daemon, "config", "reload"))
        self.assertEqual(daemon.ctl("config", "show"), before)
        self.assertEqual(self.reloads(daemon, "failure"), 4)
        self.assertIn('genesis_config_last_reload_success{deployment="stable"} 0',
                      daemon.get("/metrics"))

    def test_a_tokens_file_can_be_put_in_place_while_the_daemon_runs(self):
        daemon = self.start()
        token, line = secure.new_token("ann", "admin")
        tokens = secure.write_secret(pathlib.Path(self.data_dir) / "tokens", line + "\n")
        self.config.write_text(f"auth: {{tokens_file: {tokens}}}\n")
        daemon.ctl("config", "reload")
        self.assertIn("UNAUTHENTICATED", self.refused(daemon, "info"))
        with secure.plain_channel(daemon.grpc) as channel:
            self.assertEqual(secure.Client(channel, token).code("GetConfig"), "OK")

    def test_sighup_reloads_and_opens_the_logs_anew(self):
        daemon = self.start("queue: {max_jobs: 5}\n")
        log = daemon.data_dir / "log" / "orchestrator.log"
        audit = daemon.data_dir / "log" / "audit.log"
        daemon.ctl("cancel", "nobody", check=False)
        for path in (log, audit):
            os.rename(path, f"{path}.1")
        self.config.write_text("queue: {max_jobs: 6}\n")
        daemon.process.send_signal(signal.SIGHUP)
        harness.wait_for("the reload", lambda: self.setting(daemon, "queue.max_jobs")["value"] ==
                         "6")
        self.assertIn("queue.max_jobs is now 6", log.read_text())
        daemon.ctl("cancel", "somebody", check=False)
        self.assertIn("somebody", audit.read_text())
        self.assertNotIn("somebody", pathlib.Path(f"{audit}.1").read_text())
        self.assertNotIn("is now 6", pathlib.Path(f"{log}.1").read_text())

    def test_a_log_that_cannot_be_opened_anew_goes_on_into_the_old_file(self):
        daemon = self.start()
        log = daemon.data_dir / "log" / "orchestrator.log"
        os.rename(log, f"{log}.1")
        log.mkdir()
        daemon.process.send_signal(signal.SIGHUP)
        old = pathlib.Path(f"{log}.1")
        harness.wait_for("the complaint", lambda: "cannot open the log file" in old.read_text())
        self.assertTrue(daemon.ctl("info")["ready"])


if __name__ == "__main__":
    unittest.main()
