"""Tests the curves of jobs: every step of a real worker beside --telemetry of the same run, through kills of worker and daemon."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import xml.etree.ElementTree

import harness

STEPS = 2000
METRICS = {"loss": "loss", "loss_scale": "loss_scale", "grad_norm": "grad_norm", "learning_rate": "learning_rate"}


def float32(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


class CurvesTest(harness.DaemonTest):
    def curves(self, daemon, job_id, query=""):
        return daemon.get_json(f"/v1/jobs/{job_id}/curves{query}")

    def text(self, daemon, *arguments):
        return subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, *arguments], check=True, capture_output=True, text=True,
                              timeout=harness.LONG).stdout

    def telemetry(self, job_id):
        """Returns the records of the same job, run by the worker alone."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        job = folder / "job.yaml"
        spec = json.loads(pathlib.Path(self.data_dir, f"{job_id}.yaml").read_text())
        spec["dataset"]["trajectories"]["path"] = str(harness.TRAJECTORIES / "pendulum.npz")
        job.write_text(json.dumps(spec))
        subprocess.run([harness.BIN / "genesis-worker", "--spec", job, "--checkpoint-dir", folder, "--telemetry", folder / "telemetry"],
                       check=True, capture_output=True, timeout=harness.LONG)
        return [json.loads(line) for line in (folder / "telemetry").read_text().splitlines()]

    def test_each_step_is_there_once_after_kills_of_worker_and_daemon(self):
        daemon = self.start()
        spec = harness.spec(max_steps=STEPS)
        daemon.train("run", spec)
        daemon.wait_for_step("run", 300)
        os.kill(daemon.busy_worker_pid(), signal.SIGKILL)
        daemon.wait_for_step("run", 700)
        daemon.kill()
        daemon = self.start()
        self.assertEqual(daemon.wait_for_end("run")["state"], "JOB_STATE_SUCCEEDED")
        curves = self.curves(daemon, "run", "?points=10000")
        steps = list(range(1, STEPS + 1))
        self.assertEqual([int(step) for step in curves["last_steps"]], steps)
        self.assertEqual(curves["first_steps"], curves["last_steps"])
        self.assertEqual([int(samples) for samples in curves["samples"]], [64 * step for step in steps])
        self.assertEqual(curves["times"], sorted(curves["times"]))
        self.assertEqual(curves["training_seconds"], sorted(curves["training_seconds"]))
        self.assertEqual(curves["damaged_bytes"], "0")
        records = self.telemetry("run")
        for curve in curves["curves"]:
            if curve["metric"] in METRICS:
                expected = [float32(record[METRICS[curve["metric"]]]) for record in records]
                self.assertEqual([float32(value) for value in curve["mean"]], expected, curve["metric"])
                self.assertEqual(curve["min"], curve["max"])
        seconds = next(curve["mean"] for curve in curves["curves"] if curve["metric"] == "step_seconds")
        self.assertTrue(all(value > 0 for value in seconds))

        part = self.curves(daemon, "run", "?points=10&metrics=loss&from_step=501&to_step=1500")
        self.assertEqual(part["counts"], 10 * [100])
        self.assertEqual([curve["metric"] for curve in part["curves"]], ["loss"])
        losses = [record["loss"] for record in records]
        for i, first in enumerate(part["first_steps"]):
            within = [float32(loss) for loss in losses[int(first) - 1:int(part["last_steps"][i])]]
            self.assertEqual(float32(part["curves"][0]["min"][i]), min(within))
            self.assertEqual(float32(part["curves"][0]["max"][i]), max(within))
            self.assertAlmostEqual(part["curves"][0]["mean"][i], sum(within) / len(within), places=5)

        drawn = self.text(daemon, "plot", "run", "--log")
        self.assertIn("loss of run, each point", drawn)
        self.assertRegex(drawn, "[\u2801-\u28ff]{20}")
        image = pathlib.Path(self.data_dir, "loss.svg")
        self.text(daemon, "plot", "run", "-f", str(image))
        self.assertEqual(xml.etree.ElementTree.parse(image).getroot().tag, "{http://www.w3.org/2000/svg}svg")
        daemon.train("other", harness.spec(max_steps=50, seed=8))
        followed = self.text(daemon, "logs", "other", "--follow").splitlines()
        self.assertEqual(followed, self.text(daemon, "logs", "other").splitlines(), "no line twice, none missing")
        self.assertIn("training complete", followed[-1])
        self.assertEqual(self.text(daemon, "logs", "other", "--tail", "2").splitlines(), followed[-2:])
        compared = self.text(daemon, "compare", "run", "other")
        self.assertRegex(compared, r"(?m)^run +SUCCEEDED +2000 ")
        self.assertIn("training.max_steps: 2000 -> 50", compared)

        folder = pathlib.Path(daemon.job("run")["latest_checkpoint"]["path"]).parent / "run-curves"
        self.assertTrue(folder.is_dir())
        daemon.ctl("delete", "run", "--checkpoints")
        self.assertFalse(folder.exists())

    def test_bad_requests_say_what_is_accepted(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER))
        daemon.train("ok-1", harness.spec())
        daemon.wait_for_end("ok-1")
        self.assertEqual(self.curves(daemon, "ok-1").get("last_step", "0"), "0", "this worker writes none")
        for query, text in (("metrics=weights", "loss_scale"), ("from_step=-1", "0 or more"), ("to_step=-1", "0 or more"),
                            ("points=10001", "1 to 10000")):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.curves(daemon, "ok-1", f"?{query}")
            self.assertEqual(refused.exception.code, 400)
            self.assertIn(text, refused.exception.read().decode())


if __name__ == "__main__":
    unittest.main()
