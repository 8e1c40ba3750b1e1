"""Shared code of the tests of Slurm and Kubernetes, whose scheduler starts the workers of a job."""

import harness
from test_gangs import gang

# Long enough that the job can be interrupted on a fast machine.
STEPS = 20000


def submitted(launcher, ranks=2, **training):
    job = gang(ranks, **training)
    job["distributed"]["launcher"] = launcher
    return job


class ClusterJobs(harness.DaemonTest):
    """A base class of tests. A subclass has begin(*flags), which starts a daemon with a launcher, and logs(daemon), whose result is shown
    if a test fails."""

    def again(self, daemon, *flags):
        """Kills the daemon with SIGKILL and starts it again at the same address, to which its workers reconnect."""
        daemon.kill()
        return self.begin("--grpc-listen", daemon.grpc, *flags)

    def wait_for_wait(self, daemon, job_id, text):
        """Waits until the job's queue reason contains the text. Returns the job."""
        def told():
            job = daemon.job(job_id)
            return text in job.get("queue_reason", "") and job

        try:
            return harness.wait_for(f"{job_id} to wait for {text}", told)
        except AssertionError as error:
            raise AssertionError(f"{error}: {daemon.job(job_id)}\n{self.logs(daemon)}") from None

    def wait_for_succeeded(self, daemon, job_id):
        ended = daemon.wait_for_end(job_id)
        self.assertEqual(ended["state"], "JOB_STATE_SUCCEEDED", (ended, self.logs(daemon)))
        return ended
