#include "trainer/worker/describe_steps.h"
#include "base/text/enum_names.h"
#include "trainer/models/build_model.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "config/precision/precision.h"
#include "trainer/compiled/compiled_steps.h"
#include "trainer/compiled/step_description.h"
#include "trainer/data/dataset.h"
#include "trainer/models/base/model.h"
#include "trainer/models/base/sample_batch.h"
#include "trainer/precision/policy.h"

namespace genesis {
namespace {

using training::v1::PrecisionMode;

// Returns the integer and Boolean fields of a batch with examples from the whole training part:
// lengths, indices and labels, which random numbers cannot replace. Maps field names to base64 of
// the elements in memory order.
absl::StatusOr<google::protobuf::Struct> IntegersOf(const Dataset& dataset, int64_t batch_size) {
  std::vector<int64_t> examples;
  for (int64_t i = 0; i < batch_size; ++i) {
    examples.push_back(dataset.training_size() * i / batch_size);
  }
  const absl::StatusOr<Batch> batch = SampleBatch(dataset, examples);
  if (!batch.ok()) return batch.status();
  google::protobuf::Struct integers;
  for (const auto& [name, tensor] : batch->fields) {
    if (tensor.is_floating_point()) continue;
    const absl::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()),
                                  tensor.nbytes());
    (*integers.mutable_fields())[name].set_string_value(absl::Base64Escape(bytes));
  }
  return integers;
}

}  // namespace

absl::StatusOr<std::string> DescribeSteps(const training::v1::StartJob& start) {
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(start.spec());
  if (!dataset.ok()) return dataset.status();
  const absl::StatusOr<std::unique_ptr<Model>> model = BuildModel(start.spec(), **dataset);
  if (!model.ok()) return model.status();
  (*model)->To(at::Device(start.precision().device()));
  google::protobuf::Struct result;
  if (start.compiled_dir().empty()) {
    absl::StatusOr<google::protobuf::Struct> integers =
        IntegersOf(**dataset, start.spec().training().batch_size());
    if (!integers.ok()) return integers.status();
    *(*result.mutable_fields())["integers"].mutable_struct_value() = *std::move(integers);
  }
  auto& list = *(*result.mutable_fields())["steps"].mutable_list_value();
  const std::set<PrecisionMode> modes =
      ReachableModes(start.spec().precision(), AllowedModes(start), start.precision().mode());
  CompiledSteps packages(start.compiled_dir(), start.spec(), **model, **dataset);
  for (const PrecisionMode mode : modes) {  // FP32 first.
    const absl::StatusOr<StepDescription> step =
        DescribeStep(start.spec(), **model, **dataset, mode);
    auto& fields = *list.add_values()->mutable_struct_value()->mutable_fields();
    fields["mode"].set_string_value(ShortEnumName(mode));
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
