#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainer/compiled/compiled_step.h"

namespace genesis {

// The compiled steps of one job: for each precision mode in use, the matching package of the cache,
// or the reason why there is none. Looks for a package once per mode.
//
// Owner: the job's TrainingSession; specification, model and dataset outlive it. Threads: one.
// Failure: none; an unusable package is reported as the reason.
class CompiledSteps {
 public:
  // `folder` may be empty or missing: then no mode has a compiled step.
  CompiledSteps(std::string folder, const training::v1::JobSpec& spec, const Model& model,
                const Dataset& dataset);

  struct Choice {
    std::unique_ptr<CompiledStep> step;  // Null if there is none.
    // Text for people: "compiled (package 1f2e3d4c5b6a)", or the reason why there is none.
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
