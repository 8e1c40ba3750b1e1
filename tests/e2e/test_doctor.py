"""Tests genesisctl doctor on this machine, with the real worker and a real daemon."""

import json
import pathlib
import subprocess
import unittest

import harness


class Doctor(harness.DaemonTest):
    def doctor(self, *arguments):
        done = subprocess.run([harness.BIN / "genesisctl", "--output", "json", "doctor", *arguments],
                              capture_output=True, text=True, timeout=harness.LONG,
                              env=harness.clean_environment(None))
        return done.returncode, json.loads(done.stdout)["findings"]

    def of(self, findings, about):
        return [each for each in findings if each["about"] == about]

    def test_a_machine_that_a_daemon_runs_on(self):
        daemon = self.start()
        config = daemon.data_dir / "genesisd.yaml"
        config.write_text(json.dumps({"grpc": {"listen": daemon.grpc},
                                      "http": {"listen": daemon.http}}))
        code, findings = self.doctor("--data-dir", str(daemon.data_dir), "--config", str(config),
                                     "--server", daemon.grpc)
        self.assertEqual(code, 0, findings)
        for port in self.of(findings, "ports"):
            self.assertEqual(port["level"], "ok", port)
            self.assertIn(f"process {daemon.process.pid}", port["text"])
        worker, = self.of(findings, "libtorch")
        self.assertEqual(worker["level"], "ok", worker)
        self.assertIn("LibTorch 2.11.0", worker["text"])
        self.assertIn("is ready", self.of(findings, "daemon")[0]["text"])

    def test_what_the_service_would_get(self):
        environment = self.path("environment")
        environment.write_text("# as operators append it\n"
                               "ENABLE_FP16_TRAINING=true\nENABLE_FP16_TRAINING=\"False\"\n"
                               "GENESIS_QUEUE_MAX_JOBS=none\n")
        code, findings = self.doctor("--data-dir", str(self.path("data")),
                                     "--environment-file", str(environment))
        self.assertEqual(code, 1)
        problems = [each for each in findings if each["level"] == "problem"]
        self.assertIn("ENABLE_FP16_TRAINING", self.of(problems, "precision")[0]["text"])
        self.assertIn("GENESIS_QUEUE_MAX_JOBS", self.of(problems, "settings")[0]["text"])
        for each in problems:
            self.assertTrue(each["fix"], each)

    def test_a_file_that_is_not_there(self):
        done = subprocess.run([harness.BIN / "genesisctl", "doctor", "--environment-file",
                               self.path("absent")], capture_output=True, text=True,
                              timeout=harness.LONG)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be read", done.stderr)

    def path(self, name):
        return pathlib.Path(self.data_dir) / name


if __name__ == "__main__":
    unittest.main()
