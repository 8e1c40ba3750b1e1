"""Runs random sequences of calls and faults, and compares the daemon with a small model of the job states.

The model knows only what the daemon acknowledged: no job may be lost, duplicated or moved against the table of moves, no final state may
change, no acknowledged checkpoint may be missing, and refusals must have the codes of the API.

The daemon is real, and its workers are fake_worker. GENESIS_SEQUENCES sets the number of sequences (default: 20 in the gate, 130 more at
night; 10000 for the long run), GENESIS_SEED the first seed."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import grpc

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))

import harness  # noqa: E402
import orchestrator  # noqa: E402
import tiers  # noqa: E402
from reference_model import FINAL, JobModel, Model, legal_moves  # noqa: E402

SEQUENCES = int(os.environ.get("GENESIS_SEQUENCES", "20"))
NIGHTLY_SEQUENCES = 130
SEED = int(os.environ.get("GENESIS_SEED", "1"))
STEPS_IN_SEQUENCE = 12
FAKE_WORKER = harness.BIN.parent / "tests" / "fake_worker"
# The start of a job's name selects the behavior of fake_worker. "survive" is like "hold", but outlives the daemon.
KINDS = ("ok", "ok", "hold", "survive", "survive", "crash-once", "fail", "crash", "hang")
CODES = grpc.StatusCode


def name_of(job):
    return orchestrator.state_of(job)[len("JOB_STATE_"):]


class Sequences(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        # Small enough to be filled. Without permission to mount it, the disk is not filled.
        self.limited = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.data_dir],
            capture_output=True).returncode == 0
        if self.limited:
            self.addCleanup(subprocess.run, ["umount", "-l", self.data_dir], check=True)
        self.filler = pathlib.Path(self.data_dir) / "filler"
        page = (harness.SOURCE / "docs" / "life_of_a_job.md").read_text()
        self.model = Model(legal_moves(page))
        self.numbers = 0
        self.killed_workers = 0
        self.spec = harness.spec(max_steps=10)
        self.spec["max_restarts"] = 2
        self.start_daemon()

    def start_daemon(self):
        self.daemon = self.start("--workers-program", str(FAKE_WORKER), "--workers-slots", "2",
                                 "--hang-step-seconds", "1")
        self.client = orchestrator.Orchestrator(self.daemon.grpc)

    # Actions of a client.

    def call(self, method, accepted, **fields):
        """Calls a method. Returns the response, or the code of a refusal, which must be one of `accepted`."""
        try:
            return self.client.call(method, **fields)
        except grpc.RpcError as error:
            codes = accepted | ({CODES.RESOURCE_EXHAUSTED} if self.filler.exists() else set())
            assert error.code() in codes, f"{method} {fields}: {error.code()} {error.details()}"
            return error.code()

    def any_job(self):
        living = self.model.living()
        return self.random.choice(living[-6:]) if living else None

    def train(self):
        self.numbers += 1
        kind = self.random.choice(KINDS)
        job_id = f"{kind}-{self.numbers}"
        answer = self.call("Train", set(), job_id=job_id, spec=self.spec)
        if not isinstance(answer, grpc.StatusCode):
            self.model.jobs[job_id] = JobModel(kind, self.killed_workers)
        elif self.client_sees(job_id):
            raise AssertionError(f"{job_id} was refused and exists")

    def client_sees(self, job_id):
        try:
            return self.client.job(job_id)
        except grpc.RpcError as error:
            assert error.code() == CODES.NOT_FOUND, error
            return None

    def train_again(self):
        job_id = self.any_job()
        if job_id is None:
            return
        answer = self.call("Train", set(), job_id=job_id, spec=self.spec)
        if not isinstance(answer, grpc.StatusCode):
            self.model.jobs[job_id].see(answer.job, name_of(answer.job), self.killed_workers)
        other = {**self.spec, "max_restarts": 3}
        assert self.call("Train", {CODES.ALREADY_EXISTS}, job_id=job_id,
                         spec=other) in (CODES.ALREADY_EXISTS, CODES.RESOURCE_EXHAUSTED)

    def request(self, method, then, **fields):
        """Makes a request about a random job. If it is acknowledged, `then` records it in the model."""
        job_id = self.any_job()
        if job_id is None:
            return
        job = self.model.jobs[job_id]
        answer = self.call(method, {CODES.FAILED_PRECONDITION}, job_id=job_id, **fields)
        if isinstance(answer, grpc.StatusCode):
            return
        then(job, answer)
        job.see(answer.job, name_of(answer.job), self.killed_workers)

    def pause(self):
        def then(job, answer):
            job.paused = name_of(answer.job) in ("PAUSING", "PAUSED")
        self.request("PauseJob", then)

    def resume(self):
        def then(job, _):
            job.paused = False
        self.request("ResumeJob", then)

    def cancel(self):
        def then(job, _):
            job.cancelled, job.paused = True, False
        self.request("CancelJob", then, now=self.random.random() < 0.3)

    def update(self):
        priority = self.random.randint(-5, 5)

        def then(job, _):
            job.priority = priority
        self.request("UpdateJob", then, priority=priority, update_mask="priority")

    def delete(self):
        job_id = self.any_job()
        if job_id is None:
            return
        answer = self.call("DeleteJob", {CODES.FAILED_PRECONDITION}, job_id=job_id,
                           delete_checkpoints=True)
        if not isinstance(answer, grpc.StatusCode):
            self.model.jobs[job_id].deleted = True

    def checkpoint(self):
        job_id = self.any_job()
        if job_id is None:
            return
        answer = self.call("Checkpoint", {CODES.FAILED_PRECONDITION, CODES.ABORTED}, job_id=job_id)
        if not isinstance(answer, grpc.StatusCode):
            self.model.jobs[job_id].checkpoints.add(answer.checkpoint.id)

    # Faults.

    def kill_worker(self):
        for pid in self.daemon.worker_pids()[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
                self.killed_workers += 1
            except ProcessLookupError:
                pass

    def kill_daemon(self):
        self.client.close()
        self.daemon.kill()
        self.empty_disk()  # A daemon does not start on a full disk.
        self.start_daemon()

    def restart_daemon(self):
        self.client.close()
        self.empty_disk()
        assert self.daemon.stop() == 0
        self.start_daemon()

    def fill_disk(self):
        if not self.limited:
            return
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass
            for size in (1 << 16, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def empty_disk(self):
        self.filler.unlink(missing_ok=True)

    def pause_a_moment(self):
        time.sleep(self.random.uniform(0, 0.02))

    # Checks against the model.

    def check(self):
        for job_id in self.model.living():
            job = self.client_sees(job_id)
            assert job is not None, f"{job_id} was acknowledged and is gone"
            self.model.jobs[job_id].see(job, name_of(job), self.killed_workers)

    def settle(self):
        """Lets all jobs end, and checks each from its first event to its last checkpoint."""
        self.empty_disk()
        for job_id in self.model.living():
            job = self.model.jobs[job_id]
            if job.final is None:
                job.cancelled, job.paused = True, False
                self.call("CancelJob", {CODES.FAILED_PRECONDITION}, job_id=job_id)
        for job_id in self.model.living():
            updates = list(self.client.call("WatchJob", job_id=job_id))
            last = updates[-1].job
            job = self.model.jobs[job_id]
            job.see(last, name_of(last), self.killed_workers)
            assert job.final in FINAL, f"{job_id}: {name_of(last)}"
            events = [event for update in updates for event in update.events]
            assert self.model.check_events(job_id, events) == job.final, job_id
            listed = {each.id for each in
                      self.client.call("ListCheckpoints", job_id=job_id).checkpoints}
            assert job.checkpoints <= listed, f"{job_id}: {job.checkpoints - listed}"
        known = {job.id for job in self.client.call("ListJobs", page_size=1000).jobs}
        assert known == set(self.model.living()), known ^ set(self.model.living())
        for job_id in self.model.living():
            self.client.call("DeleteJob", job_id=job_id, delete_checkpoints=True)
        self.model.jobs.clear()

    def run_sequence(self, seed):
        self.random = random.Random(seed)
        actions = ([self.train] * 6 + [self.pause, self.resume] * 2 +
                   [self.cancel, self.update, self.delete, self.checkpoint, self.train_again,
                    self.kill_worker, self.kill_worker, self.pause_a_moment])
        rare = [self.kill_daemon, self.restart_daemon, self.fill_disk, self.empty_disk]
        done = []
        try:
            for _ in range(STEPS_IN_SEQUENCE):
                pool = rare if self.random.random() < 0.06 else actions
                action = self.random.choice(pool)
                done.append(action.__name__)
                action()
                if not self.filler.exists():
                    self.check()
            self.settle()
        except (AssertionError, grpc.RpcError) as error:
            log = (pathlib.Path(self.data_dir) / "stderr").read_text().splitlines()[-60:]
            raise AssertionError("\n".join([f"GENESIS_SEED={seed} GENESIS_SEQUENCES=1: {done}: {error}",
                                            *log])) from error

    def test_sequences(self):
        for seed in range(SEED, SEED + SEQUENCES):
            self.run_sequence(seed)

    @tiers.nightly
    def test_many_sequences(self):
        for seed in range(SEED + SEQUENCES, SEED + SEQUENCES + NIGHTLY_SEQUENCES):
            self.run_sequence(seed)


if __name__ == "__main__":
    unittest.main()
