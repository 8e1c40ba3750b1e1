#pragma once

#include <vector>

namespace genesis {

// The phase of one worker. The end of its process is recorded beside the phase, which keeps
// describing what the worker held until it is removed.
enum class WorkerPhase {
  kStarting,   // Its process is started; it has not sent Hello.
  kWarm,       // Attached; waits for a job.
  kReserved,   // Reserved for a job that it does not hold yet.
  kBusy,       // Holds a job; its stream is open.
  kAbsent,     // Holds a job; its stream is broken, and it may attach again.
  kAdopted,    // Like kAbsent, but an earlier daemon sent it the job.
  kFinishing,  // Its job has ended; the process has not exited yet.
  kLeaving,    // Gets no more jobs; the process has not exited yet.
};

// One legal move of a worker, and its trigger.
struct WorkerMove {
  WorkerPhase from;
  WorkerPhase to;
  const char* when;
};

// The whole table; there are no other moves. A worker starts as kStarting or as kAdopted, and is
// removed from any phase once it is gone. Like an illegal move of a job (JobTable::Move), one that
// is not in the table is a defect and ends the daemon, whose next start recovers from the store.
const std::vector<WorkerMove>& WorkerMoves();

bool IsLegalMove(WorkerPhase from, WorkerPhase to);

// Returns true if it has a slot of its device and the memory reserved for its job.
bool HoldsSlot(WorkerPhase phase);

// Returns true if it holds a job that has not ended.
bool HoldsJob(WorkerPhase phase);

// Returns true if it has sent Hello, to this daemon or to an earlier one.
bool WasAttached(WorkerPhase phase);

// Returns true if it may send Hello now.
bool MayAttach(WorkerPhase phase);

// "STARTING" for kStarting.
const char* WorkerPhaseName(WorkerPhase phase);

}  // namespace genesis
