#pragma once

#include <string>

#include "absl/status/status.h"
#include "config/settings/settings.h"
#include "server/http/http_message.h"

namespace genesis {

// Protects a daemon without authentication from pages of other sites. Such a page cannot read
// responses of http://127.0.0.1, unless it points its own name there after it was loaded (DNS
// rebinding). The Host header then still has that name.
//
// If TLS or tokens guard the API, or --insecure opens it beyond this machine, names belong to the
// operator of the network, and any name is served.
class HostCheck {
 public:
  explicit HostCheck(const Settings& settings);

  // PERMISSION_DENIED unless Host is an address, localhost, the name of this machine or the one in
  // http.listen. A request without Host does not come from a browser.
  absl::Status Check(const HttpRequest& request) const;

 private:
  const bool any_;
  const std::string listen_;   // The host in http.listen.
  const std::string machine_;  // Result of gethostname.
};

}  // namespace genesis
