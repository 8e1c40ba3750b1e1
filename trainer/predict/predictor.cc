#include "trainer/predict/predictor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/files/memory_file.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/safetensors_types.h"
#include "trainer/models/base/dataset_fields.h"
#include "trainer/predict/served_model.h"
#include "trainer/runtime/job_files.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using training::v1::LoadWeights;
using training::v1::PredictorRequest;
using training::v1::PredictorResponse;
using training::v1::PredictRequest;
using training::v1::PredictResponse;

constexpr int64_t kMaxBatch = 65536;
constexpr int64_t kMaxRows = 1024;
// Largest magnitude up to which float32 holds all whole numbers.
constexpr int64_t kMaxWhole = int64_t{1} << 24;
constexpr char kFloat32[] = "F32";

// Returns the status of `action`, or INTERNAL with the exception that it throws.
template <typename Action>
absl::Status Guarded(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    return absl::InternalError(ExplainException(error).message);
  }
}

// Returns the tensors of a version as views of its file.
absl::StatusOr<NamedTensors> TensorsOf(const training::v1::PublishedWeights& weights,
                                       const MemoryFile& file) {
  uint64_t size = 0;
  for (const training::v1::PublishedTensor& each : weights.tensors()) size += each.size_bytes();
  if (size > file.content().size()) {
    return absl::DataLossError("the file of a version is smaller than its tensors");
  }
  const char* at = file.content().data() + (file.content().size() - size);
  NamedTensors tensors;
  for (const training::v1::PublishedTensor& each : weights.tensors()) {
    const std::vector<int64_t> shape(each.shape().begin(), each.shape().end());
    if (const auto type = SafetensorsType(each.type())) {
      // The tensor is never written, so the cast is safe.
      tensors.emplace_back(each.name(),
                           torch::from_blob(const_cast<char*>(at), shape, ToScalarType(*type)));
    }
    at += each.size_bytes();
  }
  return tensors;
}

// Returns the tensor of a request. INVALID_ARGUMENT if type, shape and elements disagree.
absl::StatusOr<torch::Tensor> Read(const std::string& name, const training::v1::Tensor& tensor) {
  const auto fault = [&name](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("inputs.", QuoteValue(name), " ", what));
  };
  if (!tensor.data().empty() && tensor.values_size() > 0) {
    return fault("has values and data; accepted: one of them");
  }
  const bool bytes = tensor.values_size() == 0;
  const std::string name_of_type = tensor.type().empty() ? kFloat32 : tensor.type();
  const std::optional<ElementType> named = SafetensorsType(name_of_type);
  if (!named.has_value() || (!bytes && *named != ElementType::kFloat32)) {
    return fault(absl::StrCat("has the type ", QuoteValue(tensor.type()),
                              "; accepted: BOOL, U8, I8, I16, I32, I64, F16, BF16, F32 or F64 "
                              "with data, F32 with values"));
  }
  // Read bool as bytes, because a byte other than 0 and 1 would not be a valid bool.
  const torch::ScalarType type = *named == ElementType::kBool ? torch::kByte : ToScalarType(*named);
  const size_t size_of_one = torch::elementSize(type);
  const auto count = bytes ? static_cast<int64_t>(tensor.data().size() / size_of_one)
                           : int64_t{tensor.values_size()};
  int64_t wanted = 1;
  for (const int64_t size : tensor.shape()) {
    // Stop before an overflow: the shape already needs more elements than there are.
    if (size < 1 || wanted > count / size) wanted = -1;
    if (wanted < 0) break;
    wanted *= size;
  }
  const std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  if (shape.empty() || wanted != count || (bytes && tensor.data().size() % size_of_one != 0)) {
    return fault(absl::StrCat(
        "has ",
        bytes ? absl::StrCat(tensor.data().size(), " bytes") : absl::StrCat(count, " values"),
        " for the shape ", SizesText(shape), "; accepted: as many elements of ", name_of_type,
        " as the shape has, in at least one dimension, each at least 1"));
  }
  torch::Tensor read = torch::empty(shape, type);
  std::memcpy(read.mutable_data_ptr(),
              bytes ? static_cast<const void*>(tensor.data().data()) : tensor.values().data(),
              static_cast<size_t>(count) * size_of_one);
  return read;
}

// Returns false if the output has whole numbers that float32 may not represent.
bool IsExact(const torch::Tensor& tensor) {
  return !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) || tensor.numel() == 0 ||
         tensor.to(torch::kLong).abs().max().item<int64_t>() <= kMaxWhole;
}

// Writes an output to `data` if `bytes`, otherwise to `values`. INVALID_ARGUMENT for whole numbers
// that `values`, which are float32, may not represent.
absl::Status Write(const std::string& name, const torch::Tensor& tensor, bool bytes,
                   training::v1::Tensor& to) {
  if (!bytes && !IsExact(tensor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the output ", QuoteValue(name), " has whole numbers above ", kMaxWhole,
                     ", which float32 does not hold; accepted: inputs in data, whose outputs "
                     "have their own types"));
  }
  const torch::Tensor flat = (bytes ? tensor : tensor.to(torch::kFloat)).contiguous();
  to.mutable_shape()->Assign(flat.sizes().begin(), flat.sizes().end());
  if (bytes) {
    to.set_data(flat.const_data_ptr(), flat.nbytes());
    const std::optional<ElementType> type = ToElementType(flat.scalar_type());
    to.set_type(type.has_value() ? SafetensorsTypeName(*type) : "");
  } else {
    const auto* const begin = flat.const_data_ptr<float>();
    to.mutable_values()->Assign(begin, begin + flat.numel());
  }
  return absl::OkStatus();
}

// One call of a request, from its inputs to its response.
struct Call {
  const PredictRequest* request = nullptr;
  BatchTensors inputs;
  int64_t rows = 0;
  PredictorResponse response;

  void Fail(const absl::Status& status) {
    response.set_code(static_cast<int>(status.code()));
    response.set_message(std::string(status.message()));
  }
  // Returns whether the response has numbers as bytes.
  bool wants_bytes() const { return !request->inputs().begin()->second.data().empty(); }
};

// Repeats inputs with a batch of 1. INVALID_ARGUMENT if the batches differ otherwise.
absl::Status Broadcast(Call& call) {
  for (const auto& [name, tensor] : call.inputs) call.rows = std::max(call.rows, tensor.size(0));
  if (call.rows > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs have a batch of ", call.rows, "; accepted: at most ", kMaxBatch));
  }
  for (auto& [name, tensor] : call.inputs) {
    if (tensor.size(0) != call.rows && tensor.size(0) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "inputs.", QuoteValue(name), " has a batch of ", tensor.size(0),
          " and another input one of ", call.rows, "; accepted: ", call.rows, " or 1"));
    }
    std::vector<int64_t> sizes(static_cast<size_t>(tensor.dim()), -1);
    sizes[0] = call.rows;
    tensor = tensor.expand(sizes);
  }
  return absl::OkStatus();
}

absl::Status ReadInputs(const ServedModel& model, Call& call) {
  if (call.request->inputs().empty()) {
    return absl::InvalidArgumentError(
        "inputs: required; the tensors that the model takes, by name");
  }
  for (const auto& [name, tensor] : call.request->inputs()) {
    absl::StatusOr<torch::Tensor> read = Read(name, tensor);
    if (!read.ok()) return read.status();
    call.inputs.emplace(name, *std::move(read));
  }
  if (absl::Status same = Broadcast(call); !same.ok()) return same;
  return model.Check(call.inputs);
}

// Names and shapes of a call's inputs, without the batch dimension. Calls with equal names and
// shapes can be computed as one batch.
using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

Shapes ShapesOf(const BatchTensors& inputs) {
  Shapes shapes;
  for (const auto& [name, tensor] : inputs) {
    shapes.emplace_back(name, tensor.sizes().slice(1).vec());
  }
  return shapes;
}

// The model of this process, and the computation of its predictions.
class Predictor {
 public:
  // Loads a version of the weights. The first one also builds the model.
  absl::Status Load(const LoadWeights& load, int descriptor) {
    if (load.has_spec()) {
      spec_ = load.spec();
      const absl::Status files =
          ResolveJobFiles(load.datasets_root(), load.checkpoint_dir(), spec_);
      if (!files.ok()) return files;
    }
    std::unique_ptr<MemoryFile> file;
    absl::StatusOr<NamedTensors> tensors;
    if (load.has_weights()) {
      absl::StatusOr<std::unique_ptr<MemoryFile>> opened = MemoryFile::Open(descriptor);
      if (!opened.ok()) return opened.status();
      file = *std::move(opened);
      tensors = TensorsOf(load.weights(), *file);
    } else {
      tensors = ReadWeights(load.checkpoint_path());
    }
    if (!tensors.ok()) return tensors.status();
    if (model_ == nullptr) {
      absl::StatusOr<std::unique_ptr<ServedModel>> built = ServedModel::Build(spec_, *tensors);
      if (!built.ok()) return built.status();
      model_ = *std::move(built);
    } else if (absl::Status loaded = model_->Load(*tensors); !loaded.ok()) {
      return loaded;
    }
    version_ = load.weights().version().number();
    step_ = load.has_weights() ? load.weights().version().step() : load.checkpoint_step();
    return absl::OkStatus();
  }

  // Computes the responses to all calls, in their order.
  std::vector<Call> Compute(const PredictorRequest& request) {
    std::vector<Call> calls(static_cast<size_t>(request.calls_size()));
    std::map<Shapes, std::vector<Call*>> batches;
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].request = &request.calls(static_cast<int>(i));
      const absl::Status read = Guarded([&] { return ReadInputs(*model_, calls[i]); });
      if (read.ok()) {
        batches[ShapesOf(calls[i].inputs)].push_back(&calls[i]);
      } else {
        calls[i].Fail(read);
      }
    }
    for (const auto& [shapes, together] : batches) {
      if (Guarded([&] { return ComputeTogether(together); }).ok()) continue;
      // Compute the calls one by one, so that a bad call does not fail the others.
      for (Call* const call : together) {
        call->response.Clear();
        const absl::Status computed = Guarded([&] { return ComputeTogether({call}); });
        if (!computed.ok()) call->Fail(computed);
      }
    }
    return calls;
  }

 private:
  absl::Status ComputeTogether(const std::vector<Call*>& calls) {
    BatchTensors inputs;
    for (const auto& [name, unused] : calls[0]->inputs) {
      std::vector<torch::Tensor> parts;
      for (const Call* const call : calls) parts.push_back(call->inputs.at(name));
      inputs.emplace(name, torch::cat(parts));
    }
    const absl::StatusOr<BatchTensors> outputs = InChunks(inputs);
    if (!outputs.ok()) return outputs.status();
    int64_t begin = 0;
    for (Call* const call : calls) {
      PredictResponse& prediction = *call->response.mutable_prediction();
      prediction.set_version(version_);
      prediction.set_step(step_);
      for (const auto& [name, tensor] : *outputs) {
        const absl::Status written =
            Write(name, tensor.slice(0, begin, begin + call->rows), call->wants_bytes(),
                  (*prediction.mutable_outputs())[name]);
        if (!written.ok()) return written;
      }
      begin += call->rows;
      const auto bytes = static_cast<int64_t>(prediction.ByteSizeLong());
      if (bytes <= kMaxOutputBytes + 65536) continue;
      call->response.clear_prediction();
      call->Fail(absl::InvalidArgumentError(
          absl::StrCat("the outputs have ", bytes, " bytes; accepted: at most ", kMaxOutputBytes,
                       "; send smaller batches")));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<BatchTensors> InChunks(const BatchTensors& inputs) {
    const int64_t rows = inputs.begin()->second.size(0);
    std::map<std::string, std::vector<torch::Tensor>> parts;
    for (int64_t begin = 0; begin < rows; begin += kMaxRows) {
      BatchTensors chunk;
      for (const auto& [name, tensor] : inputs) {
        chunk.emplace(name, tensor.slice(0, begin, std::min(rows, begin + kMaxRows)));
      }
      const absl::StatusOr<BatchTensors> outputs = model_->Predict(chunk);
      if (!outputs.ok()) return outputs;
      for (const auto& [name, tensor] : *outputs) parts[name].push_back(tensor);
    }
    BatchTensors joined;
    for (const auto& [name, list] : parts) {
      joined.emplace(name, list.size() == 1 ? list[0] : torch::cat(list));
    }
    return joined;
  }

  training::v1::JobSpec spec_;
  std::unique_ptr<ServedModel> model_;  // Null before the first weights.
  int64_t version_ = 0;
  int64_t step_ = 0;
};

// Handles one message. Returns an error if it is unreadable or the socket fails.
absl::Status Handle(Predictor& predictor, const MemorySocket::Message& message,
                    MemorySocket& socket) {
  PredictorRequest request;
  if (!request.ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError("the message is not readable; accepted: a PredictorRequest");
  }
  if (request.has_load()) {
    Call load;
    const absl::Status loaded =
        Guarded([&] { return predictor.Load(request.load(), message.descriptor); });
    if (!loaded.ok()) load.Fail(loaded);
    absl::Status sent = socket.Send(load.response.SerializeAsString());
    if (!sent.ok()) return sent;
  }
  if (request.calls().empty()) return absl::OkStatus();
  for (const Call& call : predictor.Compute(request)) {
    absl::Status sent = socket.Send(call.response.SerializeAsString());
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

}  // namespace

int RunPredictor(MemorySocket socket) {
  const torch::NoGradGuard no_grad;
  Predictor predictor;
  for (;;) {
    const absl::StatusOr<MemorySocket::Message> message = socket.Receive();
    if (!message.ok() || !Handle(predictor, *message, socket).ok()) {
      return ToInt(ExitCode::kOk);  // The daemon has closed the socket, or is gone.
    }
  }
}

}  // namespace genesis
