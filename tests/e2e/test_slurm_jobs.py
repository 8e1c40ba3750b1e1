"""Tests jobs whose workers are started by a real, private Slurm on request of the daemon."""

import os
import shutil
import sys
import tempfile
import unittest

import cluster_jobs
import harness
import tiers
from cluster_jobs import STEPS

sys.path.insert(0, str(harness.SOURCE / "tests" / "interop"))
import slurm_cluster  # noqa: E402

ON = ("--workers-remote", "true", "--slurm-enabled", "true", "--launchers-poll-seconds", "1",
      "--workers-reattach-timeout-seconds", "60")
LIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")


def submitted(ranks=2, **training):
    return cluster_jobs.submitted("SLURM", ranks, **training)


class SlurmJobs(cluster_jobs.ClusterJobs):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            harness.not_run("a private Slurm needs root")
        folder = tempfile.mkdtemp(prefix="genesis-slurm-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.cluster = slurm_cluster.Cluster(folder)
        self.addCleanup(self.cluster.stop)

    def begin(self, *flags):
        return self.start(*ON, *flags, environment={"SLURM_CONF": self.cluster.environment["SLURM_CONF"]})

    def slurm_jobs(self):
        """Returns {number: (state, name)} of all jobs of daemons that Slurm remembers."""
        shown = self.cluster.run("squeue", "--noheader", "--states=all", "--format=%i %T %j").stdout
        rows = [line.split() for line in shown.splitlines()]
        return {number: (state, name) for number, state, name in rows if name.startswith("genesis-")}

    def live(self):
        return [number for number, (state, _) in self.slurm_jobs().items() if state in LIVE]

    def occupy(self):
        """Starts another user's job that takes the whole cluster. Returns its number."""
        done = self.cluster.run("sbatch", "--parsable", "-n2", "-o", "/dev/null", "--wrap", "sleep 3600")
        self.assertEqual(done.returncode, 0, done.stderr)
        number = done.stdout.strip()
        harness.wait_for("it to run", lambda: self.cluster.state(number) == "RUNNING")
        return number

    def logs(self, daemon):
        texts = [path.read_text() for path in (daemon.data_dir / "checkpoints" / "slurm").glob("*.log")]
        return "\n".join([*texts, daemon.log()[-4000:], str(self.slurm_jobs())])

    def wait_for_step(self, daemon, job_id, step):
        try:
            return daemon.wait_for_step(job_id, step)
        except AssertionError as error:
            raise AssertionError(f"{error}: {daemon.job(job_id)}\n{self.logs(daemon)}") from None

    def test_two_ranks_train_to_the_end_beside_a_job_of_the_daemon(self):
        daemon = self.begin()
        daemon.train("far", submitted())
        daemon.train("near", harness.spec())
        near = self.wait_for_succeeded(daemon, "near")
        far = self.wait_for_succeeded(daemon, "far")
        self.assertNotIn("reservation", near["latest_checkpoint"])
        self.assertEqual(len(far["ranks"]), 2, far)
        self.assertEqual({rank["worker"]["reservation"] for rank in far["ranks"]}, {far["submission"]["name"]})
        self.assertEqual((int(far["claim"]), int(far.get("restarts", 0))), (1, 0))
        # The workers end by themselves, and Slurm reports it.
        number = far["submission"]["cluster_id"]
        self.assertEqual(self.cluster.wait_for_job(number), "COMPLETED", self.logs(daemon))
        self.assertEqual(list(self.slurm_jobs()), [number])

    def test_one_that_waits_says_what_slurm_says_and_is_cancelled_there(self):
        daemon = self.begin()
        other = self.occupy()
        daemon.train("waits", submitted())
        job = self.wait_for_wait(daemon, "waits", "is PENDING: Resources")
        self.assertEqual(job["submission"]["state"], "SUBMISSION_STATE_PENDING")
        daemon.ctl("cancel", "waits")
        self.assertEqual(daemon.wait_for_end("waits")["state"], "JOB_STATE_CANCELLED")
        self.assertEqual(self.cluster.wait_for_job(job["submission"]["cluster_id"]), "CANCELLED")
        self.assertEqual(self.cluster.state(other), "RUNNING")

    def test_one_that_runs_is_paused_resumed_and_cancelled(self):
        daemon = self.begin()
        daemon.train("job", submitted(max_steps=STEPS))
        first = self.wait_for_step(daemon, "job", 50)["submission"]
        daemon.ctl("pause", "job")
        paused = harness.wait_for("the pause", lambda: (
            job := daemon.job("job"))["state"] == "JOB_STATE_PAUSED" and job)
        self.assertIn("latest_checkpoint", paused)
        harness.wait_for("Slurm to be empty", lambda: not self.live())
        daemon.ctl("resume", "job")
        made = int(paused["latest_checkpoint"]["step"])
        second = self.wait_for_step(daemon, "job", made + 50)["submission"]
        self.assertEqual((int(first["number"]), int(second["number"])), (1, 2))
        daemon.ctl("cancel", "job")
        self.assertEqual(daemon.wait_for_end("job")["state"], "JOB_STATE_CANCELLED")
        harness.wait_for("Slurm to be empty", lambda: not self.live())
        self.assertEqual(len(self.slurm_jobs()), 2)

    @tiers.nightly
    def test_a_warning_of_slurm_is_a_checkpoint_and_another_submission(self):
        daemon = self.begin()
        daemon.train("warned", submitted(max_steps=STEPS))
        number = self.wait_for_step(daemon, "warned", 50)["submission"]["cluster_id"]
        # Like Slurm's own signal before the time limit, this goes to the tasks and not to the script.
        self.assertEqual(self.cluster.run("scancel", "--signal=TERM", number).returncode, 0)
        again = harness.wait_for("the next attempt", lambda: (
            job := daemon.job("warned"))["state"] == "JOB_STATE_RUNNING" and int(job["claim"]) == 2 and job)
        self.assertEqual(int(again.get("restarts", 0)), 0, self.logs(daemon))
        self.assertGreater(int(again["latest_checkpoint"]["step"]), 50)
        self.assertEqual(len(self.slurm_jobs()), 2)
        daemon.ctl("cancel", "warned", "--now")

    @tiers.nightly
    def test_scancel_from_outside_is_a_restart_until_they_are_used_up(self):
        daemon = self.begin()
        job = submitted(max_steps=STEPS)
        job["max_restarts"] = 1
        daemon.train("hit", job)
        for attempt in (1, 2):
            running = harness.wait_for(f"attempt {attempt}", lambda: (
                job := daemon.job("hit"))["state"] == "JOB_STATE_RUNNING" and int(job["claim"]) == attempt and job)
            self.assertEqual(self.cluster.run("scancel", running["submission"]["cluster_id"]).returncode, 0)
            if attempt == 1:
                harness.wait_for("the restart", lambda: int(daemon.job("hit").get("restarts", 0)) == 1)
        ended = daemon.wait_for_end("hit")
        self.assertEqual(ended["state"], "JOB_STATE_FAILED", self.logs(daemon))
        self.assertIn("all 1 restarts are used up", ended["failure"]["message"])
        self.assertIn(f"Slurm job {running['submission']['cluster_id']} has ended: CANCELLED",
                      ended["failure"]["message"])
        self.assertIn("restart 1 of 1", daemon.log())
        harness.wait_for("Slurm to be empty", lambda: not self.live())

    @tiers.nightly
    def test_killed_daemons_neither_lose_nor_double_what_waits(self):
        daemon = self.begin()
        other = self.occupy()
        daemon.train("kept", submitted())
        number = self.wait_for_wait(daemon, "kept", "is PENDING")["submission"]["cluster_id"]
        for _ in range(3):
            daemon = self.again(daemon)
        # The daemon is killed during a submission, so its list of Slurm's jobs may be outdated.
        daemon.train("begun", submitted())
        daemon = self.again(daemon)
        self.wait_for_wait(daemon, "begun", "is PENDING")
        names = [name for _, name in self.slurm_jobs().values()]
        self.assertEqual(len(names), 2, names)
        self.assertEqual(self.cluster.run("scancel", other).returncode, 0)
        kept = self.wait_for_succeeded(daemon, "kept")
        self.assertEqual(kept["submission"]["cluster_id"], number)
        self.wait_for_succeeded(daemon, "begun")
        self.assertEqual(len(self.slurm_jobs()), 2)

    def test_a_killed_daemon_takes_running_workers_over(self):
        daemon = self.begin()
        daemon.train("adopted", submitted(max_steps=STEPS))
        number = self.wait_for_step(daemon, "adopted", 50)["submission"]["cluster_id"]
        daemon = self.again(daemon)
        # The store does not record steps between checkpoints.
        job = self.wait_for_step(daemon, "adopted", 500)
        self.assertEqual((int(job["claim"]), job["submission"]["cluster_id"]), (1, number))
        self.assertEqual(self.live(), [number])
        # The job in Slurm is cancelled even after the job is deleted from the store.
        daemon.ctl("cancel", "adopted", "--now")
        daemon.wait_for_end("adopted")
        harness.wait_for("Slurm to be empty", lambda: not self.live())

    def test_what_slurm_cannot_give_is_said_in_its_own_words(self):
        daemon = self.begin()
        daemon.train("wide", submitted(5, batch_size=8))
        job = self.wait_for_wait(daemon, "wide", "is PENDING: PartitionConfig")
        self.assertIn(f"Slurm job {job['submission']['cluster_id']} is PENDING", job["queue_reason"])
        daemon.ctl("cancel", "wide")
        self.assertEqual(self.cluster.wait_for_job(job["submission"]["cluster_id"]), "CANCELLED")
        # An option that Slurm rejects.
        daemon.stop()
        daemon = self.begin("--slurm-partition", "nowhere")
        daemon.train("refused", submitted())
        job = self.wait_for_wait(daemon, "refused", "Slurm refuses the job: sbatch exited with 1: sbatch: error: ")
        self.assertIn("could not be submitted to Slurm and is tried again", job["queue_reason"])
        self.assertIn("invalid partition specified: nowhere", job["queue_reason"])
        daemon.ctl("cancel", "refused")
        self.assertEqual(daemon.wait_for_end("refused")["state"], "JOB_STATE_CANCELLED")

    @tiers.nightly
    def test_workers_that_cannot_attach_use_up_the_restarts(self):
        daemon = self.begin("--launchers-worker-program", "/bin/false")
        job = submitted()
        job["max_restarts"] = 1
        daemon.train("broken", job)
        ended = daemon.wait_for_end("broken")
        self.assertEqual(ended["state"], "JOB_STATE_FAILED")
        self.assertRegex(ended["failure"]["message"],
                         r"Slurm job \d+ has ended: FAILED: NonZeroExitCode, before all of its workers had attached")


class WithoutSlurm(harness.DaemonTest):
    def test_a_daemon_that_has_no_slurm_refuses_the_job(self):
        daemon = self.start("--workers-remote", "true")
        refused = daemon.train("job", submitted(), check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("distributed.launcher is SLURM; accepted: LOCAL, for this daemon is not set up", refused.stderr)

    def test_programs_that_are_missing_are_named(self):
        daemon = self.start(*ON, "--slurm-bin-dir", "/nowhere")
        daemon.train("job", submitted())
        job = harness.wait_for("the reason", lambda: (
            job := daemon.job("job")) and "squeue" in job.get("queue_reason", "") and job)
        self.assertIn("cannot run /nowhere/squeue: No such file or directory; install Slurm's client programs",
                      job["queue_reason"])
        self.assertIn("correct slurm.bin_dir", job["queue_reason"])


if __name__ == "__main__":
    unittest.main()
