#include "trainer/run/same_inputs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files/crc32c.h"
#include "base/files/sha256.h"
#include "base/text/text.h"
#include "trainer/models/base/dataset_fields.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

// Size of the sample: at most these examples and bytes, but at least two examples.
constexpr int64_t kMaxExamples = 64;
constexpr int64_t kMaxSampleBytes = int64_t{16} << 20;

// Returns evenly spaced examples, including the first and the last.
std::vector<int64_t> Sample(const Dataset& dataset) {
  int64_t bytes = 1;
  for (const Field& field : dataset.fields()) bytes += field.bytes();
  const int64_t size = dataset.size();
  const int64_t count =
      std::min(size, std::clamp<int64_t>(kMaxSampleBytes / bytes, 2, kMaxExamples));
  std::vector<int64_t> examples;
  for (int64_t i = 0; i < count; ++i) {
    examples.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  }
  return examples;
}

std::string ChecksumOf(const Dataset& dataset) {
  const std::vector<int64_t> examples = Sample(dataset);
  std::vector<std::vector<std::byte>> values;
  std::vector<std::byte*> out;
  for (const Field& field : dataset.fields()) {
    values.emplace_back(examples.size() * static_cast<size_t>(field.bytes()));
    out.push_back(values.back().data());
  }
  Require(dataset.Gather(examples, out), training::v1::FAILURE_CAUSE_DATA);
  uint32_t crc = 0;
  for (const auto& value : values) crc = Crc32c(crc, value.data(), value.size());
  return absl::StrFormat("%08x", crc);
}

// Returns "" if the model is not a file, or if the file cannot be read, which BuildModel reports.
std::string ModuleChecksum(const training::v1::ModelSpec& model) {
  const std::string& path = model.exported().path();
  return std::ifstream(path).good() ? Sha256HexOfFile(path) : "";
}

// A value that must be the same on all ranks.
struct Input {
  const char* name;
  std::string value;
  training::v1::FailureCause cause;
};

}  // namespace

void RequireSameInputs(const training::v1::JobSpec& spec, const Dataset& dataset,
                       RankGroup& ranks) {
  if (ranks.alone()) return;
  const auto data = spec.dataset().has_replay() ? training::v1::FAILURE_CAUSE_WORKER_EXIT
                                                : training::v1::FAILURE_CAUSE_DATA;
  const std::vector<Input> inputs = {
      {"checksum of the module's file", ModuleChecksum(spec.model()),
       training::v1::FAILURE_CAUSE_CONFIG},
      {"number of examples", absl::StrCat(dataset.size()), data},
      {"number of examples to train on", absl::StrCat(dataset.training_size()), data},
      {"fields of the data", DatasetFields(spec, dataset, "").WhatThereIs(), data},
      {"checksum of a sample of the examples", ChecksumOf(dataset), data}};
  std::vector<std::string> values;
  for (const Input& input : inputs) values.push_back(input.value);
  const std::vector<std::string> all = ranks.FromAll(absl::StrJoin(values, "\n"));
  const std::vector<std::string> first = absl::StrSplit(all.front(), '\n');
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> told = absl::StrSplit(all[rank], '\n');
    for (size_t i = 0; i < inputs.size() && i < std::min(first.size(), told.size()); ++i) {
      if (told[i] == first[i] || told[i].empty() || first[i].empty()) continue;
      throw RunFailure{inputs[i].cause,
                       absl::StrCat("rank ", rank, " has other files than rank 0 (", inputs[i].name,
                                    ": ", OneLine(told[i], kMaxNameBytes),
                                    ", that of rank 0: ", OneLine(first[i], kMaxNameBytes),
                                    "); give all ranks the same data and the same module")};
    }
  }
}

std::unique_ptr<Dataset> OpenSameData(const training::v1::JobSpec& spec, RankGroup& ranks) {
  absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec);
  Require(dataset.status(), training::v1::FAILURE_CAUSE_DATA);
  RequireSameInputs(spec, **dataset, ranks);
  return *std::move(dataset);
}

}  // namespace genesis
