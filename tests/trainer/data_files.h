#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// One tensor of a .safetensors file, its elements as bytes.
struct RawTensor {
  std::string type;  // "F32"
  std::vector<int64_t> shape;
  std::string bytes;
};

// A sound file, composed without the writer under test.
std::string SafetensorsBytes(const std::map<std::string, RawTensor>& tensors);
// The length, then `header` as it is, then `data`.
std::string SafetensorsRaw(const std::string& header, const std::string& data);

// The transitions of SpiralRecords (npz_writer.h) in the two other formats.
std::map<std::string, RawTensor> SpiralTensors(int episodes, int length);
std::string SpiralLines(int episodes, int length);

// Job specifications as an integrator hands them over: with defaults.
training::v1::JobSpec WorldModelJob(int rollout_steps = 1);
training::v1::JobSpec TransformerJob(int vocabulary_size, int context_length);
training::v1::JobSpec RadioUnetJob();

// Every field of some examples, as bytes.
std::vector<std::string> GatherAll(const Dataset& dataset, const std::vector<int64_t>& examples);
// 0 to size - 1.
std::vector<int64_t> AllExamples(const Dataset& dataset);
// A field of some examples as numbers of type T.
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
