#pragma once

#include <string>

#include "absl/status/status.h"
#include "config/settings/settings.h"
#include "server/http/http_message.h"

namespace genesis {

// A check that protects a daemon without authentication from pages of other sites. Such a page
// cannot read responses of http://127.0.0.1, unless its name is pointed there after it loaded (DNS
// rebinding). In that case, the Host header still has that name.
//
// If TLS or tokens guard the API, or --insecure opens it beyond this machine, the operator of the
// network decides on names, and any name is served.
class HostCheck {
 public:
  explicit HostCheck(const Settings& settings);

  // Returns PERMISSION_DENIED unless Host is an address, localhost, the name of this machine or the
  // host in http.listen. A request without Host is allowed, because browsers always send it.
  absl::Status Check(const HttpRequest& request) const;

 private:
  const bool any_;
  const std::string listen_;   // The host in http.listen.
  const std::string machine_;  // HostName in lower case.
};

}  // namespace genesis
