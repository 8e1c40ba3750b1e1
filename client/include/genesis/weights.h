// Reads the weights of a job while it trains, for actors in C++17. Header only, on genesis::proto.
//
//   genesis::WeightsReader reader(channel, "run-1");
//   while (const auto version = reader.Next()) {
//     const genesis::WeightsTensor& weight = version->tensors.at("layers.0.weight");
//     ...
//   }
#pragma once

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "genesis/weights_memory.h"

namespace genesis {

// A parameter or buffer of the model, in C order.
struct WeightsTensor {
  std::string type;  // As a .safetensors file names it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  const char* data = nullptr;
  size_t size_bytes = 0;
  std::shared_ptr<const void> memory;  // Owns the bytes of `data`.
};

// One version of the weights.
struct WeightsVersion {
  // WeightsVersion.number and step of the API. The number only grows; steps may go back.
  int64_t number = 0;
  int64_t step = 0;
  std::map<std::string, WeightsTensor> tensors;  // Keys are the names in state_dict().
};

// The newest weights of a job, version by version. On the daemon's host they are mapped, not
// copied. Threads: one.
class WeightsReader {
 public:
  struct Options {
    double interval_seconds = 1;  // Minimum time between two versions.
    training::v1::WeightsFormat format = training::v1::WEIGHTS_FORMAT_FP32;
    bool average = false;       // Read the moving average (training.ema_decay).
    int64_t since = 0;          // Read only versions above this number.
    bool shared_memory = true;  // Map versions if this process can open the daemon's socket.
    std::string token;          // Sent with each call; empty for none.
    std::chrono::seconds patience{600};  // How long the daemon may be unavailable.
  };

  WeightsReader(const std::shared_ptr<grpc::Channel>& channel, std::string job_id)
      : WeightsReader(channel, std::move(job_id), Options()) {}
  WeightsReader(const std::shared_ptr<grpc::Channel>& channel, std::string job_id, Options options)
      : stub_(training::v1::TrainingService::NewStub(channel)),
        job_id_(std::move(job_id)),
        options_(std::move(options)) {}
  ~WeightsReader() { Abandon(); }

  // Waits for a version newer than the last. Reconnects if the daemon restarts, and waits while the
  // job has no worker. Null after the last version of the job. Throws std::runtime_error with the
  // daemon's message.
  std::shared_ptr<const WeightsVersion> Next() {
    auto deadline = std::chrono::steady_clock::now() + options_.patience;
    for (;;) {
      if (stream_ == nullptr) Open();
      training::v1::WatchWeightsResponse response;
      if (stream_->Read(&response)) {
        deadline = std::chrono::steady_clock::now() + options_.patience;
        if (auto version = Take(std::move(response))) return version;
        continue;
      }
      const grpc::Status status = stream_->Finish();
      stream_.reset();
      if (status.ok()) return nullptr;
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
          std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error(status.error_message());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

 private:
  using Version = std::shared_ptr<WeightsVersion>;

  void Open() {
    training::v1::WatchWeightsRequest request;
    request.set_job_id(job_id_);
    request.set_since(options_.since);
    request.set_interval_seconds(options_.interval_seconds);
    request.set_format(options_.format);
    request.set_average(options_.average);
    request.set_shared_memory(options_.shared_memory);
    context_ = std::make_unique<grpc::ClientContext>();
    if (!options_.token.empty()) {
      context_->AddMetadata("authorization", "Bearer " + options_.token);
    }
    last_.clear();
    stream_ = stub_->WatchWeights(context_.get(), request);
  }

  void Abandon() {
    if (stream_ == nullptr) return;
    context_->TryCancel();
    training::v1::WatchWeightsResponse response;
    while (stream_->Read(&response)) {
    }
    stream_->Finish();
    stream_.reset();
  }

  // Returns the version that the response completes; null if there is none.
  Version Take(training::v1::WatchWeightsResponse response) {
    if (response.has_version()) {
      record_ = response.version();
      file_.clear();
      if (record_.has_memory()) return TakeMemory();
    }
    file_ += response.content();
    if (file_.size() < static_cast<size_t>(record_.size_bytes())) return nullptr;
    if (internal::Crc32c(file_) != record_.crc32c()) {
      throw std::runtime_error("version " + std::to_string(record_.number()) +
                               " of the weights was damaged on its way; read it again");
    }
    const auto file = std::make_shared<const std::string>(std::move(file_));
    return TakeFile(file->data(), file->size(), file);
  }

  Version TakeMemory() {
    bool reached = false;
    size_t size = 0;
    const std::shared_ptr<const void> memory =
        internal::MapWeights(record_.memory(), size, reached);
    if (memory != nullptr) {
      mapped_ = true;
      return TakeFile(static_cast<const char*>(memory.get()), size, memory);
    }
    // A later version has replaced this one and comes next, or the daemon is restarting.
    if (reached || mapped_) return nullptr;
    Abandon();
    options_.shared_memory = false;
    return nullptr;
  }

  // Parses a .safetensors file.
  Version TakeFile(const char* begin, size_t size, const std::shared_ptr<const void>& memory) {
    const auto broken = [] { return std::runtime_error("a version of the weights is damaged"); };
    uint64_t head = 0;
    if (size < sizeof(head)) throw broken();
    std::memcpy(&head, begin, sizeof(head));
    if (head > size - sizeof(head)) throw broken();
    google::protobuf::Struct header;
    if (!google::protobuf::util::JsonStringToMessage(std::string(begin + sizeof(head), head),
                                                     &header)
             .ok()) {
      throw broken();
    }
    const char* const data = begin + sizeof(head) + head;
    const size_t room = size - sizeof(head) - head;
    std::map<std::string, WeightsTensor> tensors;
    for (const auto& [name, value] : header.fields()) {
      if (name == "__metadata__") continue;
      const auto& fields = value.struct_value().fields();
      WeightsTensor& tensor = tensors[name];
      tensor.type = fields.at("dtype").string_value();
      for (const auto& each : fields.at("shape").list_value().values()) {
        tensor.shape.push_back(static_cast<int64_t>(each.number_value()));
      }
      const auto& offsets = fields.at("data_offsets").list_value();
      const auto first = static_cast<size_t>(offsets.values(0).number_value());
      const auto last = static_cast<size_t>(offsets.values(1).number_value());
      if (first > last || last > room) throw broken();
      tensor.data = data + first;
      tensor.size_bytes = last - first;
      tensor.memory = memory;
    }
    for (const std::string& name : record_.unchanged()) tensors[name] = last_.at(name);
    options_.since = record_.number();
    last_ = tensors;
    auto version = std::make_shared<WeightsVersion>();
    version->number = record_.number();
    version->step = record_.step();
    version->tensors = std::move(tensors);
    return version;
  }

  const std::unique_ptr<training::v1::TrainingService::Stub> stub_;
  const std::string job_id_;
  Options options_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<training::v1::WatchWeightsResponse>> stream_;
  training::v1::WeightsVersion record_;  // Describes the file that is coming.
  std::string file_;
  bool mapped_ = false;  // Whether a version was mapped before.
  std::map<std::string, WeightsTensor> last_;
};

}  // namespace genesis
