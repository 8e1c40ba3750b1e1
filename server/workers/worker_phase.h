#pragma once

#include <vector>

namespace genesis {

// The phase of one worker. The end of its process is recorded separately: until the worker is
// removed from the table, its phase describes what it held.
enum class WorkerPhase {
  kStarting,   // Its process was started; it has not sent Hello.
  kWarm,       // Attached; waits for a job.
  kReserved,   // Reserved for a job that it does not hold yet.
  kBusy,       // Holds a job; its stream is open.
  kAbsent,     // Holds a job; its stream is broken, and it may attach again.
  kAdopted,    // Like kAbsent, but an earlier daemon sent it the job.
  kFinishing,  // Its job has ended; the process has not exited yet.
  kLeaving,    // Gets no more jobs; the process has not exited yet.
};

// A legal move of a worker between phases, and its trigger.
struct WorkerMove {
  WorkerPhase from;
  WorkerPhase to;
  const char* when;
};

// Returns all legal moves. A worker starts as kStarting or kAdopted. It is removed from any phase
// once it is gone. Any other move is a defect and ends the daemon, like an illegal move of a job
// (JobTable::Move). The next start recovers from the store.
const std::vector<WorkerMove>& WorkerMoves();

bool IsLegalMove(WorkerPhase from, WorkerPhase to);

// Returns true if a worker in this phase occupies a slot and the memory reserved for its job.
bool HoldsSlot(WorkerPhase phase);

// Returns true if a worker in this phase holds a job that has not ended.
bool HoldsJob(WorkerPhase phase);

// Returns true if a worker in this phase has sent Hello to this daemon or to an earlier one.
bool WasAttached(WorkerPhase phase);

// Returns true if a worker in this phase may send Hello.
bool MayAttach(WorkerPhase phase);

// Returns the name without "k" in capitals: "STARTING" for kStarting.
const char* WorkerPhaseName(WorkerPhase phase);

}  // namespace genesis
