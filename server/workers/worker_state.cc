#include "server/workers/worker_state.h"

#include <algorithm>

namespace genesis {

const std::vector<WorkerMove>& WorkerMoves() {
  using enum WorkerState;
  static const auto* const moves = new std::vector<WorkerMove>{
      {kStarting, kWarm, "it attaches"},
      {kStarting, kLeaving, "it attaches, and was retired or the daemon drains or stops"},
      {kWarm, kReserved, "it is kept for a job"},
      {kWarm, kLeaving, "it is retired, the daemon drains, or its stream ends"},
      {kReserved, kBusy, "it is given the job"},
      {kReserved, kAbsent, "it is given the job after its stream broke"},
      {kReserved, kWarm, "the job could not be stored, and it is released"},
      {kReserved, kLeaving,
       "it is released after its stream broke, it was retired or the daemon drains"},
      {kBusy, kAbsent, "its stream breaks"},
      {kBusy, kFinishing, "the end of its job comes"},
      {kAbsent, kBusy, "it attaches again"},
      {kAbsent, kFinishing, "the end of its job comes by a stream that it has replaced"},
      {kAdopted, kBusy, "it attaches to this daemon"},
  };
  return *moves;
}

bool IsLegalMove(WorkerState from, WorkerState to) {
  return std::any_of(WorkerMoves().begin(), WorkerMoves().end(),
                     [&](const WorkerMove& move) { return move.from == from && move.to == to; });
}

bool HoldsSlot(WorkerState state) {
  return HoldsJob(state) || state == WorkerState::kReserved || state == WorkerState::kFinishing;
}

bool HoldsJob(WorkerState state) {
  return state == WorkerState::kBusy || state == WorkerState::kAbsent ||
         state == WorkerState::kAdopted;
}

bool WasAttached(WorkerState state) { return state != WorkerState::kStarting; }

bool MayAttach(WorkerState state) { return state == WorkerState::kStarting || HoldsJob(state); }

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting:
      return "STARTING";
    case WorkerState::kWarm:
      return "WARM";
    case WorkerState::kReserved:
      return "RESERVED";
    case WorkerState::kBusy:
      return "BUSY";
    case WorkerState::kAbsent:
      return "ABSENT";
    case WorkerState::kAdopted:
      return "ADOPTED";
    case WorkerState::kFinishing:
      return "FINISHING";
    case WorkerState::kLeaving:
      return "LEAVING";
  }
  return "";
}

}  // namespace genesis
