#pragma once

#include <cstdint>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A `Schedule` is the learning rate over the applied steps of a job: linear interpolation between
// the points of a table, or a linear warm-up, then constant, linear or cosine decay to
// final_fraction at the last step, or a factor for each plateau reached. Equivalent to
// torch.optim.lr_scheduler.LambdaLR, which multiplies the rate of each group:
//
//   def factor(applied, reductions):           # steps applied and plateaus reached before this one
//       if kind is TABLE: return numpy.interp(applied, steps, factors)
//       if applied < warmup: return (applied + 1) / warmup
//       if kind is PLATEAU: return max(plateau_factor ** reductions, final)
//       x = min((applied - warmup) / max(total - 1 - warmup, 1), 1)
//       shape = {CONSTANT: 1, LINEAR: 1 - x, COSINE: (1 + cos(pi * x)) / 2}[kind]
//       return final + (1 - final) * shape
//
// Threads: immutable.
class Schedule {
 public:
  Schedule(const training::v1::OptimizerSpec& spec, int64_t total_steps);

  // The multiplier of all learning rates in the step after `applied` applied steps and, of a
  // PLATEAU schedule, `reductions` plateaus.
  double Factor(int64_t applied, int64_t reductions) const;
  // The learning rate in that step for parameters whose group sets no rate.
  double LearningRate(int64_t applied, int64_t reductions) const;
  // Returns whether the factor is the same for every step.
  bool constant() const;

 private:
  training::v1::ScheduleSpec spec_;
  double learning_rate_;
  int64_t total_steps_;
};

}  // namespace genesis
