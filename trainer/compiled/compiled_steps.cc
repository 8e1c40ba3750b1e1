#include "trainer/compiled/compiled_steps.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/compiled/package_cache.h"

namespace genesis {
namespace {

// Returns enough of a key to find the file.
std::string Short(const std::string& key) { return key.substr(0, 12); }

CompiledSteps::Choice None(std::string reason) {
  return {.step = nullptr, .text = std::move(reason)};
}

}  // namespace

CompiledSteps::CompiledSteps(std::string folder, const training::v1::JobSpec& spec,
                             const Model& model, const Dataset& dataset)
    : folder_(std::move(folder)), spec_(spec), model_(model), dataset_(dataset) {}

const CompiledSteps::Choice& CompiledSteps::For(training::v1::PrecisionMode mode) {
  const auto known = choices_.find(mode);
  if (known != choices_.end()) return known->second;
  return choices_.emplace(mode, Choose(mode)).first->second;
}

CompiledSteps::Choice CompiledSteps::Choose(training::v1::PrecisionMode mode) const {
  if (folder_.empty()) return None("no folder of compiled steps was named");
  // Avoids computing a key if no packages were compiled.
  std::error_code missing;
  if (std::filesystem::directory_iterator(folder_, missing) ==
      std::filesystem::directory_iterator()) {
    return None(absl::StrCat(folder_, " holds no packages; genesisctl compile makes them"));
  }
  const absl::StatusOr<StepDescription> description = DescribeStep(spec_, model_, dataset_, mode);
  if (!description.ok()) return None(std::string(description.status().message()));
  const absl::StatusOr<std::string> path = FindPackage(folder_, description->key);
  if (absl::IsNotFound(path.status())) {
    return None(absl::StrCat(folder_, " has no package for this step (key ",
                             Short(description->key), "); genesisctl compile makes one"));
  }
  if (!path.ok()) return None(std::string(path.status().message()));
  absl::StatusOr<std::unique_ptr<CompiledStep>> step =
      CompiledStep::Load(*path, *description, model_);
  if (!step.ok()) return None(std::string(step.status().message()));
  return {.step = *std::move(step),
          .text = absl::StrCat("compiled (package ", Short(description->key), ")")};
}

}  // namespace genesis
