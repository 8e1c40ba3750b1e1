"""Shared code of the tests of Slurm and of Kubernetes: jobs whose workers a cluster's scheduler starts."""

import harness
from test_gangs import gang

# Long enough to be interrupted on a fast machine.
STEPS = 20000


def submitted(launcher, ranks=2, **training):
    job = gang(ranks, **training)
    job["distributed"]["launcher"] = launcher
    return job


class ClusterJobs(harness.DaemonTest):
    """A test has begin(*flags), which starts a daemon with a launcher, and logs(daemon), shown on a failure."""

    def again(self, daemon, *flags):
        """Starts the daemon again after kill -9, at the address that its workers dial."""
        daemon.kill()
        return self.begin("--grpc-listen", daemon.grpc, *flags)

    def wait_for_wait(self, daemon, job_id, text):
        """Returns the job, once its queue reason contains the text."""
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
