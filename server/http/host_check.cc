#include "server/http/host_check.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/local_address.h"
#include "base/text/field_error.h"
#include "config/settings/listen_address.h"

namespace genesis {
namespace {

std::string HostOf(const std::string& listen) {
  const std::optional<HostPort> parts = ParseHostPort(listen);
  return parts ? absl::AsciiStrToLower(parts->host) : "";
}

// Returns the host without port, brackets and trailing dot, in lower case.
std::string NameIn(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) return std::string(host.substr(0, host.find(']')));
  host = host.substr(0, host.find(':'));
  return absl::AsciiStrToLower(absl::StripSuffix(host, "."));
}

bool IsAddress(const std::string& host) {
  in6_addr address = {};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

HostCheck::HostCheck(const Settings& settings)
    : any_(!settings.tls.certificate_file.empty() || !settings.auth.tokens_file.empty() ||
           !settings.auth.jwks_file.empty() || !IsLoopback(HostOf(settings.http.listen))),
      listen_(HostOf(settings.http.listen)),
      machine_(absl::AsciiStrToLower(HostName())) {}

absl::Status HostCheck::Check(const HttpRequest& request) const {
  const std::string given = request.Header("host");
  const std::string name = NameIn(given);
  if (any_ || name.empty() || name == "localhost" || name == listen_ || name == machine_ ||
      IsAddress(name)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("Host is ", QuoteValue(given),
                   "; accepted by a daemon without tokens and TLS: an address, "
                   "localhost, ",
                   machine_,
                   " or the name in http.listen; a proxy sends Host: localhost, or set "
                   "auth.tokens_file"));
}

}  // namespace genesis
