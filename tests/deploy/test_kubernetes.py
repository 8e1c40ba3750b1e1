"""Tests that the Kubernetes manifests are valid, confined and consistent, and that a daemon runs with them."""

import base64
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import yaml

from tools import DEPLOY, SOURCE, TOOLS, run

import harness  # noqa: E402
import secure  # noqa: E402

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("base", "overlays/gpu", "overlays/canary", "overlays/re-enable", "overlays/remote-workers", "overlays/launcher")
# The oldest supported version and the newest known one.
VERSIONS = ("1.29.0", "1.37.0")
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
                      "persistentVolumeClaim", "projected", "secret"}


def build(folder):
    """Returns the objects that `kubectl apply -k` would send."""
    text = run(TOOLS / "kubectl", "kustomize", folder).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(objects, kind):
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def pod_of(deployment):
    return deployment["spec"]["template"]["spec"]


def selected(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = {name: build(KUBERNETES / name) for name in OVERLAYS}

    def deployments(self, containers=("genesisd",)):
        """Yields (name, objects of the overlay, Deployment) for each Deployment whose first container is in `containers`; default:
        daemons."""
        for name, objects in self.built.items():
            for deployment in of_kind(objects, "Deployment").values():
                if pod_of(deployment)["containers"][0]["name"] in containers:
                    yield f"{name} {deployment['metadata']['name']}", objects, deployment

    def config_maps(self, objects):
        """Returns the ConfigMaps of an overlay, or those of base if the overlay does not change them."""
        return of_kind(objects, "ConfigMap") or of_kind(self.built["base"], "ConfigMap")

    def test_every_overlay_is_valid_by_the_strict_schema(self):
        for name, objects in self.built.items():
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump_all(objects, file)
                for version in VERSIONS:
                    done = run(TOOLS / "kubernetes-validate", "--strict", "-k", version, file.name)
                    said = done.stdout + done.stderr
                    self.assertEqual(said.count(" passed for resource "), len(objects), said)

    def test_ranks_are_valid_confined_and_as_many_as_they_say(self):
        objects = build(KUBERNETES / "ranks")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump_all(objects, file)
            for version in VERSIONS:
                done = run(TOOLS / "kubernetes-validate", "--strict", "-k", version, file.name)
                said = done.stdout + done.stderr
                self.assertEqual(said.count(" passed for resource "), len(objects), said)
        job = of_kind(objects, "Job")["genesis-ranks"]["spec"]
        pod = job["template"]["spec"]
        container = pod["containers"][0]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        self.assertEqual(job["completionMode"], "Indexed")
        self.assertEqual({job["completions"], job["parallelism"]}, {int(variables["WORLD_SIZE"])})
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        # Rank 0's name resolves by a headless Service with the pods' subdomain, which does not wait for readiness.
        rank, service = variables["MASTER_ADDR"].split(".")
        self.assertEqual((rank, service), ("genesis-ranks-0", pod["subdomain"]))
        serves = of_kind(objects, "Service")[service]["spec"]
        self.assertEqual(serves["clusterIP"], "None")
        self.assertTrue(serves["publishNotReadyAddresses"])
        labels = job["template"]["metadata"]["labels"]
        self.assertTrue(selected(serves["selector"], labels))
        self.assertEqual([port["port"] for port in serves["ports"]], [int(variables["MASTER_PORT"])])
        policy = of_kind(objects, "NetworkPolicy")["genesis-ranks"]["spec"]
        self.assertTrue(selected(policy["podSelector"]["matchLabels"], labels))
        claims = {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]
                  if "persistentVolumeClaim" in volume}
        self.assertLessEqual(claims, set(of_kind(self.built["overlays/remote-workers"], "PersistentVolumeClaim")))

    def test_the_job_file_of_the_ranks_is_read(self):
        config = next(iter(of_kind(build(KUBERNETES / "ranks"), "ConfigMap").values()))
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder, "job.yaml")
            job.write_text(config["data"]["job.yaml"])
            done = run(harness.BIN / "genesis-worker", "--spec", job, check=False)
        # The job file is valid. Only its data is missing here, because it is in the cluster.
        self.assertNotEqual(done.returncode, 2, done.stderr)
        self.assertIn("/data/datasets/pendulum.npz", done.stderr)

    def test_a_misspelt_field_is_found(self):
        wrong = json.loads(json.dumps(self.built["base"]).replace("failureThreshold",
                                                                  "failureTreshold"))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump_all(wrong, file)
            done = run(TOOLS / "kubernetes-validate", "--strict", file.name, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("failureTreshold", done.stdout + done.stderr)

    def test_pods_meet_the_restricted_standard(self):
        namespace = of_kind(self.built["base"], "Namespace")["genesis"]
        labels = namespace["metadata"]["labels"]
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "restricted")
        for what, _, deployment in self.deployments(("genesisd", "genesis-worker")):
            pod = pod_of(deployment)
            with self.subTest(what):
                for key in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertFalse(pod.get(key))
                context = pod["securityContext"]
                self.assertTrue(context["runAsNonRoot"])
                self.assertGreater(context["runAsUser"], 0)
                self.assertEqual(context["seccompProfile"]["type"], "RuntimeDefault")
                self.assertIs(pod["automountServiceAccountToken"], False)
                for volume in pod["volumes"]:
                    self.assertLessEqual(set(volume) - {"name"}, RESTRICTED_VOLUMES)
                for container in pod["containers"] + pod.get("initContainers", []):
                    own = container["securityContext"]
                    self.assertIs(own["allowPrivilegeEscalation"], False)
                    self.assertIs(own["readOnlyRootFilesystem"], True)
                    self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                    self.assertTrue(all("hostPort" not in port for port in container.get("ports", [])))

    def test_names_that_refer_to_one_another_exist(self):
        secrets = {"genesis-tls", "genesis-tokens"}
        for what, objects, deployment in self.deployments():
            pod = pod_of(deployment)
            container = pod["containers"][0]
            with self.subTest(what):
                self.assertIn(pod["serviceAccountName"], of_kind(objects, "ServiceAccount"))
                for source in container["envFrom"]:
                    self.assertIn(source["configMapRef"]["name"], self.config_maps(objects))
                for volume in pod["volumes"]:
                    if claim := volume.get("persistentVolumeClaim"):
                        self.assertIn(claim["claimName"],
                                      of_kind(objects, "PersistentVolumeClaim"))
                    if secret := volume.get("secret"):
                        self.assertIn(secret["secretName"], secrets)
                self.assertEqual({mount["name"] for mount in container["volumeMounts"]},
                                 {volume["name"] for volume in pod["volumes"]})
                labels = deployment["spec"]["template"]["metadata"]["labels"]
                self.assertTrue(selected(deployment["spec"]["selector"]["matchLabels"], labels))
                ports = {port["name"] for port in container["ports"]}
                services = [service for service in of_kind(objects, "Service").values()
                            if selected(service["spec"]["selector"], labels)]
                self.assertEqual([service["metadata"]["name"] for service in services],
                                 [deployment["metadata"]["name"]])
                for port in services[0]["spec"]["ports"]:
                    self.assertIn(port["targetPort"], ports)
                for kind, path in (("PodDisruptionBudget", "selector"),
                                   ("NetworkPolicy", "podSelector")):
                    chosen = of_kind(objects, kind)["genesis"]["spec"][path]["matchLabels"]
                    self.assertTrue(selected(chosen, labels))

    def test_two_daemons_never_share_a_data_folder(self):
        claims = {}
        for what, _, deployment in self.deployments():
            for volume in pod_of(deployment)["volumes"]:
                if "persistentVolumeClaim" in volume:
                    name = (what.split()[0], volume["persistentVolumeClaim"]["claimName"])
                    self.assertNotIn(name, claims)
                    claims[name] = what
            self.assertEqual(deployment["spec"]["strategy"], {"type": "Recreate"})
            self.assertLessEqual(deployment["spec"]["replicas"], 1)

    def test_a_pod_has_more_time_to_end_than_a_drain_takes(self):
        for what, objects, deployment in self.deployments():
            config = self.config_maps(objects)["genesis-config"]["data"]
            drain = float(config["GENESIS_DRAIN_TIMEOUT_SECONDS"])
            self.assertGreaterEqual(pod_of(deployment)["terminationGracePeriodSeconds"], drain + 10,
                                    what)

    def test_probes_are_three_and_liveness_does_not_ask_for_readiness(self):
        for what, _, deployment in self.deployments():
            container = pod_of(deployment)["containers"][0]
            paths = [container[kind]["httpGet"]["path"]
                     for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
            self.assertEqual(paths, ["/healthz", "/healthz", "/readyz"], what)

    def test_the_environment_is_made_of_settings_that_exist(self):
        known = set(re.findall(r"`((?:GENESIS|FP16|ENABLE|FEATURE)_[A-Z0-9_]+)`",
                               (SOURCE / "docs" / "reference.md").read_text()))
        for what, objects, deployment in self.deployments():
            config = self.config_maps(objects)["genesis-config"]["data"]
            own = {entry["name"] for entry in pod_of(deployment)["containers"][0].get("env", [])}
            self.assertLessEqual(set(config) | own, known, what)
        self.assertEqual(config["ENABLE_FP16_TRAINING"], "false")

    def test_the_gpu_overlay_asks_for_one_gpu_each(self):
        for deployment in of_kind(self.built["overlays/gpu"], "Deployment").values():
            resources = pod_of(deployment)["containers"][0]["resources"]
            for kind in ("requests", "limits"):
                self.assertEqual(resources[kind]["nvidia.com/gpu"], "1")
            self.assertEqual(pod_of(deployment)["containers"][0]["image"], "genesis:latest-cuda")

    def test_canary_and_stable_are_kept_apart_by_the_label_of_the_nodes(self):
        def rule(deployment):
            affinity = pod_of(deployment)["affinity"]["nodeAffinity"]
            terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            return terms["nodeSelectorTerms"][0]["matchExpressions"][0]

        def environment(deployment):
            return {entry["name"]: entry["value"]
                    for entry in pod_of(deployment)["containers"][0]["env"]}

        canary = of_kind(self.built["overlays/canary"], "Deployment")
        self.assertEqual(rule(canary["genesis-orchestrator-canary"]),
                         {"key": "fp16", "operator": "In", "values": ["disabled"]})
        for name in ("genesis-orchestrator", "genesis-workers"):
            self.assertEqual(rule(canary[name]),
                             {"key": "fp16", "operator": "NotIn", "values": ["disabled"]})
        self.assertEqual(environment(canary["genesis-orchestrator-canary"]),
                         {"GENESIS_DEPLOYMENT": "canary", "ENABLE_FP16_TRAINING": "false"})
        # Applied to a cluster whose gate is open, this changes only the gate of the canary.
        self.assertEqual(of_kind(self.built["overlays/canary"], "ConfigMap"), {})
        again = of_kind(self.built["overlays/re-enable"],
                        "Deployment")["genesis-orchestrator-canary"]
        self.assertEqual(rule(again)["values"], ["enabled"])
        self.assertEqual(environment(again)["ENABLE_FP16_TRAINING"], "true")

    def test_prometheus_rule_and_rules_file_are_the_same(self):
        objects = build(KUBERNETES / "monitoring")
        rule = of_kind(objects, "PrometheusRule")["genesis"]
        rules = yaml.safe_load((DEPLOY / "prometheus" / "genesis.rules.yml").read_text())
        self.assertEqual(rule["spec"], rules)
        committed = (KUBERNETES / "monitoring" / "prometheus-rule.yaml").read_text()
        printed = run(TOOLS / "python", KUBERNETES / "monitoring" / "generate.py").stdout
        self.assertEqual(committed, printed, "run deploy/kubernetes/monitoring/generate.py")

    def test_the_service_monitor_finds_every_service(self):
        monitor = of_kind(build(KUBERNETES / "monitoring"), "ServiceMonitor")["genesis"]["spec"]
        endpoint = monitor["endpoints"][0]
        self.assertEqual((endpoint["path"], endpoint["scheme"]), ("/metrics", "https"))
        self.assertIn({"targetLabel": "job", "replacement": "genesis"}, endpoint["relabelings"])
        for objects in self.built.values():
            for service in of_kind(objects, "Service").values():
                self.assertTrue(selected(monitor["selector"]["matchLabels"],
                                         service["metadata"]["labels"]))
                self.assertIn(endpoint["port"], [p["name"] for p in service["spec"]["ports"]])


class RemoteWorkers(unittest.TestCase):
    """Tests the overlay whose workers are separate pods."""

    @classmethod
    def setUpClass(cls):
        cls.objects = build(KUBERNETES / "overlays" / "remote-workers")
        deployments = of_kind(cls.objects, "Deployment")
        cls.workers, cls.daemon = (deployments[name] for name in ("genesis-remote-workers",
                                                                  "genesis-orchestrator"))

    def test_workers_and_daemon_share_checkpoints_and_datasets_only(self):
        def shared(deployment):
            return {(mount["mountPath"], mount["subPath"])
                    for mount in pod_of(deployment)["containers"][0]["volumeMounts"]
                    if mount["name"] == "shared"}

        self.assertEqual(shared(self.daemon), {("/data/checkpoints", "checkpoints"),
                                               ("/data/datasets", "datasets")})
        self.assertEqual(shared(self.workers), shared(self.daemon))
        claim = of_kind(self.objects, "PersistentVolumeClaim")["genesis-shared"]
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
        claims = {volume["persistentVolumeClaim"]["claimName"]
                  for volume in pod_of(self.workers)["volumes"] if "persistentVolumeClaim" in volume}
        self.assertEqual(claims, {"genesis-shared"})

    def test_the_daemon_lets_them_in_and_needs_no_device(self):
        environment = {entry["name"]: entry["value"]
                       for entry in pod_of(self.daemon)["containers"][0]["env"]}
        self.assertEqual(environment, {"GENESIS_WORKERS_REMOTE": "true",
                                       "GENESIS_WORKERS_DEVICES": "none"})

    def test_the_network_lets_them_reach_their_daemon_and_nobody_reach_them(self):
        labels = self.workers["spec"]["template"]["metadata"]["labels"]
        policies = of_kind(self.objects, "NetworkPolicy")
        entry = policies["genesis"]["spec"]["ingress"][0]
        self.assertTrue(selected(entry["from"][0]["podSelector"]["matchLabels"], labels))
        self.assertIn({"port": "grpc"}, entry["ports"])
        own = policies["genesis-remote-workers"]["spec"]
        self.assertTrue(selected(own["podSelector"]["matchLabels"], labels))
        to = own["egress"][0]
        self.assertTrue(selected(to["to"][0]["podSelector"]["matchLabels"],
                                 self.daemon["spec"]["template"]["metadata"]["labels"]))
        self.assertEqual(to["ports"], [{"port": "grpc"}])
        self.assertFalse(any(selected(service["spec"]["selector"], labels)
                             for service in of_kind(self.objects, "Service").values()))

    def test_the_names_they_use_exist(self):
        pod = pod_of(self.workers)
        self.assertIn(pod["serviceAccountName"], of_kind(self.objects, "ServiceAccount"))
        self.assertEqual({volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume},
                         {"genesis-tls", "genesis-worker-token"})
        readme = (KUBERNETES / "README.md").read_text()
        self.assertIn("create secret generic genesis-worker-token --from-file=token", readme)
        self.assertEqual({mount["name"] for mount in pod["containers"][0]["volumeMounts"]},
                         {volume["name"] for volume in pod["volumes"]})
        service, port = re.search(r"--daemon=([^.]+)\.genesis\.svc:(\d+)",
                                  " ".join(pod["containers"][0]["args"])).groups()
        ports = of_kind(self.objects, "Service")[service]["spec"]["ports"]
        self.assertIn(int(port), [each["port"] for each in ports])


class RollbackPlan(unittest.TestCase):
    """Tests that each kubectl command of the rollback plan names existing objects."""

    @classmethod
    def setUpClass(cls):
        cls.objects = build(KUBERNETES / "overlays" / "canary")
        cls.objects += list(of_kind(build(KUBERNETES / "base"), "ConfigMap").values())
        cls.lines = [line for line in pathlib.Path(__file__).with_name(
            "rollback_plan_commands.txt").read_text().splitlines() if "kubectl" in line]

    def commands(self):
        for line in self.lines:
            words = shlex.split(line)
            while words:
                end = words.index("|") if "|" in words else len(words)
                if words[0] == "kubectl":
                    yield line, words[1:end]
                words = words[end + 1:]

    def resolve(self, words):
        """Yields (kind, name) of each object in a command."""
        kinds = {"deployment": "Deployment", "configmap": "ConfigMap"}
        for index, word in enumerate(words):
            kind, slash, name = word.partition("/")
            if kind in kinds and slash:
                yield kinds[kind], name
            elif word in kinds:
                yield kinds[word], words[index + 1]

    def test_every_name_exists(self):
        resolved = 0
        for line, words in self.commands():
            for kind, name in self.resolve(words):
                self.assertIn(name, of_kind(self.objects, kind), line)
                resolved += 1
            if "-l" in words:
                key, value = words[words.index("-l") + 1].split("=")
                pods = [d["spec"]["template"]["metadata"]["labels"]
                        for d in of_kind(self.objects, "Deployment").values()]
                self.assertTrue(all(labels[key] == value for labels in pods), line)
                resolved += 1
            if "-f" in words and words[words.index("-f") + 1] != "-":
                file = words[words.index("-f") + 1]
                found = list(KUBERNETES.rglob(file))
                self.assertEqual(len(found), 1, line)
                resolved += 1
            if words[:2] == ["label", "nodes"]:
                key, value = words[-1].split("=")
                text = json.dumps([build(KUBERNETES / f"overlays/{name}")
                                   for name in ("canary", "re-enable")])
                self.assertIn(f'"key": "{key}"', text)
                self.assertIn(f'"values": ["{value}"]', text)
                resolved += 1
        # There are 20 commands. `apply -f -` names no object, because it reads a pipe.
        self.assertEqual(resolved, 19)

    def test_kubectl_knows_every_verb_but_rename(self):
        verbs = {words[0] for _, words in self.commands()}
        unknown = {verb for verb in verbs
                   if "unknown command" in run(TOOLS / "kubectl", verb, "--help",
                                               check=False).stderr
                   or "Usage:" not in run(TOOLS / "kubectl", verb, "--help", check=False).stdout}
        self.assertEqual(unknown, {"rename"})
        self.assertIn("kubectl rename", (KUBERNETES / "README.md").read_text())

    def test_kubectl_knows_every_option_but_env_of_create_deployment(self):
        unknown = set()
        for line, words in self.commands():
            verb = list(itertools.takewhile(lambda word: not word.startswith("-") and "/" not in word, words))
            # "rollout restart" and "create deployment" have their own help. "delete pods" has the help of "delete".
            usages = [run(TOOLS / "kubectl", *verb[:count], "--help", check=False).stdout for count in (2, 1)]
            usage = next((each for each in usages if "Usage:" in each), "")
            for word in words:
                option = word.partition("=")[0]
                if option.startswith("--") and f"{option}=" not in usage:
                    unknown.add((" ".join(verb[:2]), option))
        self.assertEqual(unknown, {("create deployment", "--env")})

    def test_each_command_of_the_rollback_page_meets_what_exists(self):
        page = (SOURCE / "docs" / "rollback.md").read_text()
        section, table = page.split("## Commands of the founding plan", 1)
        replaced = dict(re.findall(r"^\| `(.+?)` \| `(.+?)` \| .+ \|$", table, re.MULTILINE))
        for command in replaced:
            if command.startswith("kubectl"):
                self.assertIn(command.replace("\\|", "|"), self.lines)
        for line, words in self.commands():
            if words[0] == "rename" or words[:2] == ["create", "deployment"]:
                self.assertIn(line, replaced)
        found = re.findall(r"`(kubectl [^`]+)`", section) + [each for each in replaced.values() if "kubectl" in each]
        self.assertGreaterEqual(len(found), 4)
        for command in found:
            words = shlex.split(command)[1:]
            usage = run(TOOLS / "kubectl", words[0], "--help").stdout
            self.assertIn("Usage:", usage, command)
            for kind, name in self.resolve(words):
                self.assertIn(name, of_kind(self.objects, kind), command)
            for option, place in zip(words, words[1:]):
                if option == "-k":
                    self.assertTrue(build(SOURCE / place), command)
                elif option == "-f":
                    self.assertTrue((SOURCE / place).is_file(), command)

    def local(self, *arguments):
        """Runs kubectl on the built Deployment, without a cluster. Returns the result."""
        deployment = of_kind(self.objects, "Deployment")["genesis-orchestrator"]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(deployment, file)
            file.flush()
            done = run(TOOLS / "kubectl", *arguments, "--local", "-f", file.name, "-o", "yaml")
        return yaml.safe_load(done.stdout)

    def test_setting_the_environment_goes_before_the_config_map(self):
        changed = self.local("set", "env", "ENABLE_FP16_TRAINING=false")
        container = pod_of(changed)["containers"][0]
        self.assertIn({"name": "ENABLE_FP16_TRAINING", "value": "false"}, container["env"])
        # Kubernetes gives env precedence over envFrom.
        self.assertEqual(container["envFrom"], [{"configMapRef": {"name": "genesis-config"}}])

    def test_the_patch_of_the_canary_rollback_applies(self):
        words = next(words for _, words in self.commands() if words[0] == "patch")
        changed = self.local("patch", "--patch", words[words.index("--patch") + 1])
        affinity = pod_of(changed)["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        self.assertEqual(terms[0]["matchExpressions"],
                         [{"key": "fp16", "operator": "NotIn", "values": ["disabled"]}])


class Running(harness.DaemonTest):
    """Tests a daemon with the environment and the Secrets of the manifests."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.data_dir)
        folder = self.root / "secrets"
        shutil.copytree(KUBERNETES / "secrets", folder)
        authority = secure.Authority(self.root / "ca")
        certificate, key = authority.issue("genesis-orchestrator.genesis.svc")
        shutil.copy(certificate, folder / "tls.crt")
        shutil.copy(key, folder / "tls.key")
        shutil.copy(authority.certificate, folder / "ca.crt")
        self.token, line = secure.new_token("ann", "admin")
        (folder / "tokens").write_text(line + "\n")
        self.secrets = of_kind(build(folder), "Secret")
        self.config = of_kind(build(KUBERNETES / "base"), "ConfigMap")["genesis-config"]["data"]

    def mount(self, name, folder):
        """Writes a Secret like the kubelet, with files behind two symbolic links."""
        data = folder / "..2026_11_21"
        data.mkdir(parents=True)
        for file, text in self.secrets[name]["data"].items():
            (data / file).write_bytes(base64.b64decode(text))
            os.chmod(data / file, 0o440)
            (folder / file).symlink_to(f"..data/{file}")
        (folder / "..data").symlink_to(data.name)

    def environment(self):
        """Returns the environment of the pod, with folders of the test and with free ports."""
        mounts = {"/etc/genesis/tls": "genesis-tls", "/etc/genesis/auth": "genesis-tokens"}
        values = dict(self.config)
        for path, name in mounts.items():
            self.mount(name, self.root / path.strip("/"))
            values = {key: value.replace(path, str(self.root / path.strip("/")))
                      for key, value in values.items()}
        self.assertEqual(values.pop("GENESIS_DATA_DIR"), "/data")
        for key in ("GENESIS_GRPC_LISTEN", "GENESIS_HTTP_LISTEN"):
            values[key] = values[key].rsplit(":", 1)[0] + ":0"
        return values

    def start_in_pod(self, values):
        grpc, http = values.pop("GENESIS_GRPC_LISTEN"), values.pop("GENESIS_HTTP_LISTEN")
        # The harness passes flags for the addresses, which override the environment, so the environment's are passed as flags.
        daemon = self.start("--grpc-listen", grpc, "--http-listen", http, "--workers-program",
                            str(harness.FAKE_WORKER), environment=values)
        daemon.scheme = "https"
        daemon.http = daemon.http.replace("0.0.0.0", "127.0.0.1")
        daemon.grpc = daemon.grpc.replace("0.0.0.0", "127.0.0.1")
        return daemon

    def test_a_daemon_starts_with_them_and_answers_the_probes(self):
        daemon = self.start_in_pod(self.environment())
        container = pod_of(of_kind(build(KUBERNETES / "base"),
                                   "Deployment")["genesis-orchestrator"])["containers"][0]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[kind]["httpGet"]
            self.assertEqual(probe["scheme"], "HTTPS")
            harness.wait_for(kind, lambda: daemon.get(probe["path"]))
        self.assertIn("genesis_ready", daemon.get("/metrics"))
        # The image's health check supports TLS too.
        health = subprocess.run([DEPLOY / "container" / "health.sh"], timeout=harness.LONG, env={
            "PATH": os.environ["PATH"], "GENESIS_DATA_DIR": self.data_dir,
            "GENESIS_TLS_CERTIFICATE_FILE": "set"})
        self.assertEqual(health.returncode, 0)
        options = ["--tls-ca", str(self.root / "ca" / "ca.pem")]
        self.assertNotEqual(daemon.ctl(*options, "jobs", check=False).returncode, 0)
        token = secure.write_secret(self.root / "token", self.token)
        daemon.ctl(*options, "--token-file", str(token), "jobs")
        self.assertEqual(daemon.stop(), 0)

    def test_a_worker_with_the_arguments_of_its_pod_trains_for_it(self):
        objects = build(KUBERNETES / "overlays" / "remote-workers")
        deployments = of_kind(objects, "Deployment")
        token, line = secure.new_token("pod", "worker")
        with open(self.root / "secrets" / "tokens", "a") as tokens:
            tokens.write(line + "\n")
        (self.root / "secrets" / "token").write_text(token + "\n")
        self.secrets = of_kind(build(self.root / "secrets"), "Secret")
        self.secrets["genesis-worker-token"] = {"data": {"token": base64.b64encode(
            (token + "\n").encode())}}
        values = self.environment()
        values.update({entry["name"]: entry["value"] for entry in
                       pod_of(deployments["genesis-orchestrator"])["containers"][0]["env"]})
        self.mount("genesis-worker-token", self.root / "etc" / "genesis" / "worker")
        daemon = self.start_in_pod(values)
        script, *arguments = pod_of(deployments["genesis-remote-workers"])["containers"][0]["args"]
        arguments = [word.replace("genesis-orchestrator.genesis.svc:50051", daemon.grpc)
                     .replace("=/data/", f"={self.root}/").replace("=/etc/", f"={self.root}/etc/")
                     for word in arguments]
        worker = subprocess.Popen(
            [DEPLOY / "container" / pathlib.Path(script).name, *arguments],
            env={"PATH": f"{harness.BIN}:{os.environ['PATH']}", "ENABLE_FP16_TRAINING": "false"})
        self.addCleanup(lambda: worker.poll() is None and worker.kill())
        options = ["--tls-ca", str(self.root / "ca" / "ca.pem"), "--token-file",
                   str(secure.write_secret(self.root / "token", self.token))]
        job = self.root / "job.yaml"
        # The jobs run one after the other: the worker ends with its job, and the script starts it again.
        for name in ("one", "two"):
            job.write_text(json.dumps(harness.spec(max_steps=40)))
            daemon.ctl(*options, "train", "-f", str(job), "--job-id", name)
            harness.wait_for(name, lambda: daemon.ctl(*options, "job", name)["state"] ==
                             "JOB_STATE_SUCCEEDED")
        worker.terminate()
        self.assertEqual(worker.wait(harness.LONG), 0)
        self.assertEqual(daemon.stop(), 0)

    def test_without_tls_and_tokens_it_refuses_to_listen(self):
        values = self.environment()
        for key in list(values):
            if key.startswith(("GENESIS_TLS", "GENESIS_AUTH")):
                del values[key]
        with self.assertRaises(AssertionError) as caught:
            self.start_in_pod(values)
        self.assertIn("any other needs tls.certificate_file", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
