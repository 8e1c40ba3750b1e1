"""Tests genesis.forward with the tools that it forwards to: what TensorBoard's and Trackio's own readers, a server of MLflow and the log of
W&B hold afterwards is compared with the daemon's curves."""

import json
import math
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import unittest
import urllib.request

import genesis
import harness
import tiers
from genesis.forward.wandb import records_of_log
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from wandb.proto.wandb_internal_pb2 import Record

ODD = "a=1\u202e<script>alert('1')</script> `x` **b** \u0085 " + "\u00e4" * 40
STEPS = 3000


class MlflowServer:
    """A server of MLflow in a folder, which may be stopped and started again on the same port."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--default-artifact-root", f"{self.folder}/artifacts"],
            stdout=open(f"{self.folder}/mlflow.log", "ab"), stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        harness.wait_for("MLflow", self._serves)

    def _serves(self):
        if self.process.poll() is not None:
            raise AssertionError(pathlib.Path(self.folder, "mlflow.log").read_text()[-3000:])
        try:
            return urllib.request.urlopen(self.url + "/health", timeout=5).status == 200
        except OSError:
            return False

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # With its workers, which are its own session.
        self.process.wait()

    def call(self, method, **body):
        request = urllib.request.Request(f"{self.url}/api/2.0/mlflow/{method}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=harness.LONG))

    def run(self, job_id):
        """Returns the only run of a job; None before it exists."""
        found = self.call("experiments/search", filter="name = 'genesis'", max_results=1).get("experiments")
        if not found:
            return None
        runs = self.call("runs/search", experiment_ids=[found[0]["experiment_id"]], filter=f"tags.`genesis.job_id` = '{job_id}'",
                         max_results=10).get("runs", [])
        if len(runs) > 1:
            raise AssertionError(runs)
        return runs[0] if runs else None

    def status(self, job_id):
        run = self.run(job_id)
        return run and run["info"]["status"]

    def tags(self, job_id):
        return {tag["key"]: tag["value"] for tag in self.run(job_id)["data"]["tags"]}

    def history(self, job_id, metric):
        """Returns the points of a metric as (step, value) by step."""
        page = self.call(f"metrics/get-history?run_id={self.run(job_id)['info']['run_id']}&metric_key={metric}&max_results=25000")
        return sorted((int(each.get("step", 0)), float(each["value"])) for each in page.get("metrics", []))


class ExportersTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.data_dir)
        self.environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": self.data_dir, "TRACKIO_DIR": f"{self.data_dir}/trackio",
                            "TMPDIR": self.data_dir}
        self.errors = self.folder / "forward.log"

    def forward(self, daemon, *tools, options=()):
        to = [argument for tool in tools for argument in ("--to", tool)]
        process = subprocess.Popen(
            [sys.executable, "-m", "genesis.forward", "--server", daemon.grpc, "--state", self.folder / "forward.json", *to, *options],
            stdout=subprocess.DEVNULL, stderr=open(self.errors, "ab"), env=self.environment)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def wait_until_sent(self, *tools):
        """Waits until the end of every job was sent to the tools."""
        def sent():
            saved = json.loads((self.folder / "forward.json").read_text()) if (self.folder / "forward.json").exists() else {}
            return all(tool in saved and saved[tool]["cursor"] and not saved[tool]["jobs"] for tool in tools)

        harness.wait_for("the forwarder", sent)

    def sent(self):
        """Returns the newest step of the job "run" that was sent, by tool."""
        path = self.folder / "forward.json"
        saved = json.loads(path.read_text()) if path.exists() else {}
        return {tool: each["jobs"].get("run", {}).get("step", 0) for tool, each in saved.items()}

    def wait_for_points(self, tool, after):
        harness.wait_for(f"points in {tool}", lambda: self.sent().get(tool, 0) > after)

    def mlflow(self):
        server = MlflowServer(self.data_dir)
        server.start()
        self.addCleanup(lambda: server.stop())
        return server

    def trackio(self, job_id, metric):
        """Returns the points of a metric as Trackio's command prints them."""
        def get(*arguments):
            done = subprocess.run([sys.executable, "-m", "trackio.cli", *arguments, "--project", "project", "--json"], env=self.environment,
                                  check=True, capture_output=True, text=True, timeout=harness.LONG)
            return json.loads(done.stdout)

        (name,) = [name for name in get("list", "runs")["runs"] if name.startswith(job_id + "-")]
        return get("get", "metric", "--run", name, "--metric", metric)["values"]

    def end(self, process):
        """Ends the forwarder. Returns its last lines, one for each tool."""
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(harness.LONG), 0)
        return [line for line in self.errors.read_text().splitlines() if line.endswith("dropped")]

    def losses(self, daemon, job_id):
        """Returns the losses that the daemon has, as (step, loss)."""
        found = daemon.get_json(f"/v1/jobs/{job_id}/curves?metrics=loss&points=10000")
        return [(int(step), float32(loss)) for step, loss in zip(found["last_steps"], found["curves"][0]["mean"])]

    def tensorboard(self, job_id):
        accumulator = EventAccumulator(str(self.folder / "tb" / job_id), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        return accumulator

    def scalars(self, job_id, tag="train/loss"):
        return [(event.step, event.value) for event in self.tensorboard(job_id).Scalars(tag)]

    def texts(self, job_id, tag="events"):
        return [event.tensor_proto.string_val[0].decode() for event in self.tensorboard(job_id).Tensors(tag)]

    def starts(self, job_id):
        """Returns the steps of SessionLog START in the files of a job."""
        events = [event for path in sorted((self.folder / "tb" / job_id).iterdir()) for event in EventFileLoader(str(path)).Load()]
        return [event.step for event in events if event.session_log.status == SessionLog.START]

    def wandb_rows(self, job_id):
        """Returns what the logs of W&B's offline runs hold of a job, as dicts, and the exit codes."""
        rows, exits = [], []
        for path in sorted((self.folder / "wandb").glob(f"offline-run-*-{job_id}-*/*.wandb"), key=os.path.getmtime):
            for data in records_of_log(path.read_bytes()):
                record = Record.FromString(data)
                if record.WhichOneof("record_type") == "history":
                    rows.append({item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
                                 for item in record.history.item})
                elif record.WhichOneof("record_type") == "exit":
                    exits.append(record.exit.exit_code)
        return rows, exits


def float32(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


@tiers.nightly
class Kills(ExportersTest):
    """Steps are sent once, whatever is killed: to TensorBoard, Trackio, W&B without a connection, and MLflow."""

    def test_each_step_is_there_once_whatever_is_killed(self):
        mlflow = self.mlflow()
        daemon = self.start()
        tools = (f"tensorboard:{self.folder}/tb", f"mlflow:{mlflow.url}", "wandb:project", "trackio:project")
        forward = self.forward(daemon, *tools)
        spec = harness.spec(max_steps=STEPS, batch_size=1024)
        spec["evaluation"] = {"every_steps": 500}
        spec["checkpoint"] = {"every_steps": 10 * STEPS}  # A killed worker trains all of its steps again.
        spec["scheduling"] = {"labels": {"team": ODD}}
        daemon.train("run", spec)
        begun = {}
        for kill in range(4):
            self.wait_for_points(tools[kill], begun.get(tools[kill], 0))
            forward.kill()
            forward.wait()
            if kill == 0:
                early = (self.folder / "forward.json").read_text()
            elif kill == 3:  # As if it had been killed before it saved that all this was sent.
                (self.folder / "forward.json").write_text(early)
            begun = self.sent()
            if kill == 1:
                os.kill(daemon.busy_worker_pid(), signal.SIGKILL)
            elif kill == 2:
                daemon.kill()
                daemon = self.start()
            forward = self.forward(daemon, *tools)
        self.assertEqual(daemon.wait_for_end("run")["state"], "JOB_STATE_SUCCEEDED")
        self.wait_until_sent(*tools)
        self.assertEqual([line.split(", ")[-1] for line in self.end(forward)], ["0 dropped"] * 4)

        expected = self.losses(daemon, "run")
        steps = [step for step, _ in expected]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        self.assertEqual(self.scalars("run"), expected)
        self.assertEqual([step for step, _ in mlflow.history("run", "train/loss")], steps)
        self.assertEqual(mlflow.status("run"), "FINISHED")
        rows, exits = self.wandb_rows("run")
        self.assertEqual([row["_step"] for row in rows], steps)
        self.assertEqual(exits, [0])
        self.assertEqual([point["step"] for point in self.trackio("run", "train/loss")], steps)
        evaluations = list(range(500, STEPS + 1, 500))
        self.assertEqual([step for step, _ in self.scalars("run", "eval/loss")], evaluations)
        self.assertEqual([step for step, _ in mlflow.history("run", "eval/loss")], evaluations)
        self.assertEqual([row["eval/step"] for row in rows if "eval/loss" in row], evaluations)
        self.assertEqual([point["step"] for point in self.trackio("run", "eval/loss")], evaluations)

        story = self.texts("run")[-1]
        self.assertEqual((story.count(" RECOVERING: "), story.count(" SUCCEEDED: training complete")), (1, 1), story)
        self.assertGreaterEqual(len(self.starts("run")), 2)
        (job,) = self.texts("run", "job")
        self.assertIn("**b**", job)
        self.assertTrue(all(line.startswith("    ") for line in job.splitlines()))
        self.assertEqual(mlflow.tags("run")["genesis.label.team"], ODD.replace("\x85", "\ufffd"))


@tiers.nightly
class Outages(ExportersTest):
    def test_a_dead_and_a_hanging_tool_cost_a_job_and_the_other_tools_nothing(self):
        mlflow = MlflowServer(self.data_dir)
        hanging = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(hanging.close)
        daemon = self.start()
        tensorboard, dead = f"tensorboard:{self.folder}/tb", f"mlflow:{mlflow.url}"
        silent = f"mlflow:http://127.0.0.1:{hanging.getsockname()[1]}"
        forward = self.forward(daemon, silent, dead, tensorboard)
        daemon.train("run", harness.spec(max_steps=1000))
        daemon.wait_for_end("run")
        self.wait_until_sent(tensorboard)
        self.assertEqual(self.scalars("run"), self.losses(daemon, "run"))
        self.assertIn(f"{dead}: waiting, because of ", self.errors.read_text())
        mlflow.start()
        self.addCleanup(mlflow.stop)
        self.wait_until_sent(dead)
        self.assertEqual([step for step, _ in mlflow.history("run", "train/loss")], list(range(1, 1001)))
        mlflow.stop()
        daemon.train("second", harness.spec(max_steps=1000))
        daemon.wait_for_end("second")
        harness.wait_for("a second outage", lambda: self.errors.read_text().count(f"{dead}: waiting, because of ") == 2)
        mlflow.start()
        harness.wait_for("the second job", lambda: mlflow.status("second") == "FINISHED")
        self.assertEqual([step for step, _ in mlflow.history("second", "train/loss")], list(range(1, 1001)))
        lines = {line.split(" ")[0]: line for line in self.end(forward)}
        self.assertRegex(lines[tensorboard + ":"], "2000 steps and [0-9]+ events sent, 0 failures, 0 dropped")
        self.assertRegex(lines[dead + ":"], "2000 steps and [0-9]+ events sent, [1-9][0-9]* failures, 0 dropped")
        self.assertIn("0 steps and 0 events sent", lines[silent + ":"])

    def killed_amid_a_job(self):
        """Returns a daemon with the running job "run" and the tool to which a forwarder sent its first points before it was killed."""
        daemon = self.start()
        tool = f"tensorboard:{self.folder}/tb"
        forward = self.forward(daemon, tool)
        daemon.train("run", harness.spec(max_steps=20000, batch_size=1024))
        self.wait_for_points(tool, 0)
        forward.kill()
        forward.wait()
        return daemon, tool

    def test_what_is_deleted_before_it_was_sent_is_counted(self):
        daemon, tool = self.killed_amid_a_job()
        daemon.ctl("cancel", "run")
        daemon.wait_for_end("run")
        daemon.ctl("delete", "run")
        forward = self.forward(daemon, tool)
        self.wait_until_sent(tool)
        self.assertIn("1 dropped", self.end(forward)[0])
        self.assertIn("not sent: the end of job run, which was deleted", self.errors.read_text())

    def test_reports_of_callers_have_their_step(self):
        daemon, tool = self.killed_amid_a_job()
        daemon.ctl("report", "run", "return=210.5", "--step", "1")
        daemon.ctl("cancel", "run")
        tools = (tool, "wandb:project")
        forward = self.forward(daemon, *tools)
        self.wait_until_sent(*tools)
        self.end(forward)
        self.assertEqual(self.scalars("run", "reported/return"), [(1, 210.5)])
        self.assertEqual([row["reported/step"] for row in self.wandb_rows("run")[0] if row.get("reported/return") == 210.5], [1])

    def test_events_that_the_daemon_dropped_are_counted_and_the_end_is_sent(self):
        daemon, tool = self.killed_amid_a_job()
        daemon.ctl("pause", "run")
        with genesis.Client(daemon.grpc) as client:
            job = client.job("run")
            for number in range(1100):  # The daemon keeps 1000 of a kind.
                job.update(labels={"number": str(number)})
        daemon.ctl("cancel", "run")
        daemon.stop()
        daemon = self.start()  # It has no newer events in memory.
        forward = self.forward(daemon, tool)
        self.wait_until_sent(tool)
        self.assertIn("1 dropped", self.end(forward)[0])
        self.assertIn("not sent: events that the daemon does not keep any more", self.errors.read_text())
        self.assertIn(" CANCELLED: ", self.texts("run")[-1])
        self.assertEqual(self.scalars("run"), self.losses(daemon, "run"))


@tiers.nightly
class Mlflow(ExportersTest):
    def test_runs_have_the_state_of_their_job(self):
        mlflow = self.mlflow()
        daemon = self.start(environment={"ENABLE_FP16_TRAINING": "true", "GENESIS_PRECISION_CPU_FALLBACK": "emulate",
                                         "GENESIS_REHEARSALS_ALLOWED": "true"})
        forward = self.forward(daemon, f"mlflow:{mlflow.url}", f"tensorboard:{self.folder}/tb", options=("--label", "team"))
        spec = harness.spec(max_steps=20000, batch_size=1024)
        spec["scheduling"] = {"labels": {"team": ODD}}

        def wait_for(job_id, status):
            harness.wait_for(f"{status} of {job_id}", lambda: mlflow.status(job_id) == status)

        daemon.train("unlabelled", harness.spec(max_steps=10))
        daemon.train("stops", spec)
        wait_for("stops", "RUNNING")
        daemon.ctl("pause", "stops")
        wait_for("stops", "SCHEDULED")
        daemon.ctl("resume", "stops")
        wait_for("stops", "RUNNING")
        daemon.ctl("cancel", "stops")
        wait_for("stops", "KILLED")
        info = mlflow.run("stops")["info"]
        self.assertEqual((info["run_name"], mlflow.tags("stops")["mlflow.user"]), ("stops", "anonymous"))
        self.assertGreater(int(info["end_time"]), int(info["start_time"]))
        params = {each["key"]: each["value"] for each in mlflow.run("stops")["data"]["params"]}
        self.assertEqual((params["training.max_steps"], params["training.batch_size"]), ("20000", "1024"))

        fails = {**spec, "training": {**spec["training"], "max_steps": 300}, "rehearsals": [{"kind": "NAN", "at_step": 40, "steps": 100}]}
        daemon.train("fails", fails)
        wait_for("fails", "FAILED")
        expected = self.losses(daemon, "fails")
        self.assertTrue(any(math.isnan(loss) for _, loss in expected), expected)
        self.assertEqual(repr(self.scalars("fails")), repr(expected))
        self.assertEqual([step for step, _ in mlflow.history("fails", "train/loss")], [step for step, _ in expected])
        self.assertIn("FAILED: ", mlflow.tags("fails")["mlflow.note.content"])

        storm = {**spec, "training": {**spec["training"], "max_steps": 120, "batch_size": 64},
                 "precision": {"mode": "MIXED_FP16", "loss_scale": 16, "fallbacks": ["FP32"]},
                 "rehearsals": [{"kind": "INF", "at_step": 30, "steps": 8}]}
        daemon.train("falls-back", storm)
        wait_for("falls-back", "FINISHED")
        tags = mlflow.tags("falls-back")
        self.assertIn("MIXED_FP16 to FP32, continued after step ", tags["mlflow.note.content"])
        self.assertEqual(tags["genesis.precision"], "FP32")
        self.assertEqual(tags["genesis.label.team"], ODD.replace("\x85", "\ufffd"))
        (change,) = daemon.job("falls-back")["precision_changes"]
        scales = [step for step, _ in self.scalars("falls-back", "train/loss_scale")]
        self.assertEqual(scales, list(range(1, int(change["resumed_step"]) + 1)))
        self.assertIn("MIXED_FP16 to FP32", self.texts("falls-back")[-1])
        self.assertIsNone(mlflow.run("unlabelled"))
        self.assertEqual([line.split(", ")[-1] for line in self.end(forward)], ["0 dropped"] * 2)


class CommandLine(ExportersTest):
    def test_what_cannot_work_is_refused(self):
        daemon = self.start()
        self.forward(daemon, f"tensorboard:{self.folder}/tb")
        harness.wait_for("its file", (self.folder / "forward.json.lock").exists)

        def refused(*arguments, before=""):
            program = before + "import runpy; runpy.run_module('genesis.forward', run_name='__main__', alter_sys=True)"
            done = subprocess.run([sys.executable, "-c", program, "--server", daemon.grpc, *arguments], capture_output=True, text=True,
                                  cwd=self.data_dir, timeout=harness.LONG)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr

        self.assertIn("accepted: tensorboard:FOLDER", refused("--to", "tensorbord:x"))
        self.assertIn("accepted: tensorboard:FOLDER", refused("--to", "wandb:"))
        secret = refused("--to", "mlflow:http://me:planted@127.0.0.1:5000")
        self.assertIn("MLFLOW_TRACKING_PASSWORD", secret)
        self.assertNotIn("planted", secret)
        self.assertIn("pip install wandb", refused("--to", "wandb:x", before="import sys; sys.modules['wandb'] = None\n"))
        self.assertIn("accepted: KEY=VALUE", refused("--to", "tensorboard:x", "--label", "=x"))
        self.assertIn("give each its own --state", refused("--to", "tensorboard:x", "--state", "forward.json"))
        (self.folder / "other.json").write_text("[1]")
        self.assertIn("other.json is not a file of genesis.forward", refused("--to", "tensorboard:x", "--state", "other.json"))


if __name__ == "__main__":
    unittest.main()
