#include "trainer/worker/describe_steps.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <set>

#include "config/precision/precision.h"
#include "trainer/compiled/compiled_steps.h"
#include "trainer/compiled/step_description.h"
#include "trainer/data/dataset.h"
#include "trainer/models/model.h"
#include "trainer/precision/policy.h"

namespace genesis {

using training::v1::PrecisionMode;

absl::StatusOr<std::string> DescribeSteps(const training::v1::StartJob& start) {
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(start.spec());
  if (!dataset.ok()) return dataset.status();
  const absl::StatusOr<std::unique_ptr<Model>> model = BuildModel(start.spec(), **dataset);
  if (!model.ok()) return model.status();
  (*model)->To(at::Device(start.precision().device()));
  google::protobuf::Struct result;
  auto& list = *(*result.mutable_fields())["steps"].mutable_list_value();
  const std::set<PrecisionMode> modes =
      ReachableModes(start.spec().precision(), AllowedModes(start), start.precision().mode());
  CompiledSteps packages(start.compiled_dir(), start.spec(), **model, **dataset);
  for (const PrecisionMode mode : modes) {  // FP32 first.
    const absl::StatusOr<StepDescription> step =
        DescribeStep(start.spec(), **model, **dataset, mode);
    auto& fields = *list.add_values()->mutable_struct_value()->mutable_fields();
    fields["mode"].set_string_value(PrecisionName(mode));
    if (!step.ok()) {
      fields["refused"].set_string_value(std::string(step.status().message()));
      continue;
    }
    fields["key"].set_string_value(step->key);
    fields["text"].set_string_value(step->text);
    if (!start.compiled_dir().empty()) {
      const CompiledSteps::Choice& choice = packages.For(mode);
      fields["compiled"].set_bool_value(choice.step != nullptr);
      fields["execution"].set_string_value(choice.text);
    }
    if (start.spec().model().has_torchscript()) {
      fields["module"].set_string_value(start.spec().model().torchscript().path());
    }
    if (start.spec().model().has_exported()) {
      fields["exported"].set_string_value(start.spec().model().exported().path());
    }
  }
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(result, &text);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return text;
}

}  // namespace genesis
