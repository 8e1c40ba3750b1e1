"""Executes the Dockerfile stage by stage in folders, like a container engine. Requires root, and the Debian 12 that
deploy/setup.sh --test stores as an archive.

The compilation takes as long as all other steps together, and the current build has just done the same on the same Debian. Its results are
installed instead. GENESIS_IMAGE_COMPILES=1 executes that step too.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

from tools import DEPLOY, SOURCE, run  # Must come first, because it adds the harness to the path.
from harness import BIN

DEBIAN = pathlib.Path(os.environ["GENESIS_DEBIAN"])
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Time limit in seconds, enough for a build without a compiler cache.
LONGEST = 3600
COMPILES = os.environ.get("GENESIS_IMAGE_COMPILES") == "1"
COMPILING = re.compile(r"cmake --preset release .*&& cmake --build --preset release .*"
                       r"&& cmake --install build/release --prefix (?P<prefix>\S+) --strip")
ONLY_DESCRIBE = {"LABEL", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def stages():
    """Returns the stages of the Dockerfile, each a list of (instruction, arguments)."""
    text = re.sub(r"^\s*#.*\n", "", (SOURCE / "Dockerfile").read_text(), flags=re.MULTILINE)
    found = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        instruction, _, arguments = line.strip().partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, arguments.strip()))
    return found


def namespaces(*command):
    """Returns a command that runs `command` in new mount and process namespaces, so that none of its processes or mounts remain."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", *map(str, command)]


def compiler_cache():
    """Returns the folder of this machine's ccache."""
    done = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True)
    folder = pathlib.Path(done.stdout.strip())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def is_left_out(path):
    """Returns whether .dockerignore excludes a path, which is relative to the sources."""
    patterns = (SOURCE / ".dockerignore").read_text().splitlines()
    return str(path) in patterns or f"**/{path.name}" in patterns


class Network:
    """The host's network settings, which an engine gives to a build: resolver, package sources, pip's settings and CA certificates."""

    def __init__(self):
        self.environment, self.mounts, self.files = {}, [], {}
        for name, value in os.environ.items():
            if name.startswith("PIP_") or name.lower().endswith("_proxy"):
                self.environment[name] = value
        for name in ("PIP_CERT", "SSL_CERT_FILE"):
            if name in os.environ:
                inside = f"/run/host/{name}"
                self.files[inside] = pathlib.Path(os.environ[name])
                self.environment[name] = inside
        for place in os.environ.get("PIP_FIND_LINKS", "").split():
            if pathlib.Path(place).is_dir():
                self.mounts.append((place, place))

    def enter(self, root):
        """Copies the settings into a file system."""
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        shutil.copytree("/etc/apt", root / "etc" / "apt", dirs_exist_ok=True)
        for inside, file in self.files.items():
            (root / inside[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / inside[1:])


class Stage:
    """One stage. `root` is its file system, and `environment` that of its image."""

    def __init__(self, work, name, instructions, before):
        self.instructions, self.before = instructions, before
        self.root = work / name
        self.environment = {"PATH": PATH}
        self.arguments = {}
        self.folder = "/"
        self.network = Network()
        for instruction, arguments in instructions:
            self._carry_out(instruction, arguments)

    def value_of(self, instruction):
        return [arguments for name, arguments in self.instructions if name == instruction][-1]

    def _carry_out(self, instruction, arguments):
        if instruction == "FROM":
            assert arguments.split()[0] in ("debian:12", "debian:12-slim"), arguments
            self.root.mkdir()
            run("tar", "-C", self.root, "-xf", DEBIAN)
            self.network.enter(self.root)
        elif instruction == "ARG":
            name, _, value = arguments.partition("=")
            self.arguments[name] = value
        elif instruction == "ENV":
            self.environment.update(pair.split("=", 1) for pair in shlex.split(arguments))
        elif instruction == "WORKDIR":
            self.folder = arguments
            (self.root / arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            self._copy(shlex.split(arguments))
        elif instruction == "RUN":
            compiling = COMPILING.fullmatch(arguments)
            if compiling and not COMPILES:
                self._install(compiling["prefix"])
            else:
                self._run(arguments)
        else:
            assert instruction in ONLY_DESCRIBE, f"{instruction} is not known here"

    def _run(self, command):
        environment = {**self.arguments, **self.environment, **self.network.environment}
        # The folder of the host's ccache is mounted at ccache's default folder, so that each source is compiled only once.
        mounts = [*self.network.mounts]
        if "XDG_CACHE_HOME" in self.environment:
            mounts.append((compiler_cache(), self.environment["XDG_CACHE_HOME"] + "/ccache"))
        lines = ["set -e", f"mount -t proc proc {self.root}/proc", f"mount --rbind /dev {self.root}/dev"]
        for outside, inside in mounts:
            lines += [f"mkdir -p {self.root}{inside}", f"mount --bind {outside} {self.root}{inside}"]
        script = "\n".join([*lines, 'exec "$@"'])
        # The command is an argument of the shell, so that it needs no quoting.
        done = subprocess.run(
            namespaces("sh", "-c", script, "sh", "chroot", self.root, "env", "-i", f"--chdir={self.folder}",
                       *[f"{name}={value}" for name, value in environment.items()], "/bin/sh", "-c", command),
            capture_output=True, text=True, timeout=LONGEST, check=False)
        if done.returncode != 0:
            raise AssertionError(f"RUN {command}: {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-6000:]}")

    def _install(self, prefix):
        """Installs this build's programs under `prefix` in the stage, and points the worker's RUNPATH at the stage's LibTorch."""
        folder = self.root / prefix.lstrip("/")
        run("cmake", "--install", BIN.parent, "--prefix", folder, "--strip")
        libtorch, = (self.root / self.environment["XDG_CACHE_HOME"].lstrip("/")).glob(
            "genesis/torch-*/lib/python3*/site-packages/torch/lib")
        run(DEPLOY / "bundle" / "set_runpath.py", folder / "bin" / "genesis-worker",
            f"/{libtorch.relative_to(self.root)}")

    def _copy(self, words):
        *sources, target = words
        destination = self.root / target.lstrip("/")
        if sources[0] == "--from=build":
            for source in sources[1:]:
                # Hard links suffice, because neither stage is written to any more.
                destination.mkdir(parents=True, exist_ok=True)
                run("cp", "--archive", "--link", f"{self.before.root}{source}/.", destination)
            return
        destination.mkdir(parents=True, exist_ok=True)
        for source in sources:
            if (SOURCE / source).is_dir():
                shutil.copytree(SOURCE / source, destination, symlinks=True, dirs_exist_ok=True,
                                ignore=self._ignored)
            else:
                shutil.copy(SOURCE / source, destination)

    @staticmethod
    def _ignored(folder, names):
        below = pathlib.Path(folder).relative_to(SOURCE)
        return {name for name in names if is_left_out(below / name)}


def build(work):
    """Builds the last stage of the Dockerfile, after all previous ones, in the folder `work`. Returns the stage."""
    stage = None
    for number, instructions in enumerate(stages()):
        stage = Stage(work, f"stage-{number}", instructions, stage)
    return stage
