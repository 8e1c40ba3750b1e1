#pragma once

#include <string>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/api/api_gate.h"

namespace genesis {

// The standard reflection service, for callers with at least the role viewer: gRPC's own serves
// every client. Stateless; each stream has a reactor, which deletes itself.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // `services`: full names to list in addition to this one.
  ReflectionService(const ApiGate* gate, std::vector<std::string> services);

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const ApiGate* const gate_;
  const std::vector<std::string> services_;
};

}  // namespace genesis
