#include "server/http/http_tls.h"

#include <spdlog/spdlog.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <exception>
#include <memory>

namespace genesis {
namespace {

namespace ssl = boost::asio::ssl;

std::shared_ptr<ssl::context> MakeContext(const TlsMaterial& material) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  // Same minimum as gRPC.
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->use_certificate_chain(boost::asio::buffer(material.certificate_chain));
  context->use_private_key(boost::asio::buffer(material.private_key), ssl::context::pem);
  if (!material.client_ca.empty()) {
    context->add_certificate_authority(boost::asio::buffer(material.client_ca));
    // As in gRPC, clients without certificate may connect, e.g. to check health; the gate decides.
    context->set_verify_mode(ssl::verify_peer);
  }
  return context;
}

// A cache of the context of the newest usable material.
class Contexts {
 public:
  explicit Contexts(const TlsStore* store) : store_(store) {}

  std::shared_ptr<ssl::context> Get() {
    const TlsStore::Current current = store_->current();
    if (current.generation == generation_) return context_;
    generation_ = current.generation;
    try {
      context_ = MakeContext(*current.material);
    } catch (const std::exception& error) {
      spdlog::error("HTTPS keeps its current certificate: {}", error.what());
    }
    return context_;
  }

 private:
  const TlsStore* const store_;
  uint64_t generation_ = 0;
  std::shared_ptr<ssl::context> context_;
};

}  // namespace

HttpTlsSource MakeHttpTls(const TlsStore* store) {
  return [contexts = std::make_shared<Contexts>(store)] { return contexts->Get(); };
}

}  // namespace genesis
