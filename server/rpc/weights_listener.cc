#include "server/rpc/weights_listener.h"

#include <sys/stat.h>

#include <utility>

#include "absl/time/time.h"
#include "base/files/memory_file.h"
#include "base/files/memory_socket.h"
#include "server/base/guard.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr absl::Duration kMaxWeightsSilence = absl::Seconds(2);
constexpr int kMaxWeightsConnections = 4096;

// Returns the response to a version from a worker.
absl::Status TakeVersion(WeightsHub& hub, const MemorySocket::Message& message) {
  absl::StatusOr<std::unique_ptr<MemoryFile>> file = MemoryFile::Open(message.descriptor);
  if (!file.ok()) return file.status();
  training::v1::PublishedWeights weights;
  if (!weights.ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError(
        "the message with a file is not readable; accepted: a PublishedWeights");
  }
  return hub.Put(std::move(weights), *std::move(file));
}

}  // namespace

WeightsListener::WeightsListener(WeightsHub* hub)
    : hub_(hub), acceptor_(kMaxWeightsConnections, [](const std::string& reason) {
        spdlog::warn("a connection for weights is refused: {}", reason);
      }) {}

absl::StatusOr<std::unique_ptr<WeightsListener>> WeightsListener::Start(WeightsHub* hub) {
  absl::StatusOr<ListenSockets> sockets = ListenSockets::Unix(hub->socket(), S_IRUSR | S_IWUSR);
  if (!sockets.ok()) return sockets.status();
  std::unique_ptr<WeightsListener> listener(new WeightsListener(hub));
  auto* const raw = listener.get();
  listener->acceptor_.Add(*std::move(sockets), [raw](int descriptor) {
    Guarded("weights", [&] { raw->Serve(descriptor); }).IgnoreError();
  });
  listener->acceptor_.Start();
  return listener;
}

void WeightsListener::Serve(int descriptor) const {
  MemorySocket socket(descriptor, kMaxWeightsSilence);
  const absl::StatusOr<MemorySocket::Message> message = socket.Receive();
  if (!message.ok()) return;
  if (message->descriptor >= 0) {
    // The worker logs a refusal.
    socket.Send(std::string(TakeVersion(*hub_, *message).message())).IgnoreError();
    return;
  }
  const std::shared_ptr<const HeldWeights> held = hub_->Find(message->bytes);
  socket.Send("", held != nullptr ? held->file->descriptor() : -1).IgnoreError();
}

}  // namespace genesis
