#include "tests/trainer/data_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/job/job_spec.h"
#include "tests/trainer/npz_writer.h"

namespace genesis {
namespace {

// An array of SpiralRecords: [N, columns] float32, or [N] with one value per row.
struct Array {
  bool flag = false;  // Bytes instead of floats.
  std::vector<int64_t> shape;
  std::string bytes;

  std::string Text(int64_t row) const {
    if (flag) return bytes[static_cast<size_t>(row)] != 0 ? "true" : "false";
    const bool flat = shape.size() == 1;
    std::vector<std::string> texts(flat ? 1 : static_cast<size_t>(shape[1]));
    for (size_t i = 0; i < texts.size(); ++i) {
      float value = 0;
      const size_t element = static_cast<size_t>(row) * texts.size() + i;
      std::memcpy(&value, bytes.data() + element * sizeof(value), sizeof(value));
      texts[i] = absl::StrFormat("%.9g", value);
    }
    return flat ? texts[0] : absl::StrCat("[", absl::StrJoin(texts, ", "), "]");
  }
};

std::map<std::string, Array> SpiralArrays(int episodes, int length) {
  const int64_t rows = int64_t{episodes} * length;
  std::map<std::string, Array> arrays;
  for (const auto& [record, npy] : SpiralRecords(episodes, length)) {
    Array& array = arrays[record.substr(0, record.find('.'))];
    array.flag = npy.find("|b1") != std::string::npos;
    array.bytes = npy.substr(npy.find('\n') + 1);
    array.shape = {rows};
    if (npy.find(",)") == std::string::npos) {
      array.shape.push_back(static_cast<int64_t>(array.bytes.size() / sizeof(float)) / rows);
    }
  }
  return arrays;
}

}  // namespace

std::string SafetensorsRaw(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

std::string SafetensorsBytes(const std::map<std::string, RawTensor>& tensors) {
  std::vector<std::string> members;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    members.push_back(absl::StrCat("\"", name, "\": {\"dtype\": \"", tensor.type,
                                   "\", \"shape\": [", absl::StrJoin(tensor.shape, ", "),
                                   "], \"data_offsets\": [", data.size(), ", ",
                                   data.size() + tensor.bytes.size(), "]}"));
    data += tensor.bytes;
  }
  return SafetensorsRaw(absl::StrCat("{", absl::StrJoin(members, ", "), "}"), data);
}

std::map<std::string, RawTensor> SpiralTensors(int episodes, int length) {
  std::map<std::string, RawTensor> tensors;
  for (auto& [name, array] : SpiralArrays(episodes, length)) {
    const char* const type = array.flag ? "BOOL" : "F32";
    tensors[name] = {.type = type, .shape = array.shape, .bytes = array.bytes};
  }
  return tensors;
}

std::string SpiralLines(int episodes, int length) {
  const auto arrays = SpiralArrays(episodes, length);
  std::string lines;
  for (int64_t row = 0; row < int64_t{episodes} * length; ++row) {
    const auto text = [&](const char* name) { return arrays.at(name).Text(row); };
    absl::StrAppend(
        &lines, "{\"observation\": ", text("observations"), ", \"action\": ", text("actions"),
        ", \"reward\": ", text("rewards"), ", \"next_observation\": ", text("next_observations"),
        ", \"terminal\": ", text("terminals"), ", \"timeout\": ", text("timeouts"), "}\n");
  }
  return lines;
}

training::v1::JobSpec WorldModelJob(int rollout_steps) {
  training::v1::JobSpec spec;
  spec.mutable_model()->mutable_world_model()->set_rollout_steps(rollout_steps);
  return spec;
}

training::v1::JobSpec TransformerJob(int vocabulary_size, int context_length) {
  training::v1::JobSpec spec;
  spec.mutable_model()->mutable_transformer()->set_vocabulary_size(vocabulary_size);
  spec.mutable_model()->mutable_transformer()->set_context_length(context_length);
  return spec;
}

training::v1::JobSpec RadioUnetJob() {
  training::v1::JobSpec spec;
  spec.mutable_model()->mutable_radio_unet();
  return spec;
}

std::vector<std::string> GatherAll(const Dataset& dataset, const std::vector<int64_t>& examples) {
  std::vector<std::string> columns;
  std::vector<std::byte*> out;
  columns.reserve(dataset.fields().size());
  for (const Field& field : dataset.fields()) {
    columns.emplace_back(examples.size() * static_cast<size_t>(field.bytes()), '\xEE');
    out.push_back(reinterpret_cast<std::byte*>(columns.back().data()));
  }
  const absl::Status status = dataset.Gather(examples, out);
  EXPECT_TRUE(status.ok()) << status;
  return columns;
}

std::vector<int64_t> AllExamples(const Dataset& dataset) {
  std::vector<int64_t> examples(static_cast<size_t>(dataset.size()));
  std::iota(examples.begin(), examples.end(), int64_t{0});
  return examples;
}

}  // namespace genesis
