#pragma once

#include <string>
#include <vector>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/api/api_gate.h"

namespace genesis {

// The standard reflection service, for callers with at least the role viewer; gRPC's own one serves
// every client. Stateless. Each stream has a reactor that deletes itself.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::CallbackService {
 public:
  // `services` are the full names to list in addition to this service.
  ReflectionService(const ApiGate* gate, std::vector<std::string> services);

  grpc::ServerBidiReactor<grpc::reflection::v1alpha::ServerReflectionRequest,
                          grpc::reflection::v1alpha::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const ApiGate* const gate_;
  const std::vector<std::string> services_;
};

}  // namespace genesis
