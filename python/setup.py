"""Builds the wheel. Generates the API's messages from ../proto with protoc (Debian: protobuf-compiler)."""

import pathlib
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent / "proto"
# The protocol between daemon and worker is not part of the client.
PRIVATE = ("worker_service.proto",)
# The wheel has its own copy of google.api, so that it depends on no package for it. The installed one comes first, because a
# process can load only one version of a file.
GOOGLE_API = re.compile(r"^from google\.api import (\w+) as (\w+)$", re.MULTILINE)
INSTALLED_OR_OWN = r"""try:
  from google.api import \1 as \2
except ImportError:
  from genesis.googleapis import \1 as \2"""


class BuildWithMessages(build_py):
    """A build_py that also generates the modules genesis.training.v1.*_pb2 and those of google.api."""

    def run(self):
        super().run()
        if self.editable_mode:
            raise SystemExit("genesis-trainer cannot be installed in editable mode: its messages are generated")
        if shutil.which("protoc") is None:
            raise SystemExit("protoc is missing: apt-get install protobuf-compiler, or install a wheel that is built already")
        files = [path for path in sorted((PROTO / "genesis" / "training" / "v1").glob("*.proto")) if path.name not in PRIVATE]
        if not files:
            raise SystemExit(f"{PROTO} has no messages: build from a checkout of the whole project")
        subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={self.build_lib}", f"--pyi_out={self.build_lib}",
                        *map(str, files), *map(str, (PROTO / "google" / "api").glob("*.proto"))], check=True)
        built = pathlib.Path(self.build_lib)
        shutil.copytree(built / "google" / "api", built / "genesis" / "googleapis", dirs_exist_ok=True)
        shutil.rmtree(built / "google")
        for package in ("training", "training/v1", "googleapis"):
            (built / "genesis" / package / "__init__.py").touch()
            for path in (built / "genesis" / package).glob("*_pb2.py*"):
                path.write_text(GOOGLE_API.sub(INSTALLED_OR_OWN, path.read_text()))


setup(cmdclass={"build_py": BuildWithMessages})
