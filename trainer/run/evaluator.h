#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/step/training_session.h"

namespace genesis {

// An `Evaluator` measures a job's model on its held-out examples, always in FP32, and decides when
// the job stops early because of its metrics.
//
// Owner: the run. Threads: one. Failure: as TrainingSession.
class Evaluator {
 public:
  Evaluator(const training::v1::JobSpec& spec, const Dataset& dataset, TrainingSession& session);

  // Measures the weights after `step`. All ranks get the result of rank 0.
  void Measure(int64_t step, RankGroup& ranks);
  // A remark about the last measurement for the job's log; usually "".
  const std::string& note() const { return note_; }
  // Returns whether the weights after `step` are those of the newest evaluation.
  bool Has(int64_t step) const { return state_.newest_step == step; }
  // The newest evaluation; nullopt if no example counted in it or there is none.
  const std::optional<training::v1::Evaluation>& newest() const { return state_.newest; }
  // The held-out error of a world model, from the newest evaluation; nullopt for other models.
  std::optional<training::v1::HeldOutError> held_out_error() const;
  // Returns whether the newest evaluation lowers the rate of a PLATEAU schedule.
  bool AtPlateau() const;
  // Returns why the job should stop now, or "".
  std::string StopReason() const;

  const EvaluationState& state() const { return state_; }
  void LoadState(const EvaluationState& state) { state_ = state; }

 private:
  training::v1::Evaluation Figures(int64_t step);
  // Returns whether patience and min_improvement refer to the held-out loss.
  bool FollowsLoss() const { return spec_.evaluation().metric().empty(); }

  const training::v1::JobSpec& spec_;
  const Dataset& dataset_;
  TrainingSession& session_;
  EvaluationState state_;
  std::string note_;
};

}  // namespace genesis
