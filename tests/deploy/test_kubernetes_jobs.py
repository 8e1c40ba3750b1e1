"""Tests jobs for which the daemon creates a Kubernetes Job. kubernetes_api.py responds like a real API server, and runs the pods'
containers."""

import pathlib
import shutil
import tempfile
import unittest

import kubernetes_validate
import yaml

from tools import DEPLOY, TOOLS, run

import cluster_jobs  # noqa: E402
import harness  # noqa: E402
import kubernetes_api  # noqa: E402
import secure  # noqa: E402
import tiers  # noqa: E402
from cluster_jobs import STEPS  # noqa: E402

OVERLAY = DEPLOY / "kubernetes" / "overlays" / "launcher"
TEMPLATE = {
    "metadata": {"labels": {"component": "launched-workers"}},
    "spec": {"terminationGracePeriodSeconds": 60,
             "containers": [{"name": "genesis-worker", "image": "genesis:latest",
                             "resources": {"limits": {"memory": "16Gi"}}}]},
}


def submitted(ranks=2, **training):
    return cluster_jobs.submitted("KUBERNETES", ranks, **training)


@tiers.nightly
class KubernetesJobs(cluster_jobs.ClusterJobs):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix="genesis-k8s-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.folder = pathlib.Path(folder)
        (self.folder / "pods").mkdir()
        self.authority = secure.Authority(self.folder / "authority")
        self.cluster = kubernetes_api.Cluster(self.authority, str(self.folder / "pods"))
        self.addCleanup(self.cluster.stop)
        (self.folder / "token").write_text("token-1\n")
        self.template(TEMPLATE)

    def template(self, pod):
        (self.folder / "pod.yaml").write_text(pod if isinstance(pod, str) else yaml.safe_dump(pod))

    def begin(self, *flags):
        return self.start(
            "--workers-remote", "true", "--workers-reattach-timeout-seconds", "60", "--launchers-poll-seconds", "1",
            "--kubernetes-pod-template", str(self.folder / "pod.yaml"), "--kubernetes-api-server", self.cluster.url,
            "--kubernetes-namespace", "genesis", "--kubernetes-token-file", str(self.folder / "token"),
            "--kubernetes-ca-file", str(self.authority.certificate), *flags)

    def logs(self, daemon):
        return f"{self.cluster.logs()}\n{daemon.log()[-4000:]}\n{self.cluster.jobs}"

    def wait_for_attempt(self, daemon, job_id, claim):
        try:
            return harness.wait_for(f"attempt {claim}", lambda: (
                job := daemon.job(job_id))["state"] == "JOB_STATE_RUNNING" and int(job["claim"]) == claim and job)
        except AssertionError as error:
            raise AssertionError(f"{error}: {daemon.job(job_id)}\n{self.logs(daemon)}") from None

    def test_two_pods_train_to_the_end_and_their_job_is_field_for_field_what_it_should_be(self):
        daemon = self.begin("--kubernetes-priority-class", "training", "--kubernetes-gpus-per-pod", "1",
                            "--launchers-token-file", "/etc/genesis/worker/token")
        self.cluster.pods_run = False
        daemon.train("far", submitted())
        submission = self.wait_for_wait(daemon, "far", " is Pending")["submission"]
        (_, path, query, made), = self.cluster.asked("POST")
        self.assertEqual(path, "/apis/batch/v1/namespaces/genesis/jobs")
        self.assertEqual(query, {"fieldManager": "genesisd", "fieldValidation": "Strict"})
        name = submission["name"]
        marks = {"genesis/reservation": name, "genesis/job": "far"}
        label = {"genesis-daemon": "-".join(name.split("-")[:2])}
        self.assertEqual(made, {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "labels": label, "annotations": marks},
            "spec": {
                "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0,
                "ttlSecondsAfterFinished": 600,
                "template": {
                    "metadata": {"labels": {"component": "launched-workers", **label}, "annotations": marks},
                    "spec": {
                        "terminationGracePeriodSeconds": 60, "restartPolicy": "Never", "priorityClassName": "training",
                        "containers": [{
                            "name": "genesis-worker", "image": "genesis:latest",
                            "resources": {"limits": {"memory": "16Gi", "nvidia.com/gpu": "1"}},
                            "args": [str(harness.BIN / "genesis-worker"), "--daemon", daemon.grpc, "--checkpoint-dir",
                                     str(daemon.data_dir / "checkpoints"), "--reservation", name, "--token-file",
                                     "/etc/genesis/worker/token"]}]}}}})
        daemon.ctl("cancel", "far")
        harness.wait_for("the deletion", lambda: not self.cluster.names())
        (_, path, _, options), = self.cluster.asked("DELETE")
        self.assertTrue(path.endswith(f"/jobs/{name}"))
        self.assertEqual((options["propagationPolicy"], set(options["preconditions"])), ("Foreground", {"uid"}))
        # A pod that runs, with only the fields of the template.
        daemon.stop()
        self.cluster.pods_run = True
        daemon = self.begin()
        daemon.train("near", harness.spec())
        daemon.train("run", submitted())
        ran = self.wait_for_succeeded(daemon, "run")
        self.assertEqual((len(ran["ranks"]), int(ran["claim"]), int(ran.get("restarts", 0))), (2, 1, 0))
        self.wait_for_succeeded(daemon, "near")
        job = self.cluster.jobs[ran["submission"]["cluster_id"]]
        harness.wait_for("its end there", lambda: job["status"]["conditions"])
        self.assertEqual(job["status"]["conditions"][0]["type"], "Complete", self.logs(daemon))

    def test_why_it_waits_is_said_in_the_clusters_words(self):
        daemon = self.begin()
        self.cluster.pods_run = False
        self.cluster.waits = {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]}
        daemon.train("waits", submitted())
        job = self.wait_for_wait(daemon, "waits", "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
        self.assertEqual(job["submission"]["state"], "SUBMISSION_STATE_PENDING")
        self.cluster.waits = {"conditions": [], "containerStatuses": [{
            "name": "genesis-worker",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "genesis:latest"'}}}]}
        self.wait_for_wait(daemon, "waits", 'ImagePullBackOff: Back-off pulling image "genesis:latest"')
        # Lists of several pages with other jobs make no difference.
        for i in range(7):
            daemon.train(f"other-{i}", submitted())
        self.wait_for_wait(daemon, "other-6", "ImagePullBackOff")
        for job_id in ("waits", *(f"other-{i}" for i in range(7))):
            daemon.ctl("cancel", job_id)
        harness.wait_for("the deletions", lambda: not self.cluster.names())

    def test_pause_deletes_it_and_resume_makes_another(self):
        daemon = self.begin()
        daemon.train("job", submitted(max_steps=STEPS))
        first = daemon.wait_for_step("job", 50)["submission"]
        daemon.ctl("pause", "job")
        paused = harness.wait_for("the pause", lambda: (
            job := daemon.job("job"))["state"] == "JOB_STATE_PAUSED" and job)
        harness.wait_for("the deletion", lambda: not self.cluster.names())
        daemon.ctl("resume", "job")
        again = self.wait_for_attempt(daemon, "job", 2)
        self.assertNotEqual(again["submission"]["name"], first["name"])
        daemon.wait_for_step("job", int(paused["latest_checkpoint"]["step"]) + 50)
        daemon.ctl("cancel", "job", "--now")
        harness.wait_for("the deletion", lambda: not self.cluster.names())

    def test_one_that_is_suspended_begins_when_it_may_and_goes_on_from_its_checkpoint(self):
        daemon = self.begin()
        self.cluster.suspends_new = True
        daemon.train("job", submitted(max_steps=STEPS))
        name = self.wait_for_wait(daemon, "job", "is Suspended (spec.suspend is true)")["submission"]["cluster_id"]
        self.cluster.suspend(name, False)
        daemon.wait_for_step("job", 50)
        self.cluster.suspend(name)
        waits = self.wait_for_wait(daemon, "job", "is Suspended (spec.suspend is true)")
        self.assertGreater(int(waits["latest_checkpoint"]["step"]), 50)
        daemon = self.again(daemon)
        self.wait_for_wait(daemon, "job", "is Suspended (spec.suspend is true)")
        self.cluster.suspend(name, False)
        self.wait_for_attempt(daemon, "job", 2)
        job = daemon.wait_for_step("job", int(waits["latest_checkpoint"]["step"]) + 50)
        self.assertEqual((int(job.get("restarts", 0)), job["submission"]["cluster_id"]), (0, name), self.logs(daemon))
        self.assertEqual(len(self.cluster.asked("POST")), 1)
        # The Job is deleted, although it no longer has an owner.
        self.cluster.suspend(name)
        self.wait_for_wait(daemon, "job", "is Suspended (spec.suspend is true)")
        daemon.ctl("cancel", "job")
        harness.wait_for("the deletion", lambda: not self.cluster.names())

    def test_an_eviction_is_a_checkpoint_and_no_restart_and_a_kill_is_one(self):
        daemon = self.begin()
        daemon.train("job", submitted(max_steps=STEPS))
        running = daemon.wait_for_step("job", 50)
        self.cluster.evict(running["submission"]["cluster_id"])
        running = self.wait_for_attempt(daemon, "job", 2)
        self.assertEqual(int(running.get("restarts", 0)), 0, self.logs(daemon))
        self.assertGreater(int(running["latest_checkpoint"]["step"]), 50)
        self.cluster.deadline(running["submission"]["cluster_id"])
        running = self.wait_for_attempt(daemon, "job", 3)
        self.assertEqual(int(running.get("restarts", 0)), 0, self.logs(daemon))
        self.cluster.kill(running["submission"]["cluster_id"])
        running = self.wait_for_attempt(daemon, "job", 4)
        self.assertEqual(int(running["restarts"]), 1, self.logs(daemon))
        self.assertIn("OOMKilled", daemon.log())
        daemon.ctl("cancel", "job", "--now")

    def test_a_killed_daemon_neither_loses_nor_doubles_it(self):
        daemon = self.begin()
        self.cluster.pods_run = False
        self.cluster.drop_answers = 1
        daemon.train("kept", submitted(max_steps=STEPS))
        # The Job was created but the response was lost, so the next attempt gets 409.
        job = self.wait_for_wait(daemon, "kept", "is Pending")
        self.assertEqual(len(self.cluster.asked("POST")), 2)
        self.assertEqual(len(self.cluster.names()), 1)
        daemon = self.again(daemon)
        self.cluster.pods_run = True
        daemon.wait_for_step("kept", 50)
        daemon = self.again(daemon)
        running = daemon.wait_for_step("kept", 500)
        self.assertEqual((int(running["claim"]), running["submission"]["name"]), (1, job["submission"]["name"]))
        self.assertEqual(len(self.cluster.names()), 1)
        daemon.ctl("cancel", "kept", "--now")
        harness.wait_for("the deletion", lambda: not self.cluster.names())

    def test_refusals_are_quoted_and_mend_themselves(self):
        daemon = self.begin()
        self.cluster.rules = {"jobs": {"get", "list"}, "pods": {"list"}}
        daemon.train("job", submitted())
        job = self.wait_for_wait(daemon, "job", "cannot create resource")
        self.assertIn('Kubernetes refuses the Job: 403: jobs.batch is forbidden: User "system:serviceaccount:genesis:'
                      'genesis-launcher"', job["queue_reason"])
        self.assertIn("the Role of deploy/kubernetes/overlays/launcher", job["queue_reason"])
        self.cluster.rules = {"jobs": {"create", "delete", "get", "list"}, "pods": {"list"}}
        wrong = yaml.safe_load(yaml.safe_dump(TEMPLATE))
        wrong["spec"]["terminationGracePeriodSecond"] = 60
        self.template(wrong)
        self.wait_for_wait(daemon, "job", "terminationGracePeriodSecond")
        self.assertIn("strict decoding error", daemon.job("job")["queue_reason"])
        self.template("spec:\n  containers:\n    - args: [genesis-worker]\n  restartPolicy: Always\nkind: Pod\n")
        for text in ("kind: unknown key; accepted here: metadata, spec", "spec.containers[0].args: set by the daemon",
                     "spec.restartPolicy: Never, or nothing"):
            self.wait_for_wait(daemon, "job", text)
        self.template(TEMPLATE)
        self.cluster.broken = "etcdserver: leader changed"
        self.wait_for_wait(daemon, "job", "Kubernetes cannot answer the Job now: 500: etcdserver: leader changed")
        self.cluster.broken = None
        (self.folder / "token").write_text("old")
        self.wait_for_wait(daemon, "job", "401: Unauthorized")
        (self.folder / "token").write_text("token-1")
        self.wait_for_succeeded(daemon, "job")

    def test_a_server_that_is_not_the_authoritys_gets_no_token(self):
        other = secure.Authority(self.folder / "other", "another authority")
        daemon = self.begin("--kubernetes-ca-file", str(other.certificate))
        daemon.train("job", submitted())
        job = self.wait_for_wait(daemon, "job", "is not trusted")
        self.assertIn("check kubernetes.ca_file and kubernetes.api_server", job["queue_reason"])
        self.assertEqual(self.cluster.requests, [])

    def test_a_job_of_somebody_else_is_left_alone(self):
        daemon = self.begin()
        self.cluster.pods_run = False
        daemon.train("job", submitted())
        name = self.wait_for_wait(daemon, "job", "is Pending")["submission"]["cluster_id"]
        with self.cluster.lock:
            self.cluster.jobs["strange"] = {
                **self.cluster.jobs[name], "metadata": {**self.cluster.jobs[name]["metadata"], "name": "strange",
                                                        "labels": {"genesis-daemon": "genesis-00000000"}}}
        daemon.ctl("cancel", "job")
        harness.wait_for("the deletion", lambda: self.cluster.names() == ["strange"])

    def test_a_daemon_outside_of_a_pod_is_told_what_it_lacks(self):
        done = run(harness.BIN / "genesisd", "--data-dir", self.data_dir, "--workers-remote", "true", "--grpc-listen",
                   "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--kubernetes-pod-template", self.folder / "pod.yaml",
                   check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("kubernetes.api_server: required with kubernetes.pod_template outside of a pod", done.stderr)


@tiers.nightly
class Overlay(unittest.TestCase):
    """Tests deploy/kubernetes/overlays/launcher, and the Job that the daemon makes from its pod template."""

    @classmethod
    def setUpClass(cls):
        text = run(TOOLS / "kubectl", "kustomize", OVERLAY).stdout
        cls.objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}

    def test_it_is_valid_by_the_strict_schema_of_the_oldest_and_newest_version(self):
        for version in ("1.29.0", "1.37.0"):
            for each in self.objects.values():
                kubernetes_validate.validate(each, version, strict=True)

    def test_the_rights_are_those_that_are_used_and_no_more(self):
        role = self.objects["Role", "genesis-launcher"]
        self.assertEqual({(group, resource): sorted(rule["verbs"]) for rule in role["rules"]
                          for group in rule["apiGroups"] for resource in rule["resources"]},
                         {("batch", "jobs"): ["create", "delete", "get", "list"], ("", "pods"): ["list"]})
        binding = self.objects["RoleBinding", "genesis-launcher"]
        self.assertEqual(binding["roleRef"]["name"], "genesis-launcher")
        (subject,) = binding["subjects"]
        pod = self.objects["Deployment", "genesis-orchestrator"]["spec"]["template"]["spec"]
        self.assertEqual(subject["name"], pod["serviceAccountName"])
        self.assertIs(pod["automountServiceAccountToken"], False)
        self.assertIs(self.objects["ServiceAccount", "genesis-launcher"]["automountServiceAccountToken"], False)
        # The workers have none of these rights.
        self.assertEqual(self.pod()["spec"]["serviceAccountName"], "genesis")
        self.assertIs(self.pod()["spec"]["automountServiceAccountToken"], False)

    def pod(self):
        config = next(each for (kind, name), each in self.objects.items()
                      if kind == "ConfigMap" and name.startswith("genesis-pod-template"))
        return yaml.safe_load(config["data"]["pod.yaml"])

    def test_the_daemon_makes_a_valid_confined_job_of_the_template(self):
        with tempfile.TemporaryDirectory() as folder:
            authority = secure.Authority(pathlib.Path(folder) / "authority")
            cluster = kubernetes_api.Cluster(authority, folder)
            cluster.pods_run = False
            pathlib.Path(folder, "token").write_text("token-1")
            data = pathlib.Path(folder, "data")
            data.mkdir()
            daemon = harness.Daemon(
                data, "--workers-remote", "true", "--kubernetes-pod-template", str(OVERLAY / "pod.yaml"),
                "--kubernetes-api-server", cluster.url, "--kubernetes-namespace", "genesis", "--kubernetes-token-file",
                f"{folder}/token", "--kubernetes-ca-file", str(authority.certificate))
            try:
                daemon.train("job", submitted())
                harness.wait_for("the Job", lambda: cluster.names() or "queue_reason" in daemon.job("job")
                                 and "refuses" in daemon.job("job")["queue_reason"])
                self.assertEqual(len(cluster.names()), 1, daemon.job("job"))
                (_, _, _, made), = cluster.asked("POST")
            finally:
                daemon.stop()
                cluster.stop()
        for version in ("1.29.0", "1.37.0"):
            kubernetes_validate.validate(made, version, strict=True)
        pod = made["spec"]["template"]["spec"]
        self.assertEqual([volume.get("secret", {}).get("defaultMode") for volume in pod["volumes"]],
                         [None, None, 0o440, 0o440], "modes in octal, as kubectl reads them")
        self.assertEqual(pod["containers"][0]["resources"]["requests"]["cpu"], "2")
        self.assertEqual(pod["containers"][0]["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])

    def test_workers_are_reached_by_each_other_alone_and_find_what_they_mount(self):
        labels = self.pod()["metadata"]["labels"]
        policy = self.objects["NetworkPolicy", "genesis-launched-workers"]["spec"]
        self.assertEqual(policy["podSelector"]["matchLabels"].items() - labels.items(), set())
        (entry,) = policy["ingress"]
        self.assertEqual(entry["from"], [{"podSelector": policy["podSelector"]}])
        spec = self.pod()["spec"]
        self.assertEqual({mount["name"] for mount in spec["containers"][0]["volumeMounts"]},
                         {volume["name"] for volume in spec["volumes"]})
        claims = {volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"]
                  if "persistentVolumeClaim" in volume}
        self.assertEqual(claims, {"genesis-shared"})
        self.assertIn(("PersistentVolumeClaim", "genesis-shared"), self.objects)


if __name__ == "__main__":
    unittest.main()
