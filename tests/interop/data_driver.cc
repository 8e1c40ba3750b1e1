// Opens the dataset of a job file, so that Python tests can compare it with the original.
//
//   data_driver JOB OUT       prints one line of JSON: size, training_size, description, fields
//                             (name, type, shape), statistics, priorities; writes every field of
//                             every example to OUT, field by field
//   data_driver --draw JOB    prints examples and weights of 20 batches of the job's prioritized
//                             sampling, one per line; multiplies the priorities of each by 1.5
//   data_driver --write OUT   writes a .safetensors file with every element type
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/job/job_file.h"
#include "config/job/job_spec.h"
#include "trainer/data/dataset.h"
#include "trainer/data/prioritized_sampler.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

std::string Numbers(const std::vector<float>& values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ",",
                                    [](std::string* out, float value) {
                                      absl::StrAppendFormat(out, "%.9g", value);
                                    }),
                      "]");
}

std::string Description(const Dataset& dataset) {
  std::vector<std::string> fields;
  for (const Field& field : dataset.fields()) {
    fields.push_back(absl::StrCat("[\"", field.name, "\",\"", ElementTypeName(field.type), "\",[",
                                  absl::StrJoin(field.shape, ","), "]]"));
  }
  std::vector<std::string> statistics;
  for (const auto& [name, columns] : dataset.statistics()) {
    statistics.push_back(absl::StrCat("\"", name, "\":[", Numbers(columns.mean), ",",
                                      Numbers(columns.deviation), "]"));
  }
  return absl::StrCat("{\"size\":", dataset.size(), ",\"training_size\":", dataset.training_size(),
                      ",\"description\":\"", absl::CEscape(dataset.Describe()), "\",\"fields\":[",
                      absl::StrJoin(fields, ","), "],\"statistics\":{",
                      absl::StrJoin(statistics, ","),
                      "},\"priorities\":", Numbers(dataset.priorities()), "}");
}

absl::Status WriteExamples(const Dataset& dataset, const std::string& path) {
  std::vector<int64_t> examples(static_cast<size_t>(dataset.size()));
  std::iota(examples.begin(), examples.end(), int64_t{0});
  std::vector<std::string> columns;
  std::vector<std::byte*> out;
  columns.reserve(dataset.fields().size());
  for (const Field& field : dataset.fields()) {
    columns.emplace_back(examples.size() * static_cast<size_t>(field.bytes()), '\0');
    out.push_back(reinterpret_cast<std::byte*>(columns.back().data()));
  }
  if (absl::Status status = dataset.Gather(examples, out); !status.ok()) return status;
  std::ofstream file(path, std::ios::binary);
  for (const std::string& column : columns) file << column;
  return file.flush() ? absl::OkStatus() : absl::UnknownError(path + ": cannot be written");
}

absl::Status WriteEveryType(const std::string& path) {
  // The entries reuse these bytes for each element type.
  std::string bytes(64, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 60);
  const std::string flags("\x01\x00\x00\x01", 4);
  std::vector<SafetensorsEntry> entries = {{"flag \"\\\n", ElementType::kBool, {4}, flags.data()},
                                           {"none", ElementType::kFloat32, {0, 3}, nullptr}};
  for (const ElementType type :
       {ElementType::kFloat64, ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16,
        ElementType::kInt64, ElementType::kInt32, ElementType::kInt16, ElementType::kInt8,
        ElementType::kUint8}) {
    entries.push_back({ElementTypeName(type), type, {2, 4}, bytes.data()});
  }
  return WriteSafetensors(path, entries, {{"format", "pt"}, {"note", "a \"b\"\t\u00e9"}});
}

absl::Status Draw(const training::v1::JobSpec& job, const Dataset& dataset) {
  PrioritizedSampler sampler(
      dataset.priorities(),
      {.batch_size = job.training().batch_size(),
       .seed = job.training().seed(),
       .priority_exponent = job.dataset().sampling().priority_exponent(),
       .importance_exponent = job.dataset().sampling().importance_exponent()});
  for (int i = 0; i < 20; ++i, sampler.Advance()) {
    const PrioritizedBatch batch = sampler.Draw();
    std::cout << absl::StrJoin(batch.examples, " ");
    for (const float weight : batch.weights) std::cout << absl::StrFormat(" %.9g", weight);
    std::cout << "\n";
    std::vector<float> priorities;
    for (const int64_t example : batch.examples) {
      priorities.push_back(sampler.priorities()[static_cast<size_t>(example)] * 1.5f);
    }
    sampler.Update(batch.examples, priorities);
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2) return absl::InvalidArgumentError("see the head of data_driver.cc");
  if (arguments[0] == "--write") return WriteEveryType(arguments[1]);
  const bool draw = arguments[0] == "--draw";
  absl::StatusOr<training::v1::JobSpec> job = ReadJobFile(arguments[draw ? 1 : 0]);
  if (!job.ok()) return job.status();
  *job = WithDefaults(*std::move(job), LossScaleSettings());
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(*job);
  if (!dataset.ok()) return dataset.status();
  if (draw) return Draw(*job, **dataset);
  std::cout << Description(**dataset) << std::endl;
  return WriteExamples(**dataset, arguments[1]);
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  const absl::Status status = genesis::Run({argv + 1, argv + argc});
  if (!status.ok()) std::cerr << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
