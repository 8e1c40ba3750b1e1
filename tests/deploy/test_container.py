"""Tests the container image and the Compose file. No container engine is needed: the steps of the Dockerfile are
executed in folders with Debian 12, and the image's command runs there."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import yaml

from image_builder import build, is_left_out, namespaces, stages
from tools import DEPLOY, LONG, SOURCE, TOOLS, run

import harness  # noqa: E402


class Files(unittest.TestCase):
    def test_hadolint_has_nothing_to_say(self):
        done = run(TOOLS / "hadolint", "--failure-threshold", "style", SOURCE / "Dockerfile")
        self.assertEqual(done.stdout + done.stderr, "")

    def test_hadolint_reads_the_file(self):
        text = (SOURCE / "Dockerfile").read_text().replace("USER 10001:10001", "USER root")
        done = run(TOOLS / "hadolint", "-", check=False, text=text)
        self.assertIn("DL3002", done.stdout)

    def test_the_image_is_described(self):
        final = dict(stages()[-1])
        labels = dict(pair.split("=", 1) for pair in shlex.split(final["LABEL"]))
        version = re.search(r"project\(genesis VERSION ([0-9.]+)",
                            (SOURCE / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(labels["org.opencontainers.image.version"], version)
        self.assertEqual(final["STOPSIGNAL"], "SIGTERM")
        self.assertEqual(final["USER"], "10001:10001")
        self.assertIn("ARG CUDA=", (SOURCE / "Dockerfile").read_text())

    def test_the_build_stage_names_what_exists(self):
        first = stages()[0]
        copied = [words for name, arguments in first if name == "COPY"
                  for words in shlex.split(arguments)[:-1]]
        for path in copied:
            self.assertTrue((SOURCE / path).exists(), path)
        setup = (DEPLOY / "setup.sh").read_text()
        self.assertIn("--cuda)", setup)
        presets = json.loads((SOURCE / "CMakePresets.json").read_text())
        self.assertIn("release", {p["name"] for p in presets["configurePresets"]})
        self.assertIn("release", {p["name"] for p in presets["buildPresets"]})

    def test_what_is_built_here_stays_out_of_the_image(self):
        for path in (".git", "build", "tests/deploy/__pycache__", "deploy/kubernetes/secrets"):
            self.assertTrue(is_left_out(pathlib.Path(path)), path)
        self.assertFalse(is_left_out(pathlib.Path("deploy/kubernetes")))

    def test_compose_meets_its_schema(self):
        run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec",
            SOURCE / "docker-compose.yml")
        wrong = (SOURCE / "docker-compose.yml").read_text().replace("restart:", "restarts:")
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(wrong)
            file.flush()
            done = run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec",
                       file.name, check=False)
        self.assertNotEqual(done.returncode, 0)

    def test_compose_has_the_services_of_the_rollback_plan_and_its_files(self):
        compose = yaml.safe_load((SOURCE / "docker-compose.yml").read_text())
        services = compose["services"]
        lines = (pathlib.Path(__file__).with_name("rollback_plan_commands.txt").read_text()
                 .splitlines())
        restarted = [name for line in lines if line.startswith("docker-compose restart")
                     for name in shlex.split(line)[2:]]
        # "genesis" of the last command is not a service; docs/rollback.md documents its replacement.
        self.assertEqual(restarted, ["genesis-orchestrator", "genesis-workers", "genesis"])
        self.assertEqual(restarted.pop(), "genesis")
        self.assertNotIn("genesis", services)
        self.assertIn("| `docker-compose restart genesis` | `docker-compose restart genesis-orchestrator genesis-workers` |",
                      (SOURCE / "docs" / "rollback.md").read_text())
        self.assertLessEqual(set(restarted), set(services))
        ports = set()
        for name, service in services.items():
            # The services use the host's network, so every address must be on loopback.
            self.assertEqual(service["network_mode"], "host")
            text = json.dumps(service)
            self.assertNotIn("0.0.0.0", text)
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                if source.startswith("./"):
                    self.assertTrue((SOURCE / source).exists(), source)
                elif not source.startswith("/"):
                    self.assertIn(source, compose["volumes"])
            if name.startswith("genesis"):
                ports |= {service["environment"]["GENESIS_GRPC_LISTEN"],
                          service["environment"]["GENESIS_HTTP_LISTEN"]}
                drain = re.search(r"`drain.timeout_seconds` \| [^|]* \| `(\d+)`",
                                  (SOURCE / "docs" / "reference.md").read_text()).group(1)
                self.assertGreater(int(service["stop_grace_period"].removesuffix("s")), int(drain))
                # The variable stays unset unless the caller's environment has it, so that the file decides.
                self.assertIsNone(service["environment"]["ENABLE_FP16_TRAINING"])
                self.assertIn("/etc/genesis:/etc/genesis:ro", service["volumes"])
        self.assertEqual(len(ports), 4)
        scraped = set()
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        scraped |= set(config["scrape_configs"][0]["static_configs"][0]["targets"])
        more = yaml.safe_load((DEPLOY / "container" / "targets" / "workers.yml").read_text())
        scraped |= set(more[0]["targets"])
        self.assertEqual(scraped, {services[name]["environment"]["GENESIS_HTTP_LISTEN"]
                                   for name in restarted})


class EntryPoint(unittest.TestCase):
    """Tests how the environment file changes the gate."""

    def gate(self, file, environment=None):
        """Returns the gate's value that a program sees behind the entry point, and the output."""
        with tempfile.NamedTemporaryFile("w") as environment_file:
            environment_file.write(file)
            environment_file.flush()
            done = subprocess.run(
                [DEPLOY / "container" / "entrypoint.sh", "/bin/sh", "-c",
                 'printf %s "${ENABLE_FP16_TRAINING-unset}"'],
                env={"PATH": "/usr/bin:/bin", **(environment or {}),
                     "GENESIS_ENVIRONMENT_FILE": environment_file.name},
                capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_the_last_line_wins(self):
        text = "# gate\nENABLE_FP16_TRAINING=true\n\nENABLE_FP16_TRAINING=false\n"
        self.assertEqual(self.gate(text), ("false", ""))

    def test_the_file_shuts_what_the_environment_opened(self):
        self.assertEqual(self.gate("ENABLE_FP16_TRAINING=false", {"ENABLE_FP16_TRAINING": "true"}),
                         ("false", ""))

    def test_the_file_never_opens_what_the_environment_shut(self):
        for shut in ("false", "False", ""):
            self.assertEqual(self.gate("ENABLE_FP16_TRAINING=true",
                                       {"ENABLE_FP16_TRAINING": shut}), (shut, ""))

    def test_the_file_opens_what_nobody_shut(self):
        self.assertEqual(self.gate('ENABLE_FP16_TRAINING="true"\n'), ("true", ""))

    def test_lines_that_are_no_settings_run_nothing_and_are_said(self):
        with tempfile.TemporaryDirectory() as folder:
            evil = f"touch {folder}/a\nA$(touch {folder}/b)=1\nX=$(touch {folder}/c)\n"
            value, said = self.gate(evil + "ENABLE_FP16_TRAINING=false\n")
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(value, "false")
        self.assertIn("is not NAME=VALUE", said)

    def test_a_file_that_cannot_be_read_shuts_the_gate(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            script = shutil.copy(DEPLOY / "container" / "entrypoint.sh", folder)
            file = pathlib.Path(folder) / "environment"
            # As root, the file is owned by root and read by the image's user. Otherwise it is unreadable for its own owner, because only
            # root can switch to another user.
            root = os.geteuid() == 0
            file.touch(mode=0o600 if root else 0)
            user = 10001 if root else os.geteuid()
            done = subprocess.run(
                [script, "/bin/sh", "-c", 'printf %s "$ENABLE_FP16_TRAINING"'],
                **({"user": user, "group": user} if root else {}),
                env={"PATH": "/usr/bin:/bin", "GENESIS_ENVIRONMENT_FILE": str(file),
                     "ENABLE_FP16_TRAINING": "true"}, capture_output=True, text=True, timeout=LONG)
        self.assertEqual(done.stdout, "false")
        self.assertIn(f"cannot be read by user {user}", done.stderr)
        self.assertIn("chmod 0644", done.stderr)

    def test_without_a_file_nothing_changes(self):
        done = subprocess.run([DEPLOY / "container" / "entrypoint.sh", "/bin/echo", "started"],
                              env={"GENESIS_ENVIRONMENT_FILE": "/nowhere"}, capture_output=True,
                              text=True, timeout=LONG)
        self.assertEqual((done.stdout, done.stderr), ("started\n", ""))


class WorkerLoop(unittest.TestCase):
    """Tests worker.sh with a genesis-worker that a test scripts."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="genesis-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.started = self.folder / "started"

    def start(self, script):
        program = self.folder / "genesis-worker"
        program.write_text(f'#!/bin/sh\necho "$@" >> {self.started}\n{script}\n')
        program.chmod(0o755)
        process = subprocess.Popen([DEPLOY / "container" / "worker.sh", "--device", "cpu"],
                                   env={"PATH": f"{self.folder}:/usr/bin:/bin"})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def times(self):
        return len(self.started.read_text().splitlines()) if self.started.exists() else 0

    def test_it_starts_the_worker_again_with_its_arguments(self):
        process = self.start("exit 0")
        harness.wait_for("a third start", lambda: self.times() > 2)
        process.terminate()
        self.assertEqual(process.wait(LONG), 0)
        self.assertEqual(set(self.started.read_text().splitlines()), {"--device cpu"})

    def test_a_worker_that_failed_is_started_again(self):
        process = self.start("exit 1")
        harness.wait_for("a second start", lambda: self.times() > 1)
        process.terminate()
        self.assertEqual(process.wait(LONG), 0)

    def test_an_unusable_flag_ends_it(self):
        self.assertEqual(self.start("exit 2").wait(LONG), 2)
        self.assertEqual(self.times(), 1)

    def test_a_signal_waits_for_the_workers_checkpoint(self):
        done = self.folder / "checkpointed"
        process = self.start(f"trap 'sleep 0.5; touch {done}; exit 0' TERM; while :; do sleep 0.05; done")
        harness.wait_for("the worker", lambda: self.times() == 1)
        process.terminate()
        self.assertEqual(process.wait(LONG), 0)
        self.assertTrue(done.exists())
        self.assertEqual(self.times(), 1)


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        harness.need_namespaces()
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="genesis-image-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.image = build(cls.work)
        cls.root = cls.image.root
    def setUp(self):
        # Creates the volume with the owner of the image's folder, as an engine does.
        self.data = self.root / "data"
        shutil.rmtree(self.data)
        (self.data / "datasets").mkdir(parents=True)
        shutil.copy(harness.TRAJECTORIES / "pendulum.npz", self.data / "datasets")
        for path in (self.data, self.data / "datasets"):
            os.chown(path, 10001, 10001)

    def inside(self, *command, **environment):
        """Returns the command line that runs `command` as a container's first process."""
        values = {**self.image.environment, **environment}
        user, group = self.image.value_of("USER").split(":")
        # Confined as in the manifests and the Compose file: only the volume and /tmp are writable, and the process has no capabilities and
        # cannot gain any.
        script = f"""set -e
mount --bind {self.root} {self.root}
cd {self.root}
mount --bind {self.data} data
mount -t tmpfs tmpfs tmp
mount -t proc proc proc
mount --bind /dev dev
mount -o remount,ro,bind {self.root}
exec "$@"
"""
        return namespaces(
            "sh", "-c", script, "sh", "chroot", ".", "setpriv", f"--reuid={user}",
            f"--regid={group}", "--clear-groups", "--no-new-privs", "--bounding-set=-all",
            "--inh-caps=-all", "env", "-i", *[f"{k}={v}" for k, v in values.items()], *command)

    def start(self, **environment):
        """Starts the image's command. Returns the outer process."""
        entry = json.loads(self.image.value_of("ENTRYPOINT"))
        command = json.loads(self.image.value_of("CMD"))
        (self.data / "run" / "endpoints").unlink(missing_ok=True)
        output = open(self.work / "output", "wb")
        self.addCleanup(output.close)
        process = subprocess.Popen(
            self.inside(*entry, *command, GENESIS_GRPC_LISTEN="127.0.0.1:0",
                        GENESIS_HTTP_LISTEN="127.0.0.1:0", **environment),
            stdout=output, stderr=output)
        self.addCleanup(self.end, process)

        def listening():
            if process.poll() is not None:
                raise AssertionError((self.work / "output").read_text())
            return (self.data / "run" / "endpoints").exists()

        harness.wait_for("the daemon", listening)
        return process

    @staticmethod
    def first_process(outer):
        """Returns the process that has ID 1 in its container."""
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        return int(children[0])

    def end(self, outer):
        """Sends SIGTERM to the first process, like `docker stop`. Returns its exit code."""
        if outer.poll() is None:
            os.kill(self.first_process(outer), signal.SIGTERM)
        return outer.wait(LONG)

    def health(self):
        command = json.loads(self.image.value_of("HEALTHCHECK").split("CMD", 1)[1])
        return run(*self.inside(*command), check=False)

    def ctl(self, *arguments):
        server = re.search("^grpc: (.*)$", (self.data / "run" / "endpoints").read_text(),
                           re.MULTILINE).group(1)
        return run(*self.inside("genesisctl", "--server", server, *arguments)).stdout

    def log(self):
        return (self.data / "log" / "orchestrator.log").read_text()

    def test_it_trains_answers_health_and_ends_cleanly(self):
        self.assertNotEqual(self.health().returncode, 0)
        outer = self.start()
        self.assertEqual(self.health().stderr, "")
        self.assertEqual(self.health().returncode, 0)
        first = self.first_process(outer)
        for line in pathlib.Path(f"/proc/{first}/status").read_text().splitlines():
            if line.startswith(("Uid:", "Gid:")):
                self.assertEqual(set(line.split()[1:]), {"10001"})
            if line.startswith("Cap"):
                self.assertEqual(int(line.split()[1], 16), 0, line)
        self.assertNotEqual(run(*self.inside("touch", "/usr/local/bin/x"), check=False).returncode, 0)
        self.assertIn("tini", pathlib.Path(f"/proc/{first}/cmdline").read_text())
        (self.data / "job.yaml").write_text(json.dumps(harness.spec(max_steps=40)))
        self.ctl("train", "-f", "/data/job.yaml", "--job-id", "one")
        self.assertIn("SUCCEEDED", self.ctl("watch", "one"))
        self.assertTrue(list((self.data / "checkpoints").glob("one*.pt")))
        begin = time.monotonic()
        self.assertEqual(self.end(outer), 0, (self.work / "output").read_text())
        print(f"ended {time.monotonic() - begin:.2f} s after SIGTERM")
        self.assertNotEqual(self.health().returncode, 0)

    def test_a_line_in_the_environment_file_and_a_restart_roll_back(self):
        file = self.root / "etc" / "genesis" / "environment"
        file.parent.mkdir(exist_ok=True)
        self.addCleanup(file.unlink)
        file.write_text("ENABLE_FP16_TRAINING=true\n")
        self.end(self.start())
        self.assertIn("fp16_enabled: True", self.log())
        with open(file, "a") as opened:
            opened.write("ENABLE_FP16_TRAINING=false\n")
        # The container keeps its original environment, but the file takes precedence.
        self.end(self.start(ENABLE_FP16_TRAINING="true"))
        self.assertEqual(re.findall("fp16_enabled: (True|False)", self.log())[-1], "False")
        self.assertIn("FP16 training disabled - using FP32", self.log())


if __name__ == "__main__":
    unittest.main()
