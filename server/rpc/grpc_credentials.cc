#include "server/rpc/grpc_credentials.h"

#include <memory>
#include <vector>

namespace genesis {

Credentials CredentialsOf(const grpc::ServerContextBase& context) {
  Credentials credentials;
  const auto header = context.client_metadata().find("authorization");
  if (header != context.client_metadata().end()) {
    credentials.authorization.assign(header->second.data(), header->second.size());
  }
  // Verified already, or the connection would not be.
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    const std::vector<grpc::string_ref> names = peer->FindPropertyValues("x509_common_name");
    if (!names.empty()) credentials.certificate.assign(names[0].data(), names[0].size());
  }
  credentials.peer = context.peer();
  return credentials;
}

}  // namespace genesis
