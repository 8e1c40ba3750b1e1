"""MLflow: runs of an experiment, by its REST API."""

from __future__ import annotations

import base64
import json
import math
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List

from genesis.errors import InvalidArgumentError
from genesis.events import is_final, state_name
from genesis.forward.run import Refused, Row, Run, flattened, quoted, spec_of, summary
from genesis.training.v1 import job_pb2

# Limits of MLflow's REST API.
_METRICS, _PARAMS, _TAGS = 1000, 100, 100
_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000
# Maximum length of the newest events as text, before each line is indented.
_NOTE_LENGTH = 4000
_TIMEOUT_SECONDS = 30
# HTTP status of requests that MLflow would refuse again.
_REFUSED = (400, 413)
_STATUS = {"QUEUED": "SCHEDULED", "PAUSED": "SCHEDULED", "RECOVERING": "SCHEDULED", "SUCCEEDED": "FINISHED", "FAILED": "FAILED",
           "CANCELLED": "KILLED"}


class MlflowRun(Run):
    """A job as a run of the experiment ``MLFLOW_EXPERIMENT_NAME``, by default ``genesis``.

    The run is found by its tags, and its metrics show up to which step it was sent. MLflow stores equal metrics once, so metrics that are sent
    again after a kill change nothing."""

    @classmethod
    def check(cls, target: str) -> None:
        super().check(target)
        parts = urllib.parse.urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise InvalidArgumentError("the address of MLflow is not usable; accepted: http://HOST:PORT or https://HOST, with user and password "
                                       "in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")

    def __init__(self, target: str, job: job_pb2.Job, step: int) -> None:
        super().__init__(target, job, step)
        self._url = target.rstrip("/") + "/api/2.0/mlflow/"
        identity = {"genesis.job_id": job.id, "genesis.create_time": job.create_time.ToJsonString()}
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "genesis")
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in identity.items())
        runs = self._call("runs/search", experiment_ids=[experiment], filter=wanted, max_results=1).get("runs")
        if runs:
            self._run_id = runs[0]["info"]["run_id"]
            # MLflow returns the newest value of each metric. A step that was trained again has another time, so MLflow keeps both.
            self.step = max((int(metric["step"]) for metric in runs[0]["data"].get("metrics", ()) if metric["key"] == "train/loss"), default=0)
            return
        self.step = 0
        tags = {**identity, "mlflow.user": summary(job)["genesis.owner"]}
        run = self._call("runs/create", experiment_id=experiment, run_name=job.id, start_time=job.create_time.ToMilliseconds(),
                         tags=[{"key": key, "value": value} for key, value in tags.items()])["run"]
        self._run_id = run["info"]["run_id"]
        params = [{"key": key, "value": value[:_PARAM_LENGTH]} for key, value in flattened(spec_of(job))]
        for first in range(0, len(params), _PARAMS):
            self._call("runs/log-batch", run_id=self._run_id, params=params[first:first + _PARAMS])

    def _call(self, method: str, **body: Any) -> Dict[str, Any]:
        request = urllib.request.Request(self._url + method, json.dumps(body).encode(), {"Content-Type": "application/json"})
        token, user = os.environ.get("MLFLOW_TRACKING_TOKEN"), os.environ.get("MLFLOW_TRACKING_USERNAME")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        elif user:
            pair = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = f"{method}: HTTP {error.code}: {error.read(2000).decode(errors='replace')}"
            raise (Refused if error.code in _REFUSED else OSError)(text) from None

    def _experiment(self, name: str) -> str:
        """Returns the ID of the experiment, which is created if it does not exist."""
        found = self._call("experiments/search", filter=f"name = '{name}'", max_results=1).get("experiments")
        return found[0]["experiment_id"] if found else self._call("experiments/create", name=name)["experiment_id"]

    def log(self, rows: List[Row]) -> None:
        batch: List[Dict[str, Any]] = []
        for row in rows:
            metrics = [{"key": key, "value": value if math.isfinite(value) else "NaN", "timestamp": round(1000 * row.time), "step": row.step}
                       for key, value in row.values.items()]
            if len(batch) + len(metrics) > _METRICS:  # A step is sent whole or not at all.
                self._call("runs/log-batch", run_id=self._run_id, metrics=batch)
                batch = []
            batch += metrics
        self._call("runs/log-batch", run_id=self._run_id, metrics=batch)

    def note(self, job: job_pb2.Job, text: str, story: str, step: int) -> None:
        tags = {**summary(job), "mlflow.note.content": quoted(story[-_NOTE_LENGTH:])}
        entries = [{"key": key, "value": value[:_TAG_LENGTH]} for key, value in tags.items()]
        self._call("runs/log-batch", run_id=self._run_id, tags=entries[:_TAGS])

    def state(self, job: job_pb2.Job) -> None:
        fields: Dict[str, Any] = {"status": _STATUS.get(state_name(job), "RUNNING")}
        if is_final(job):
            fields["end_time"] = job.end_time.ToMilliseconds()
        self._call("runs/update", run_id=self._run_id, **fields)
