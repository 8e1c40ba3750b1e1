"""Tests the Debian package on separate machines: content, installation, start, upgrade, removal and purge."""

import re
import subprocess
import unittest

from machine import LIBTORCH, Machine, Service, package_file  # Must come first, because it adds the harness to the path.
import tiers
from harness import BIN, SOURCE, wait_for

PROGRAMS = ("genesisd", "genesisctl", "genesis-worker", "genesis-rollback")


def field(name):
    return subprocess.run(["dpkg-deb", "--field", package_file(), name], capture_output=True,
                          text=True, check=True).stdout.strip()


@tiers.nightly
class Contents(unittest.TestCase):
    def test_it_is_named_and_numbered_as_the_project(self):
        version = re.search(r"project\(genesis VERSION ([0-9.]+)",
                            (SOURCE / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual((field("Package"), field("Version")), ("genesis-trainer", version))

    def test_it_depends_on_every_library_that_a_program_names_but_libtorch(self):
        depends = {each.split()[0].split(":")[0] for each in field("Depends").split(", ")}
        for program in ("genesisd", "genesisctl", "genesis-worker"):
            needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(
                ["readelf", "-d", BIN / program], capture_output=True, text=True, check=True).stdout)
            self.assertGreater(len(needed), 3)
            for library in needed:
                if library.startswith(("libtorch", "libc10", "ld-linux", "libgomp")):
                    continue
                owner = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True,
                                       text=True, check=True).stdout
                # The name may be "libspdlog1.10-fmt9", which libspdlog1.10 provides.
                names = {line.split(":")[0] for line in owner.splitlines()}
                self.assertTrue(any(found.startswith(name) for name in names for found in depends),
                                f"{library} of {names}")

    def test_nothing_of_the_machine_it_was_built_on_is_left(self):
        machine = Machine(boot=False)
        self.addCleanup(machine.stop)
        machine.install()
        dynamic = subprocess.run(
            ["readelf", "-d", machine.path("/usr/lib/genesis/genesis-worker")], capture_output=True,
            text=True, check=True).stdout
        self.assertEqual(re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic), [f"{LIBTORCH}/lib"])


@tiers.nightly
class WithoutSystemd(unittest.TestCase):
    """Without systemd, as in a container, users and folders are created, and nothing is started."""

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(boot=False)
        cls.addClassCleanup(cls.machine.stop)
        cls.machine.install()

    def test_programs_answer(self):
        for name in PROGRAMS:
            if name != "genesis-worker":
                self.assertIn("sage", self.machine.run(f"{name} --help").stdout)

    def test_the_worker_says_where_libtorch_belongs(self):
        done = self.machine.run("genesis-worker --version", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{LIBTORCH} does not exist", done.stderr)
        self.machine.run("mkdir -p /tmp/t/lib && echo 2.9.1+cpu > /tmp/t/build-version")
        for wanted, before in (("has no lib/libtorch_cpu.so", "true"),
                               ("is torch 2.9.1+cpu; 2.11 is needed", "touch /tmp/t/lib/libtorch_cpu.so")):
            done = self.machine.run(f"{before}; GENESIS_LIBTORCH=/tmp/t genesis-worker --version",
                                    check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(wanted, done.stderr)

    def test_user_folders_and_settings(self):
        self.assertRegex(self.machine.run("getent passwd genesis").stdout,
                         r":/var/lib/genesis:/usr/sbin/nologin\n")
        self.assertEqual(self.machine.run("stat -c %U:%a /data/checkpoints").stdout, "genesis:750\n")
        settings = self.machine.run("genesisd --config=/etc/genesis/genesisd.yaml --check-config").stdout
        for text in ("data_dir = /var/lib/genesis", "checkpoints.dir = /data/checkpoints",
                     "log.file = /var/log/genesis/orchestrator.log"):
            self.assertIn(text, settings)

    def test_every_program_has_a_manual_page(self):
        for name, section in (("genesisd", 8), ("genesisctl", 1), ("genesis-worker", 1),
                              ("genesis-rollback", 8)):
            path = self.machine.path(f"/usr/share/man/man{section}/{name}.{section}.gz")
            done = subprocess.run(["man", "--warnings", "--local-file", path], capture_output=True,
                                  text=True, check=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
            self.assertEqual(done.stderr, "")
            self.assertIn(f"{name} - ", done.stdout)

    def complete(self, *words):
        line = " ".join(f"'{word}'" for word in words)
        return self.machine.run(
            "source /usr/share/bash-completion/completions/genesisctl; "
            f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _genesisctl; "
            'printf "%s\\n" "${COMPREPLY[@]}"').stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("genesisctl", "drain-w"), ["drain-worker"])
        self.assertIn("--watch", self.complete("genesisctl", "train", "--"))
        self.assertEqual(self.complete("genesisctl", "--server", "here:1", "precision", "dis"),
                         ["disable"])
        self.assertEqual(self.complete("genesisctl", "jobs", "--output", "y"), ["yaml"])
        commands = re.findall(r"^  ([a-z-]+)", self.machine.run("genesisctl --help").stdout.split(
            "Commands:")[1].split("Options:")[0], re.MULTILINE)
        self.assertEqual(sorted(self.complete("genesisctl", "")), sorted(commands))


@tiers.nightly
class Life(unittest.TestCase):
    """The package is installed, started, upgraded, removed and purged, in this order, on one machine."""

    def test_life(self):
        machine = Service()
        self.addCleanup(machine.stop)
        # The service is first started by the administrator, after installing LibTorch.
        self.assertEqual(machine.property("UnitFileState"), "enabled")
        self.assertEqual(machine.property("ActiveState"), "inactive")
        machine.run("systemctl start genesis-trainer")
        machine.train("first", """
model: {world_model: {hidden_size: 16, latent_size: 8}}
dataset:
  synthetic:
    trajectories: {episodes: 8, episode_length: 16, observation_size: 4, action_size: 1}
training: {max_steps: 20, batch_size: 16}
""")
        wait_for("the job", lambda: machine.job("first")["state"] == "JOB_STATE_SUCCEEDED")
        machine.run("echo ENABLE_FP16_TRAINING=false >> /etc/genesis/environment")
        before = machine.property("MainPID")

        machine.install()
        self.assertNotEqual(machine.property("MainPID"), before)
        self.assertEqual(machine.property("ActiveState"), "active")
        self.assertIn("ENABLE_FP16_TRAINING=false", machine.read("/etc/genesis/environment"))
        self.assertEqual(machine.job("first")["state"], "JOB_STATE_SUCCEEDED")

        machine.run("dpkg --remove genesis-trainer")
        self.assertEqual(machine.run("pgrep -u genesis", check=False).stdout, "")
        machine.run("test -e /etc/genesis/genesisd.yaml -a -e /var/lib/genesis/jobs.db")
        self.assertEqual(machine.run("ls /etc/systemd/system/multi-user.target.wants", check=False)
                         .stdout.count("genesis"), 0)

        machine.run("dpkg --purge genesis-trainer")
        self.assertEqual(machine.run("ls -d /etc/genesis /var/lib/genesis /var/log/genesis "
                                     "/etc/logrotate.d/genesis-trainer", check=False).stdout, "")
        left = machine.run("find / -xdev -name '*genesis*' -not -path '/opt/*' -not -path '/proc/*' "
                           "-not -path '/var/log/journal/*' -not -name genesis-trainer.deb "
                           "-not -path '/tmp/*' -not -path '/var/lib/systemd/*'").stdout.split()
        self.assertEqual(left, [])
        # The checkpoints remain.
        self.assertIn("first-step-", machine.run("ls /data/checkpoints").stdout)


if __name__ == "__main__":
    unittest.main()
