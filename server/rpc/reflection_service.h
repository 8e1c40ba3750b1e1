#pragma once

#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/api/api_gate.h"

namespace genesis {

// The standard reflection service, for callers with at least the role viewer; gRPC's own one serves
// every client. Its versions differ only in the name of their package. Stateless. Each stream has a
// reactor that deletes itself.
template <typename Service, typename Request, typename Response>
class ReflectionService final : public Service::CallbackService {
 public:
  // `services` are the full names to list in addition to the versions of this service.
  ReflectionService(const ApiGate* gate, std::vector<std::string> services);

  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext* context) override;

 private:
  const ApiGate* const gate_;
  const std::vector<std::string> services_;
};

using ReflectionV1 = ReflectionService<grpc::reflection::v1::ServerReflection,
                                       grpc::reflection::v1::ServerReflectionRequest,
                                       grpc::reflection::v1::ServerReflectionResponse>;
// For clients from before 2023.
using ReflectionV1Alpha = ReflectionService<grpc::reflection::v1alpha::ServerReflection,
                                            grpc::reflection::v1alpha::ServerReflectionRequest,
                                            grpc::reflection::v1alpha::ServerReflectionResponse>;

}  // namespace genesis
