#include "client/channel.h"

#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "base/text/yaml_document.h"
#include "config/settings/listen_address.h"

namespace genesis {
namespace {

using grpc::experimental::ClientInterceptorFactoryInterface;
using grpc::experimental::ClientRpcInfo;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// An interceptor that adds the token to every call. gRPC's own call credentials refuse connections
// without TLS, which is right between machines but too strict on one.
class TokenSender final : public Interceptor {
 public:
  explicit TokenSender(std::string header) : header_(std::move(header)) {}
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", header_});
    }
    methods->Proceed();
  }

 private:
  const std::string header_;
};

class TokenSenders final : public ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenders(const std::string& token) : header_(absl::StrCat("Bearer ", token)) {}
  Interceptor* CreateClientInterceptor(ClientRpcInfo*) override { return new TokenSender(header_); }

 private:
  const std::string header_;
};

bool StaysHere(const std::string& server) {
  if (absl::StartsWith(server, "unix:")) return true;
  const std::optional<HostPort> parsed = ParseHostPort(server);
  return parsed.has_value() && IsLoopback(parsed->host);
}

// Returns gRPC's target. It is a URI, so characters of a path such as '#', '?' and '%' are escaped.
absl::StatusOr<std::string> TargetOf(const std::string& server) {
  absl::string_view path = server;
  if (!absl::ConsumePrefix(&path, "unix:") || absl::StartsWith(path, "//")) return server;
  if (absl::StrContains(path, ',')) {
    return absl::InvalidArgumentError(
        absl::StrCat("the unix socket ", QuoteValue(path),
                     " has a comma, which gRPC takes for the end of an address; give it a path "
                     "without one"));
  }
  std::string target = "unix:";
  for (const char byte : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(byte)) || absl::StrContains("/-._~", byte)) {
      target += byte;
    } else {
      absl::StrAppendFormat(&target, "%%%02X", static_cast<unsigned char>(byte));
    }
  }
  return target;
}

absl::StatusOr<std::string> ReadOptionFile(const std::string& option, const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StrCat(option, ": ", text.status().message()));
}

absl::StatusOr<std::string> ReadToken(const DaemonAddress& address) {
  std::string token = address.token;
  std::string name = "GENESIS_TOKEN";
  if (!address.token_file.empty()) {
    name = "--token-file";
    absl::StatusOr<std::string> text = ReadOptionFile(name, address.token_file);
    if (!text.ok()) return text.status();
    token = *std::move(text);
  }
  absl::StripAsciiWhitespace(&token);
  // A header accepts only printable ASCII without spaces. The message does not show the token.
  if (!std::all_of(token.begin(), token.end(), absl::ascii_isgraph) ||
      (token.empty() && name == "--token-file")) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " holds no token; accepted: one line, as genesisctl token prints it"));
  }
  if (!token.empty() && address.tls_ca.empty() && !StaysHere(address.server)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": the token would travel unencrypted to ", address.server,
                     "; give --tls-ca with the authority of that daemon's certificate"));
  }
  return token;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ReadCredentials(
    const DaemonAddress& address) {
  if (address.tls_cert.empty() != address.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert and --tls-key: one is given without the other; give both or none");
  }
  if (address.tls_ca.empty()) {
    if (address.tls_cert.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError(
        "--tls-cert needs --tls-ca, the authority of the daemon's certificate; give it");
  }
  grpc::SslCredentialsOptions options;
  const std::pair<const char*, std::pair<const std::string*, std::string*>> files[] = {
      {"--tls-ca", {&address.tls_ca, &options.pem_root_certs}},
      {"--tls-cert", {&address.tls_cert, &options.pem_cert_chain}},
      {"--tls-key", {&address.tls_key, &options.pem_private_key}},
  };
  for (const auto& [option, file] : files) {
    if (file.first->empty()) continue;
    absl::StatusOr<std::string> text = ReadOptionFile(option, *file.first);
    if (!text.ok()) return text.status();
    *file.second = *std::move(text);
  }
  return grpc::SslCredentials(options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const DaemonAddress& address,
                                                           grpc::ChannelArguments options) {
  const auto credentials = ReadCredentials(address);
  if (!credentials.ok()) return credentials.status();
  const absl::StatusOr<std::string> token = ReadToken(address);
  if (!token.ok()) return token.status();
  const absl::StatusOr<std::string> target = TargetOf(address.server);
  if (!target.ok()) return target.status();
  // An HTTP proxy cannot reach a daemon that listens on loopback.
  options.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<ClientInterceptorFactoryInterface>> interceptors;
  if (!token->empty()) interceptors.push_back(std::make_unique<TokenSenders>(*token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(*target, *credentials, options,
                                                                 std::move(interceptors));
}

}  // namespace genesis
