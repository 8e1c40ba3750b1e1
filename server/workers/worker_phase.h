#pragma once

#include <vector>

namespace genesis {

// Where the pool is with one worker. That its process has ended is a fact beside the phase: what it
// held is known from the phase until it is removed.
enum class WorkerPhase {
  kStarting,   // Its process is started; it has not said Hello.
  kWarm,       // Attached; waits for a job.
  kReserved,   // Kept for a job that it does not have yet.
  kBusy,       // Holds a job; its stream is open.
  kAbsent,     // Holds a job; its stream is broken, and it may attach again.
  kAdopted,    // As kAbsent, and an earlier daemon gave it the job.
  kFinishing,  // The end of its job has come; it has still to exit.
  kLeaving,    // Gets no job any more; it has still to exit.
};

// One legal move of a worker, and when it happens.
struct WorkerMove {
  WorkerPhase from;
  WorkerPhase to;
  const char* when;
};

// The whole table; there are no other moves. A worker enters as kStarting or as kAdopted, and is
// removed from any phase once it is gone.
const std::vector<WorkerMove>& WorkerMoves();

bool IsLegalMove(WorkerPhase from, WorkerPhase to);

// Has a slot of its device and the memory promised to its job.
bool HoldsSlot(WorkerPhase phase);

// Holds a job whose end has not come.
bool HoldsJob(WorkerPhase phase);

// Has said Hello, to this daemon or to an earlier one.
bool WasAttached(WorkerPhase phase);

// May say Hello now.
bool MayAttach(WorkerPhase phase);

// "STARTING" for kStarting.
const char* WorkerPhaseName(WorkerPhase phase);

}  // namespace genesis
