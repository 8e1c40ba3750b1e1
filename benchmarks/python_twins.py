"""Imports the Python twins of the models, their data and their sampler from the interop tests. Benchmarks import them only from here. Needs
torch and numpy."""

import os
import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
# tests/interop/twin.py reads the paths of these programs. They are not started here.
for _name in ("GENESIS_WORKER", "GENESIS_SCALER_DRIVER"):
    os.environ.setdefault(_name, "")
os.environ.setdefault("GENESIS_TRAJECTORIES", str(SOURCE / "examples" / "trajectories"))
sys.path[:0] = [str(SOURCE / "tests" / "interop"), str(SOURCE / "trainer" / "compiled" / "python")]

from splitmix import SplitMix64  # noqa: E402, F401
from twin import Dataset, batches  # noqa: E402, F401
from twins.radio_unet import Diffusion  # noqa: E402, F401
from twins.transformer import Transformer  # noqa: E402, F401
from twins.world_model import WorldModel  # noqa: E402, F401
