#pragma once

#include <string>

#include "absl/status/status.h"
#include "config/settings/settings.h"
#include "server/http/http_message.h"

namespace genesis {

// Keeps pages of other sites away from a daemon that asks nobody who they are. Such a page cannot
// read what http://127.0.0.1 answers, but a name of its own that it lets point there after it was
// loaded (DNS rebinding) it can; the Host header then still has that name.
//
// Where TLS or tokens guard the API, and where --insecure opens it beyond this machine, names
// belong to whoever runs the network, and any is served.
class HostCheck {
 public:
  explicit HostCheck(const Settings& settings);

  // PERMISSION_DENIED unless Host is an address, localhost, the name of this machine or the one in
  // http.listen. A request without one comes from no browser.
  absl::Status Check(const HttpRequest& request) const;

 private:
  const bool any_;
  const std::string listen_;   // The host in http.listen.
  const std::string machine_;  // As gethostname says.
};

}  // namespace genesis
