#include "trainer/checkpoint/checkpoint_writer.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <string>
#include <utility>

#include "config/precision.h"
#include "trainer/checkpoint/durable_file.h"

namespace genesis {
namespace {

using c10::AnyType;
using c10::IntType;
using c10::IValue;
using c10::StringType;
using c10::impl::GenericDict;
using c10::impl::GenericList;

constexpr int64_t kFormatVersion = 1;

// Typed AnyType: the pickler writes other lists and dicts with a tag that only LibTorch reads.
GenericDict NewDict() { return GenericDict(StringType::get(), AnyType::get()); }

IValue ModelDict(const TrainingState& state) {
  GenericDict dict = NewDict();
  for (const auto& [name, tensor] : state.model) dict.insert(name, tensor);
  return dict;
}

// Every key that torch.optim.AdamW's load_state_dict and its next step() look at.
IValue ParameterGroup(const TrainingState& state) {
  const AdamWOptions& options = state.optimizer_options;
  GenericList parameters(AnyType::get());
  for (size_t i = 0; i < state.optimizer.size(); ++i) {
    parameters.push_back(static_cast<int64_t>(i));
  }
  GenericDict group = NewDict();
  group.insert("lr", options.learning_rate);
  group.insert("betas", c10::ivalue::Tuple::create(options.beta1, options.beta2));
  group.insert("eps", options.epsilon);
  group.insert("weight_decay", options.weight_decay);
  group.insert("amsgrad", false);
  group.insert("maximize", false);
  group.insert("foreach", IValue());
  group.insert("capturable", false);
  group.insert("differentiable", false);
  group.insert("fused", true);
  group.insert("decoupled_weight_decay", true);
  group.insert("params", parameters);
  return group;
}

IValue OptimizerDict(const TrainingState& state) {
  GenericDict parameters(IntType::get(), AnyType::get());
  for (size_t i = 0; i < state.optimizer.size(); ++i) {
    GenericDict entry = NewDict();
    entry.insert("step", state.optimizer[i].step);
    entry.insert("exp_avg", state.optimizer[i].exp_avg);
    entry.insert("exp_avg_sq", state.optimizer[i].exp_avg_sq);
    parameters.insert(static_cast<int64_t>(i), entry);
  }
  GenericList groups(AnyType::get());
  groups.push_back(ParameterGroup(state));
  GenericDict dict = NewDict();
  dict.insert("state", parameters);
  dict.insert("param_groups", groups);
  return dict;
}

IValue ScalerDict(const TrainingState& state) {
  GenericDict dict = NewDict();
  if (!state.scaler) return dict;
  dict.insert("scale", state.scaler->scale);
  dict.insert("growth_factor", state.scaler->growth_factor);
  dict.insert("backoff_factor", state.scaler->backoff_factor);
  dict.insert("growth_interval", state.scaler->growth_interval);
  dict.insert("_growth_tracker", state.scaler->growth_tracker);
  return dict;
}

IValue PositionDict(const TrainingState& state) {
  const RunPosition& position = state.position;
  GenericDict dict = NewDict();
  dict.insert("format_version", kFormatVersion);
  dict.insert("step", position.step);
  dict.insert("samples", position.samples);
  dict.insert("skipped_steps", position.skipped_steps);
  dict.insert("reduced_precision_steps", position.reduced_precision_steps);
  dict.insert("epoch", position.sampler.epoch);
  dict.insert("batch_in_epoch", position.sampler.batch);
  // As text: a seed has 64 bits without sign.
  dict.insert("seed", std::to_string(position.seed));
  dict.insert("loss", position.loss);
  dict.insert("mode", PrecisionName(position.mode));
  dict.insert("rng_state", state.rng_state);
  return dict;
}

IValue Root(const TrainingState& state) {
  GenericDict root = NewDict();
  root.insert("model_state_dict", ModelDict(state));
  root.insert("optimizer_state_dict", OptimizerDict(state));
  root.insert("scaler_state_dict", ScalerDict(state));
  root.insert("genesis", PositionDict(state));
  return root;
}

}  // namespace

absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path) {
  absl::StatusOr<DurableFile> file = DurableFile::Create(path);
  if (!file.ok()) return file.status();

  std::string pickle;
  int64_t tensors = 0;
  torch::jit::Pickler pickler(
      [&](const char* data, size_t size) { pickle.append(data, size); }, nullptr, nullptr, nullptr,
      [&](const at::Tensor&) { return std::to_string(tensors++); }, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(Root(state));
  pickler.stop();

  {
    // A short write is never reported here, for LibTorch would throw from a destructor: the file
    // keeps its first error for Commit.
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t size) {
      file->Write(data, size);
      return size;
    });
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    archive.writeRecord("byteorder", "little", 6);
    int64_t index = 0;
    for (const at::Tensor& tensor : pickler.tensorData()) {
      const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
      archive.writeRecord("data/" + std::to_string(index++), data.data(), data.sizeInBytes());
    }
    archive.writeEndOfFile();
  }
  if (absl::Status status = file->Commit(); !status.ok()) return status;
  return static_cast<int64_t>(file->size());
}

}  // namespace genesis
