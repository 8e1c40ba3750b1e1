#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainer/compiled/compiled_step.h"

namespace genesis {

// The compiled steps of one job: for each precision mode that the job comes to, the one of the
// cache that fits, or the reason why there is none. A package is looked for once per mode.
//
// Owner: the job's TrainingSession; specification, model and dataset outlive it. Threads: one.
// Failure: none; what cannot be used is a reason.
class CompiledSteps {
 public:
  // `folder` may be empty, or missing: then there is none for any mode.
  CompiledSteps(std::string folder, const training::v1::JobSpec& spec, const Model& model,
                const Dataset& dataset);

  struct Choice {
    std::unique_ptr<CompiledStep> step;  // Null where there is none.
    // For people: "compiled (package 1f2e3d4c5b6a)", or the reason why there is none.
    std::string text;
  };
  const Choice& For(training::v1::PrecisionMode mode);

 private:
  Choice Choose(training::v1::PrecisionMode mode) const;

  const std::string folder_;
  const training::v1::JobSpec& spec_;
  const Model& model_;
  const Dataset& dataset_;
  std::map<training::v1::PrecisionMode, Choice> choices_;
};

}  // namespace genesis
