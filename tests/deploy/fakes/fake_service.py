"""Shared code of the fake kubectl and docker-compose. They record each call, and start and stop a real genesisd with the environment
that the real programs would give it.

$FAKE_STATE is a folder with calls (one line of JSON per call), state.json, and data/ of the daemon.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

STATE = pathlib.Path(os.environ["FAKE_STATE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])


def record():
    with open(STATE / "calls", "a", encoding="utf-8") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")


def load():
    return json.loads((STATE / "state.json").read_text())


def save(state):
    (STATE / "state.json").write_text(json.dumps(state))


def refuse(text):
    sys.exit(f"Error: {text}")


def pid():
    try:
        found = int((STATE / "pid").read_text())
        os.kill(found, 0)
        # A zombie process still exists.
        if pathlib.Path(f"/proc/{found}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return None
        return found
    except (OSError, ValueError):
        return None


def start(environment, through=None):
    """Starts the daemon, `through` another program if given, and waits until it is ready, as a rollout does."""
    ports = load()["ports"]
    (STATE / "data").mkdir(exist_ok=True)
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("FP16_", "GENESIS_", "ENABLE_FP16"))}
    with open(STATE / "output", "ab") as output:
        daemon = subprocess.Popen(
            [*([through] if through else []), BIN / "genesisd", "--data-dir", STATE / "data", "--grpc-listen", f"127.0.0.1:{ports['grpc']}",
             "--http-listen", f"127.0.0.1:{ports['http']}"], env={**clean, **environment},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    (STATE / "pid").write_text(str(daemon.pid))
    while subprocess.run(["curl", "-fs", f"http://127.0.0.1:{ports['http']}/readyz"],
                         stdout=subprocess.DEVNULL, check=False).returncode != 0:
        if daemon.poll() is not None:
            refuse((STATE / "output").read_text())
        time.sleep(0.05)


def stop(how=signal.SIGTERM):
    found = pid()
    if found:
        os.kill(found, how)
        while pid():
            time.sleep(0.02)


def run_inside(command):
    if not pid():
        refuse("no running container")
    path = f"{BIN}:{os.environ['PATH']}"
    os.execvpe(command[0], command, {**os.environ, "PATH": path})


def log(lines):
    text = (STATE / "data" / "log" / "orchestrator.log").read_text().splitlines()
    print("\n".join(text[-lines:]))
