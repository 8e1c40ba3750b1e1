"""A fake Kubernetes API server that serves Jobs and their pods over HTTPS with a token.

It rejects what the real one rejects, by the strict schemas of kubernetes-validate and the rules of a Role. It runs the containers of pods
as processes of this machine, or leaves the pods pending."""

import contextlib
import copy
import http.server
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse
import uuid

import kubernetes_validate

VERSION = "1.29.0"
JOBS = re.compile(r"^/apis/batch/v1/namespaces/([^/]+)/jobs(?:/([^/]+))?$")
PODS = re.compile(r"^/api/v1/namespaces/([^/]+)/pods$")
DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
PAGE = 2  # Small, so that lists have several pages.


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason

    def body(self):
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self),
                "reason": self.reason, "code": self.code}


class Cluster:
    """A running server. The constructor starts it, and stop() ends it. If `pods_run` is False, pods stay Pending with the reason
    `waits`."""

    def __init__(self, authority, folder, namespace="genesis", rules=None):
        self.namespace, self.folder = namespace, folder
        # {resource: verbs}, as in a Role.
        self.rules = rules or {"jobs": {"create", "delete", "get", "list"}, "pods": {"list"}}
        self.account = f"system:serviceaccount:{namespace}:genesis-launcher"
        self.tokens = {"token-1"}
        self.lock = threading.RLock()
        self.jobs, self.pods, self.processes = {}, {}, {}
        self.requests = []  # (method, path, query, body) of each request.
        self.pods_run, self.waits, self.failing = True, None, None
        self.suspends_new = False  # Like a queue that admits Jobs.
        self.sent_away = set()  # Pods that were ended because their Job was suspended.
        self.drop_answers = 0  # Number of creations that succeed without a response.
        self.broken = None  # Error for every request.
        certificate, key = authority.issue("kubernetes")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def answer(self, method):
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                try:
                    code, reply = cluster.handle(method, self.path, self.headers, body)
                except Refused as refused:
                    code, reply = refused.code, refused.body()
                if reply is None:
                    self.close_connection = True
                    return
                text = json.dumps(reply).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                # Chunked, because the real server sends lists in this way.
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for at in range(0, len(text), 1000):
                    piece = text[at:at + 1000]
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def do_GET(self):
                self.answer("GET")

            def do_POST(self):
                self.answer("POST")

            def do_DELETE(self):
                self.answer("DELETE")

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.server.serve_forever), threading.Thread(target=self._control)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopped.set()
        self.server.shutdown()
        for thread in self.threads:
            thread.join()
        self.server.server_close()
        with self.lock:
            for process in self.processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()

    # Requests of a client.

    def handle(self, method, target, headers, body):
        path, _, query_text = target.partition("?")
        query = dict(urllib.parse.parse_qsl(query_text))
        sent = json.loads(body) if body else None
        with self.lock:
            self.requests.append((method, path, query, sent))
            if self.broken:
                raise Refused(500, "InternalError", self.broken)
            scheme, _, token = headers.get("Authorization", "").partition(" ")
            if scheme != "Bearer" or token not in self.tokens:
                raise Refused(401, "Unauthorized", "Unauthorized")
            if match := JOBS.match(path):
                resource, name = "jobs", match[2]
            elif match := PODS.match(path):
                resource, name = "pods", None
            else:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            verb = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}[method]
            group = "batch" if resource == "jobs" else ""
            if verb not in self.rules.get(resource, ()) or match[1] != self.namespace:
                raise Refused(403, "Forbidden", f'{resource}{"." if group else ""}{group} is forbidden: User '
                              f'"{self.account}" cannot {verb} resource "{resource}" in API group "{group}" in the '
                              f'namespace "{match[1]}"')
            if verb == "create":
                return self._create(sent, query)
            if verb == "list":
                return 200, self._list(resource, query)
            if name not in self.jobs:
                raise Refused(404, "NotFound", f'jobs.batch "{name}" not found')
            if verb == "get":
                return 200, copy.deepcopy(self.jobs[name])
            return self._delete(name, sent or {})

    def _create(self, job, query):
        if self.failing:
            raise self.failing
        if query.get("fieldValidation") == "Strict":
            try:
                kubernetes_validate.validate(job, VERSION, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(part) for part in error.path)
                raise Refused(400, "BadRequest", f'Job in version "v1" cannot be handled as a Job: strict decoding '
                              f"error: {where}: {error.message}") from None
        name = job["metadata"]["name"]
        metadata, spec = job["metadata"], job["spec"]
        if not DNS_LABEL.match(name) or len(f'{name}-{spec["completions"] - 1}') > 63:
            raise Refused(422, "Invalid", f'Job.batch "{name}" is invalid: metadata.name: Invalid value')
        for labels in (metadata["labels"], spec["template"]["metadata"]["labels"]):
            for value in labels.values():
                if len(value) > 63 or not LABEL_VALUE.match(value):
                    raise Refused(422, "Invalid", f'Job.batch "{name}" is invalid: metadata.labels: Invalid value: "{value}"')
        if name in self.jobs:
            raise Refused(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        made = copy.deepcopy(job)
        made["metadata"].update(uid=str(uuid.uuid4()), namespace=self.namespace, creationTimestamp=now())
        made["status"] = {"active": spec["parallelism"], "conditions": []}
        self.jobs[name] = made
        if self.suspends_new:
            made["spec"]["suspend"] = True
        else:
            self._make_pods(made)
        if self.drop_answers > 0:
            self.drop_answers -= 1
            return 201, None
        return 201, copy.deepcopy(made)

    def _make_pods(self, job):
        for index in range(job["spec"]["completions"]):
            self._make_pod(job, index)

    def _make_pod(self, job, index):
        name = f'{job["metadata"]["name"]}-{index}-{uuid.uuid4().hex[:5]}'
        template = copy.deepcopy(job["spec"]["template"])
        template["metadata"].setdefault("annotations", {})["batch.kubernetes.io/job-completion-index"] = str(index)
        self.pods[name] = {"metadata": {**template["metadata"], "name": name, "namespace": self.namespace},
                           "spec": template["spec"], "status": {"phase": "Pending"}, "job": job["metadata"]["name"]}

    def _list(self, resource, query):
        key, _, value = query["labelSelector"].partition("=")
        held = self.jobs if resource == "jobs" else self.pods
        names = sorted(name for name, item in held.items() if item["metadata"]["labels"].get(key) == value)
        begin = int(query.get("continue", "page 0").split()[1])
        items = [copy.deepcopy(held[name]) for name in names[begin:begin + PAGE]]
        more = {"continue": f"page {begin + PAGE}"} if begin + PAGE < len(names) else {}
        return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1", **more}, "items": items}

    def _delete(self, name, options):
        job = self.jobs[name]
        wanted = options.get("preconditions", {}).get("uid", job["metadata"]["uid"])
        if wanted != job["metadata"]["uid"]:
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on jobs.batch "{name}": Precondition failed')
        policy = options.get("propagationPolicy")
        if policy not in ("Foreground", "Background"):
            raise AssertionError(f"{policy} would leave the pods behind")
        job["metadata"].update(deletionTimestamp=now(), finalizers=["foregroundDeletion"])
        self._end_pods(name)
        return 200, copy.deepcopy(job)

    # Actions of the cluster.

    def _control(self):
        while not self.stopped.wait(0.05):
            with self.lock:
                for name in list(self.pods):
                    self._tend_pod(name)
                for name in list(self.jobs):
                    self._tend_job(name)

    def _tend_pod(self, name):
        pod = self.pods[name]
        status = pod["status"]
        if name in self.sent_away and (name not in self.processes or self.processes[name].poll() is not None):
            del self.pods[name]
            return
        if status["phase"] == "Pending" and name not in self.processes:
            if not self.pods_run:
                if self.waits:
                    status.update(copy.deepcopy(self.waits))
                return
            self.processes[name] = self._run(name, pod["spec"]["containers"][0])
            status.clear()
            status["phase"] = "Running"
        process = self.processes.get(name)
        if process is None or process.poll() is None or status["phase"] not in ("Running",):
            return
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        status["phase"] = "Succeeded" if code == 0 else "Failed"
        reason = {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
        status["containerStatuses"] = [{"name": pod["spec"]["containers"][0]["name"],
                                        "state": {"terminated": {"exitCode": code, "reason": reason}}}]

    def _run(self, name, container):
        with open(os.path.join(self.folder, f"{name}.log"), "wb") as log:
            return subprocess.Popen([*container.get("command", []), *container["args"]], stdout=log, stderr=log,
                                    env={"PATH": os.environ["PATH"], "HOSTNAME": name}, start_new_session=True)

    def _tend_job(self, name):
        job = self.jobs[name]
        pods = {each: pod for each, pod in self.pods.items() if pod["job"] == name}
        if "deletionTimestamp" in job["metadata"]:
            if all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods.values()):
                for each in pods:
                    del self.pods[each]
                del self.jobs[name]
            return
        conditions = {each["type"]: each for each in job["status"]["conditions"]}
        if "Complete" in conditions or "Failed" in conditions:
            return
        # As in syncJob of the Job controller, pods that a suspension ended count neither as succeeded nor as failed.
        suspend = job["spec"].get("suspend", False)
        was_suspended = conditions.get("Suspended", {}).get("status") == "True"
        if suspend and not was_suspended:
            self._say_suspended(job, "True", "JobSuspended", "Job suspended")
            self.sent_away |= pods.keys()
            self._end_pods(name)
        elif was_suspended and not suspend:
            self._say_suspended(job, "False", "JobResumed", "Job resumed")
            self._make_pods(job)
        counted = {each: pod for each, pod in pods.items() if each not in self.sent_away}
        if suspend or len(counted) < job["spec"]["completions"]:
            return
        phases = [pod["status"]["phase"] for pod in counted.values()]
        if "Failed" in phases:
            job["status"]["conditions"].append({
                "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                "message": "Job has reached the specified backoff limit"})
            self._end_pods(name)
        elif all(phase == "Succeeded" for phase in phases):
            job["status"]["conditions"].append({"type": "Complete", "status": "True"})

    @staticmethod
    def _say_suspended(job, status, reason, message):
        job["status"]["conditions"] = [{"type": "Suspended", "status": status, "reason": reason, "message": message}]

    def _end_pods(self, job):
        for name, pod in self.pods.items():
            if pod["job"] != job:
                continue
            process = self.processes.get(name)
            if process is None:
                pod["status"] = {"phase": "Failed"}
            elif process.poll() is None:
                process.send_signal(signal.SIGTERM)

    # Actions of a test.

    def evict(self, job, reason="EvictionByEvictionAPI"):
        """Evicts a pod of the Job as the cluster would, with SIGTERM."""
        with self.lock:
            name = next(each for each, pod in sorted(self.pods.items()) if pod["job"] == job)
            self.pods[name]["status"].setdefault("conditions", []).append(
                {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "a node is needed"})
            self.processes[name].send_signal(signal.SIGTERM)

    def suspend(self, job, suspend=True):
        """Suspends or resumes a Job, like kubectl patch or a queue such as Kueue."""
        with self.lock:
            self.jobs[job]["spec"]["suspend"] = suspend

    def kill(self, job):
        with self.lock:
            name = next(each for each, pod in sorted(self.pods.items()) if pod["job"] == job)
            self.processes[name].kill()

    def deadline(self, job):
        """Makes a Job fail like activeDeadlineSeconds does."""
        with self.lock:
            self.jobs[job]["status"]["conditions"].append({
                "type": "Failed", "status": "True", "reason": "DeadlineExceeded",
                "message": "Job was active longer than specified deadline"})
            self._end_pods(job)

    def names(self):
        with self.lock:
            return sorted(self.jobs)

    def asked(self, method, ending=""):
        with self.lock:
            return [each for each in self.requests if each[0] == method and each[1].endswith(ending)]

    def logs(self):
        paths = sorted(pathlib.Path(self.folder).glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in paths)
