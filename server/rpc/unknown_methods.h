#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <utility>

namespace genesis {

// A service that refuses calls of unknown methods, as gRPC itself does, and reports each of them.
//
// Owner: the listener. Threads: gRPC's, which call `on_call`.
class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  explicit UnknownMethods(std::function<void()> on_call) : on_call_(std::move(on_call)) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  const std::function<void()> on_call_;
};

}  // namespace genesis
