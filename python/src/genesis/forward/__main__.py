"""python -m genesis.forward --to TOOL:TARGET"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Dict, List, Tuple, Type

from genesis.client import Client
from genesis.errors import GenesisError, InvalidArgumentError
from genesis.forward.follower import Follower
from genesis.forward.mlflow import MlflowRun
from genesis.forward.positions import Positions
from genesis.forward.run import Run
from genesis.forward.tensorboard import TensorBoardRun
from genesis.forward.wandb import TrackioRun, WandbRun
from genesis.requests import event_filter

_TOOLS: Dict[str, Type[Run]] = {"tensorboard": TensorBoardRun, "mlflow": MlflowRun, "wandb": WandbRun, "trackio": TrackioRun}
# Maximum number of seconds to wait for each tool after a signal.
_STOP_SECONDS = 30


def _tool(text: str) -> Tuple[Type[Run], str]:
    name, _, target = text.partition(":")
    if name not in _TOOLS:
        raise InvalidArgumentError(f"--to is {text!r}; accepted: tensorboard:FOLDER, mlflow:URL, wandb:PROJECT, trackio:PROJECT")
    _TOOLS[name].check(target)
    return _TOOLS[name], target


def _labels(texts: List[str]) -> Dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for text, (key, _, _) in zip(texts, pairs):
        if not key:
            raise InvalidArgumentError(f"--label is {text!r}; accepted: KEY=VALUE, or KEY for any value")
    return {key: value for key, _, value in pairs}


def main() -> int:
    """Forwards until SIGTERM or SIGINT. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m genesis.forward", description="Forwards jobs of a daemon to TensorBoard, MLflow, Weights & Biases "
                                     "and Trackio. Token and TLS are set as for every client (docs/python_client.md).")
    parser.add_argument("--to", action="append", required=True, metavar="TOOL:TARGET",
                        help="tensorboard:FOLDER, mlflow:URL, wandb:PROJECT or trackio:PROJECT; may be repeated")
    parser.add_argument("--server", help="HOST:PORT or unix:PATH; default: GENESIS_SERVER, otherwise 127.0.0.1:50051")
    parser.add_argument("--state", default="genesis-forward.json", metavar="FILE",
                        help="remembers what was sent, so that a restart continues there; default: %(default)s")
    parser.add_argument("--job", default="", metavar="ID", help="only this job; default: all jobs")
    parser.add_argument("--owner", default="", help="only jobs of this owner")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="only jobs with this label; may be repeated")
    given = parser.parse_args()
    signals = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # Threads inherit this, so that sigwait below gets the signals.
    try:
        tools = {text: _tool(text) for text in given.to}
        wanted = event_filter(given.job, given.owner, _labels(given.label), (), ())
        with Client(given.server) as client:
            client.connection.call("ListEvents", filter=wanted, page_size=1)
        positions = Positions(given.state)
        followers = [Follower(text, run, target, Client(given.server), wanted, positions) for text, (run, target) in tools.items()]
    except (GenesisError, OSError, ValueError) as error:
        print(f"genesis.forward: {error}", file=sys.stderr)
        return 1
    for follower in followers:
        follower.start()
    signal.sigwait(signals)
    for follower in followers:
        follower.stop()
    for follower in followers:
        follower.join(_STOP_SECONDS)
        counts = follower.counts
        print(f"{follower.name}: {counts.steps} steps and {counts.events} events sent, {counts.failures} failures, {counts.dropped} dropped",
              file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
