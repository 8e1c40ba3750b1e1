#include "server/rpc/grpc_credentials.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <vector>

#include "server/auth/certificate_name.h"

namespace genesis {
namespace {

// Caches the last name per thread: a thread serves many calls of a connection in a row, and
// comparing certificates is cheaper than parsing them.
absl::StatusOr<std::string> CachedName(const std::string& pem) {
  thread_local std::string last_pem;
  thread_local absl::StatusOr<std::string> last_name = std::string();
  if (pem != last_pem) {
    last_name = NameOfPemCertificate(pem);
    last_pem = pem;
  }
  return last_name;
}

}  // namespace

Credentials CredentialsOf(const grpc::ServerContextBase& context) {
  Credentials credentials;
  const auto read = [&context](const char* name, std::string& value) {
    const auto header = context.client_metadata().find(name);
    if (header == context.client_metadata().end()) return;
    value.assign(header->second.data(), header->second.size());
  };
  read("authorization", credentials.authorization);
  read("traceparent", credentials.traceparent);
  // The handshake has verified the certificate. The name is parsed from it, because gRPC returns
  // only the first of several names.
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    const auto certificates = peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (!certificates.empty()) {
      const absl::StatusOr<std::string> name =
          CachedName(std::string(certificates[0].data(), certificates[0].size()));
      credentials.certificate_fault = name.status();
      if (name.ok()) credentials.certificate = *name;
    }
  }
  credentials.peer = context.peer();
  credentials.is_gone = [&context] { return context.IsCancelled(); };
  return credentials;
}

}  // namespace genesis
