#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// A tensor of a .safetensors file, with its elements as bytes.
struct RawTensor {
  std::string type;  // E.g. "F32".
  std::vector<int64_t> shape;
  std::string bytes;
};

// Returns a valid file, built without the writer under test.
std::string SafetensorsBytes(const std::map<std::string, RawTensor>& tensors);
// Returns the length of `header`, then `header` unchanged, then `data`.
std::string SafetensorsRaw(const std::string& header, const std::string& data);

// Return the transitions of SpiralRecords (npz_writer.h) in the two other file formats.
std::map<std::string, RawTensor> SpiralTensors(int episodes, int length);
std::string SpiralLines(int episodes, int length);

// Return job specifications as clients submit them, but with defaults filled in.
training::v1::JobSpec WorldModelJob(int rollout_steps = 1);
training::v1::JobSpec TransformerJob(int vocabulary_size, int context_length);
training::v1::JobSpec RadioUnetJob();

// Returns every field of some examples, as bytes.
std::vector<std::string> GatherAll(const Dataset& dataset, const std::vector<int64_t>& examples);
// Returns 0 to size - 1.
std::vector<int64_t> AllExamples(const Dataset& dataset);
// Returns a field of some examples as numbers of type T.
template <typename T>
std::vector<T> FieldValues(const Dataset& dataset, const std::vector<int64_t>& examples,
                           const std::string& name) {
  const std::vector<std::string> fields = GatherAll(dataset, examples);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (dataset.fields()[i].name != name) continue;
    const T* const first = reinterpret_cast<const T*>(fields[i].data());
    return std::vector<T>(first, first + fields[i].size() / sizeof(T));
  }
  return {};
}

}  // namespace genesis
