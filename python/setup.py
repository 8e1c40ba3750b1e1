"""Builds the wheel. Generates the API's messages from ../proto with protoc (Debian: protobuf-compiler)."""

import pathlib
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent / "proto"
# The protocol between daemon and worker is not part of the client.
PRIVATE = ("worker_service.proto",)


class BuildWithMessages(build_py):
    """A build_py that also generates the modules genesis.training.v1.*_pb2."""

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
                        *map(str, files)], check=True)
        for package in ("training", "training/v1"):
            (pathlib.Path(self.build_lib) / "genesis" / package / "__init__.py").touch()


setup(cmdclass={"build_py": BuildWithMessages})
