"""deployment/genesis-orchestrator in a namespace; every command uses kubectl."""

import os
import re
import shutil
import subprocess

from command import Command, unusable
from target import Target, require

CANARY = "genesis-orchestrator-canary"
CONFIG = ("configmap", "genesis-config")
WORKERS = "deployment/genesis-workers"
GENERATION = "jsonpath={.metadata.generation}"
OWN_GATE = "jsonpath={.spec.template.spec.containers[*].env[?(@.name=='ENABLE_FP16_TRAINING')].value}"


class Kubernetes(Target):
    kind = "kubernetes"
    default_http = "https://127.0.0.1:8080"
    default_server = "unix:/tmp/genesis.sock"

    def __init__(self, options, progress):
        super().__init__(options, progress)
        self.deployment = "deployment/genesis-orchestrator"

    def name(self):
        return f"{self.deployment} in namespace {self.options.namespace}"

    def kube(self, *words, stdin=""):
        return Command(["kubectl", "--namespace", self.options.namespace, *words], stdin)

    def change(self, *words):
        self.progress.run(self.kube(*words))

    def found(self):
        return shutil.which("kubectl") is not None and self.kube("get", self.deployment).succeeds()

    def check(self):
        require(shutil.which("kubectl"), "--target kubernetes: there is no kubectl in PATH; install it")
        require(self.found(), f"--target kubernetes: kubectl finds no {self.deployment} in namespace {self.options.namespace}; "
                "name another --namespace, or set KUBECONFIG")

    def inside(self, *words, stdin=""):
        return self.kube("exec", "-i", self.deployment, "--", *words, stdin=stdin)

    def gate(self):
        """Returns the gate of the pod: its own variable, otherwise that of the ConfigMap."""
        own = self.kube("get", self.deployment, "-o", OWN_GATE).run().stdout
        return own or self.kube("get", *CONFIG, "-o", "jsonpath={.data.ENABLE_FP16_TRAINING}").run(stderr=subprocess.DEVNULL).stdout

    def set_gate(self, gate):
        """Changes the ConfigMap too, so that a later apply of the manifests does not open the gate again."""
        self.change("patch", *CONFIG, "--type", "merge", "--patch", f'{{"data":{{"ENABLE_FP16_TRAINING":"{gate}"}}}}')

    def restart(self, gate):
        """Starts a rollout by `set env`, which changes the pod's template. If nothing changed, restarts explicitly."""
        generation = self.kube("get", self.deployment, "-o", GENERATION)
        before = generation.output()
        self.change("set", "env", self.deployment, f"ENABLE_FP16_TRAINING={gate}")
        if before == generation.output():
            self.change("rollout", "restart", self.deployment)
        if self.kube("get", WORKERS).succeeds():
            self.change("rollout", "restart", WORKERS)
        self.wait_for_rollout()

    def wait_for_rollout(self):
        self.change("rollout", "status", self.deployment, f"--timeout={self.options.ready_timeout}s")

    def kill(self):
        self.change("delete", "pods", "-l", "app=genesis-training", "--force", "--grace-period=0")

    def running(self):
        done = self.kube("get", self.deployment, "-o", "jsonpath={.status.readyReplicas}").run(stderr=subprocess.PIPE)
        return "active" if re.fullmatch("[1-9][0-9]*", done.stdout) else done.stderr.strip()

    def log(self, lines):
        return self.kube("logs", self.deployment, f"--tail={lines}")

    def log_hint(self):
        return f"kubectl --namespace {self.options.namespace} logs {self.deployment}"

    def details(self):
        yield "pods.txt", self.kube("get", "pods", "-o", "wide")
        yield "deployment.yaml", self.kube("get", self.deployment, "-o", "yaml")
        yield "configmap.yaml", self.kube("get", *CONFIG, "-o", "yaml")
        yield "events.txt", self.kube("get", "events", "--sort-by=.lastTimestamp")
        yield "logs/orchestrator.log", self.log(100000)
        yield "logs/previous.log", self.kube("logs", self.deployment, "--previous", "--tail=100000")

    def nodes(self):
        if not self.options.nodes.split():
            raise unusable('canary on kubernetes needs --nodes "A B": the tenth of the nodes that it runs on')
        return self.options.nodes.split()

    def canary_start(self):
        nodes, overlay = self.nodes(), f"{self.options.manifests.removesuffix('/')}/overlays/canary"
        require(os.path.isdir(overlay), f"{overlay} is missing; name the folder deploy/kubernetes of the sources with --manifests")
        self.run("kubectl", "label", "nodes", *nodes, "fp16=disabled", "--overwrite")
        self.run("kubectl", "apply", "-k", overlay)

    def canary_wait(self, daemon):
        self.deployment = f"deployment/{CANARY}"
        self.wait_for_rollout()

    def canary_promote(self):
        self.nodes()
        self.set_gate("false")
        self.restart("false")
        self.canary_abort()

    def canary_abort(self):
        """Removes the canary. The stable daemons were not changed, except for the nodes that they avoid."""
        nodes = self.nodes()
        self.change("delete", f"deployment/{CANARY}", f"service/{CANARY}", "--ignore-not-found")
        self.run("kubectl", "label", "nodes", *nodes, "fp16-")
