#include "server/workers/worker_phase.h"

#include <algorithm>

namespace genesis {

const std::vector<WorkerMove>& WorkerMoves() {
  using enum WorkerPhase;
  static const auto* const moves = new std::vector<WorkerMove>{
      {kStarting, kWarm, "it attaches"},
      {kStarting, kLeaving, "it attaches, and was retired or the daemon drains or stops"},
      {kWarm, kReserved, "it is kept for a job"},
      {kWarm, kLeaving, "it is retired, the daemon drains, or its stream ends"},
      {kReserved, kBusy, "it is given the job"},
      {kReserved, kAbsent, "it is given the job after its stream broke"},
      {kReserved, kWarm, "its gang lacks another, or the job could not be stored"},
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

bool IsLegalMove(WorkerPhase from, WorkerPhase to) {
  return std::any_of(WorkerMoves().begin(), WorkerMoves().end(),
                     [&](const WorkerMove& move) { return move.from == from && move.to == to; });
}

bool HoldsSlot(WorkerPhase phase) {
  return HoldsJob(phase) || phase == WorkerPhase::kReserved || phase == WorkerPhase::kFinishing;
}

bool HoldsJob(WorkerPhase phase) {
  return phase == WorkerPhase::kBusy || phase == WorkerPhase::kAbsent ||
         phase == WorkerPhase::kAdopted;
}

bool WasAttached(WorkerPhase phase) { return phase != WorkerPhase::kStarting; }

bool MayAttach(WorkerPhase phase) { return phase == WorkerPhase::kStarting || HoldsJob(phase); }

const char* WorkerPhaseName(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kStarting:
      return "STARTING";
    case WorkerPhase::kWarm:
      return "WARM";
    case WorkerPhase::kReserved:
      return "RESERVED";
    case WorkerPhase::kBusy:
      return "BUSY";
    case WorkerPhase::kAbsent:
      return "ABSENT";
    case WorkerPhase::kAdopted:
      return "ADOPTED";
    case WorkerPhase::kFinishing:
      return "FINISHING";
    case WorkerPhase::kLeaving:
      return "LEAVING";
  }
  return "";
}

}  // namespace genesis
