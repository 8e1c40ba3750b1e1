#pragma once

#include <vector>

namespace genesis {

// Where the pool is with one worker. That its process has ended is a fact beside the state: what it
// held is known from the state until it is removed.
enum class WorkerState {
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
  WorkerState from;
  WorkerState to;
  const char* when;
};

// The whole table; there are no other moves. A worker enters as kStarting or as kAdopted, and is
// removed from any state once it is gone.
const std::vector<WorkerMove>& WorkerMoves();

bool IsLegalMove(WorkerState from, WorkerState to);

// Has a slot of its device and the memory promised to its job.
bool HoldsSlot(WorkerState state);

// Holds a job whose end has not come.
bool HoldsJob(WorkerState state);

// Has said Hello, to this daemon or to an earlier one.
bool WasAttached(WorkerState state);

// May say Hello now.
bool MayAttach(WorkerState state);

// "STARTING" for kStarting.
const char* WorkerStateName(WorkerState state);

}  // namespace genesis
