#include "server/rpc/server_tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <atomic>
#include <string>

namespace genesis {
namespace {

// Credentials whose certificates the C core of gRPC fetches at each handshake. The C++ classes
// offer only files to watch, or certificates that never change.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  ReloadingCredentials(const TlsStore* store, bool client_certificates) : store_(store) {
    const auto request = client_certificates ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
  }
  ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }

  // Unused, because ApiGate authenticates callers.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called by gRPC before each handshake, never concurrently.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& credentials = *static_cast<ReloadingCredentials*>(self);
    const TlsStore::Current current = credentials.store_->current();
    if (credentials.generation_.exchange(current.generation) == current.generation) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {current.material->private_key.c_str(),
                                             current.material->certificate_chain.c_str()};
    // gRPC 1.51 requires a CA even if no client certificate is requested.
    const std::string& ca = current.material->client_ca.empty()
                                ? current.material->certificate_chain
                                : current.material->client_ca;
    *config = grpc_ssl_server_certificate_config_create(ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsStore* const store_;
  std::atomic<uint64_t> generation_{0};
  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingTls(const TlsStore* store,
                                                      bool client_certificates) {
  return std::make_shared<ReloadingCredentials>(store, client_certificates);
}

}  // namespace genesis
