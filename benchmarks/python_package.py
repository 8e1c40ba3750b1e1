"""The Python package genesis-trainer, for benchmarks that export modules."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])


def make_importable(folder):
    """Lets this Python import the package of the bundle, or that of this checkout, which is installed below the folder."""
    if (SOURCE / "MANIFEST").exists():
        folder = SOURCE
    elif not pathlib.Path(folder, "python").exists():
        subprocess.run([SOURCE / "deploy" / "wheel.sh", "--output", folder, "--install", f"{folder}/python"], check=True,
                       stdout=subprocess.DEVNULL)
    sys.path.insert(0, f"{folder}/python")
