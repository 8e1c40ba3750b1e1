#pragma once

#include <torch/torch.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/models/base/model.h"

namespace genesis {

// A dataset of named tensors [N, ...] in memory: float32, float64, float16, int64 or uint8.
// Statistics are computed over all rows, for the fields that are normalized in transitions.
class MemoryDataset : public Dataset {
 public:
  explicit MemoryDataset(const std::vector<std::pair<std::string, torch::Tensor>>& tensors) {
    for (const auto& [name, tensor] : tensors) {
      Field field{.name = name, .type = Type(tensor), .shape = tensor.sizes().slice(1).vec()};
      fields_.push_back(field);
      tensors_.push_back(tensor.contiguous());
      if (name == "observation" || name == "action" || name == "change" || name == "reward") {
        AddStatistics(name, tensor);
      }
    }
    if (FindTensor("change") != nullptr) {
      AddStatistics("next_observation", *FindTensor("observation") + *FindTensor("change"));
    }
  }

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return tensors_.at(0).size(0); }
  int64_t training_size() const override { return size() - size() / 4; }

  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override {
    for (size_t f = 0; f < fields_.size(); ++f) {
      const auto* const from = static_cast<const std::byte*>(tensors_[f].const_data_ptr());
      const size_t bytes = tensors_[f].nbytes() / static_cast<size_t>(size());
      for (size_t i = 0; i < examples.size(); ++i) {
        std::memcpy(out[f] + i * bytes, from + static_cast<size_t>(examples[i]) * bytes, bytes);
      }
    }
    return absl::OkStatus();
  }

  const std::map<std::string, ColumnStatistics>& statistics() const override { return statistics_; }
  const std::vector<float>& priorities() const override { return priorities_; }
  std::string Describe() const override { return "examples in memory"; }

  // Returns examples [begin, end) on the CPU.
  Batch Rows(int64_t begin, int64_t end) const {
    Batch batch;
    for (size_t f = 0; f < fields_.size(); ++f) {
      batch.fields[fields_[f].name] = tensors_[f].slice(0, begin, end);
    }
    for (int64_t i = begin; i < end; ++i) batch.examples.push_back(i);
    return batch;
  }

 private:
  static ElementType Type(const torch::Tensor& tensor) {
    switch (tensor.scalar_type()) {
      case torch::kFloat:
        return ElementType::kFloat32;
      case torch::kDouble:
        return ElementType::kFloat64;
      case torch::kHalf:
        return ElementType::kFloat16;
      case torch::kLong:
        return ElementType::kInt64;
      default:
        return ElementType::kUint8;
    }
  }

  const torch::Tensor* FindTensor(const std::string& name) const {
    for (size_t f = 0; f < fields_.size(); ++f) {
      if (fields_[f].name == name) return &tensors_[f];
    }
    return nullptr;
  }

  void AddStatistics(const std::string& name, const torch::Tensor& tensor) {
    const torch::Tensor rows = tensor.reshape({-1, tensor.size(-1)}).to(torch::kDouble);
    const auto floats = [](const torch::Tensor& t) {
      const torch::Tensor single = t.to(torch::kFloat).contiguous();
      const float* const data = single.const_data_ptr<float>();
      return std::vector<float>(data, data + single.numel());
    };
    torch::Tensor deviation = rows.std(0, /*unbiased=*/false);
    deviation = torch::where(deviation < 1e-6, torch::ones_like(deviation), deviation);
    statistics_[name] = {
        .mean = floats(rows.mean(0)), .deviation = floats(deviation), .constant = {}};
  }

  std::vector<Field> fields_;
  std::vector<torch::Tensor> tensors_;
  std::map<std::string, ColumnStatistics> statistics_;
  std::vector<float> priorities_;
};

}  // namespace genesis
