#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/connection_acceptor.h"
#include "server/weights/weights_hub.h"

namespace genesis {

// The daemon's end of the socket over which weights pass as memory descriptors, in the data folder
// and only for the daemon's user. A message with a descriptor is a version from a worker; the
// response is "" or why it is refused. A message without one is the key of a version; the response
// has the version's descriptor, or none if the version is gone.
//
// Owner: the daemon. Threads: its own, which serves one connection, and one message of it, at a
// time. Failure: none after the start; a peer that is silent for two seconds loses its connection.
class WeightsListener {
 public:
  // FAILED_PRECONDITION with hub->socket() and the cause if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<WeightsListener>> Start(WeightsHub* hub);
  ~WeightsListener() { Stop(); }
  WeightsListener(const WeightsListener&) = delete;
  WeightsListener& operator=(const WeightsListener&) = delete;

  // Stops accepting connections. Idempotent.
  void Stop() { acceptor_.Stop(); }

 private:
  explicit WeightsListener(WeightsHub* hub);
  void Serve(int descriptor) const;

  WeightsHub* const hub_;
  ConnectionAcceptor acceptor_;
};

}  // namespace genesis
