"""A model of what a client may assume about its jobs from its acknowledged calls, as the oracle of test_model.py."""

FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}

# The legal moves of a job's state, from docs/life_of_a_job.md.
def legal_moves(page):
    """Returns (from, to) for each row of the page's table of moves."""
    moves = set()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].isupper() and cells[1].isupper():
            moves.add((cells[0], cells[1]))
    return moves


class JobModel:
    """One acknowledged job."""

    def __init__(self, kind, killed_workers):
        self.kind = kind
        self.killed_before = killed_workers
        self.final = None  # Does not change once it is set.
        self.cancelled = False  # Whether a cancel was acknowledged before the job ended.
        self.paused = False  # Whether a pause was acknowledged, and no resume since.
        self.deleted = False
        self.priority = 0
        self.checkpoints = set()  # IDs of acknowledged checkpoints.
        self.claim = 0
        self.restarts = 0

    def may_fail(self, job, killed_workers):
        """Returns whether the job may fail, because of its kind or because its workers were lost too often. A killed or restarted daemon
        must not make it fail."""
        hung = job.failure.cause == job.failure.DESCRIPTOR.fields_by_name[
            "cause"].enum_type.values_by_name["FAILURE_CAUSE_HANG"].number
        lost = killed_workers - self.killed_before + (self.kind == "crash-once")
        return self.kind in ("fail", "crash") or hung or lost > job.spec.max_restarts

    def see(self, job, state, killed_workers):
        """Checks the daemon's response against all previous responses."""
        if self.final is not None:
            assert state == self.final, f"{job.id} was {self.final} and is {state}"
        if state in FINAL:
            # A job may end before its worker receives a cancel.
            assert state != "CANCELLED" or self.cancelled, f"{job.id} was cancelled by nobody"
            assert state != "FAILED" or self.may_fail(job, killed_workers), (
                f"{job.id} failed: {job.failure.message}")
            self.final = state
        assert job.claim >= self.claim, f"{job.id}: claim {job.claim} after {self.claim}"
        assert job.restarts >= self.restarts
        assert job.restarts <= job.spec.max_restarts
        assert job.priority == self.priority, f"{job.id}: priority {job.priority}"
        if self.paused and self.final is None:
            assert state in {"PAUSING", "PAUSED"}, f"{job.id} was paused and is {state}"
        self.claim, self.restarts = job.claim, job.restarts


class Model:
    """All acknowledged jobs of a client."""

    def __init__(self, moves):
        self.moves = moves
        self.jobs = {}

    def living(self):
        return [job_id for job_id, job in self.jobs.items() if not job.deleted]

    def check_events(self, job_id, events):
        """Checks that the changes of a job's state form a gapless chain of legal moves."""
        state = "UNSPECIFIED"
        last = 0
        for event in events:
            assert event.sequence > last, f"{job_id}: event {event.sequence} after {last}"
            last = event.sequence
            if event.WhichOneof("what") != "state_changed":
                continue
            names = event.state_changed.DESCRIPTOR.fields_by_name["to"].enum_type.values_by_number
            before = names[getattr(event.state_changed, "from")].name[len("JOB_STATE_"):]
            after = names[event.state_changed.to].name[len("JOB_STATE_"):]
            assert before == state, f"{job_id}: {before} to {after} while {state}"
            assert state == "UNSPECIFIED" or (before, after) in self.moves, f"{before} to {after}"
            state = after
        return state
