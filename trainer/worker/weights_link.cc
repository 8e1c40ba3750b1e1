#include "trainer/worker/weights_link.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/files/memory_socket.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"

namespace genesis {
namespace {

using training::v1::PublishedWeights;
using training::v1::SendWeightsRequest;
using training::v1::SendWeightsResponse;

constexpr absl::Duration kMaxSilence = absl::Seconds(10);
constexpr std::chrono::minutes kMaxStream{2};
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

absl::Status WeightsLink::Send(const PublishedWeights& weights, const MemoryFile& file) {
  return absl::StartsWith(daemon_.server, "unix:") ? PassOn(weights, file) : Stream(weights, file);
}

absl::Status WeightsLink::PassOn(const PublishedWeights& weights, const MemoryFile& file) const {
  std::string path;
  {
    const absl::MutexLock lock(&mutex_);
    path = socket_;
  }
  absl::StatusOr<MemorySocket> socket = MemorySocket::Connect(path, kMaxSilence);
  if (!socket.ok()) return socket.status();
  const absl::Status sent = socket->Send(weights.SerializeAsString(), file.descriptor());
  if (!sent.ok()) return sent;
  const absl::StatusOr<MemorySocket::Message> response = socket->Receive();
  if (!response.ok()) return response.status();
  if (response->bytes.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(response->bytes);
}

absl::Status WeightsLink::Stream(const PublishedWeights& weights, const MemoryFile& file) {
  if (channel_ == nullptr) {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(daemon_);
    if (!channel.ok()) return channel.status();
    channel_ = *std::move(channel);
  }
  const auto stub = training::v1::WorkerService::NewStub(channel_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kMaxStream);
  SendWeightsResponse response;
  const auto writer = stub->SendWeights(&context, &response);
  SendWeightsRequest request;
  *request.mutable_weights() = weights;
  bool open = true;
  for (std::string_view left = file.content(); open && !left.empty();
       left.remove_prefix(request.content().size())) {
    request.set_content(std::string(left.substr(0, kPieceBytes)));
    open = writer->Write(request);
    request.clear_weights();
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace genesis
