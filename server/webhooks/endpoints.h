#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/event_reads.h"

namespace genesis {

// One entry of webhooks.file.
struct WebhookEndpoint {
  std::string name = {};
  std::string url = {};
  std::string origin = {};  // Start of `url`, such as "https://example.org:8443"; may be logged.
  std::string key = {};     // Key of the signature; secret.
  std::set<std::string> types = {};  // Values of WebhookPayload.type that are sent.
  EventQuery filter = {};            // Owner and labels.
  bool allow_private = false;  // True if http and non-public addresses are allowed.
};

// Parses webhooks.file: a list `endpoints` of at most 16. Also reads the files with their secrets.
// INVALID_ARGUMENT with every error, one per line, each prefixed by "<path>:<line>:<column>: ".
// Error messages contain no secret and no URL.
absl::StatusOr<std::vector<WebhookEndpoint>> ParseWebhooks(const std::string& text,
                                                           const std::string& path);

// Reads and parses the file. Like ReadSecretFile, refuses a file that other users may read. Returns
// no endpoints if `path` is empty.
absl::StatusOr<std::vector<WebhookEndpoint>> LoadWebhooks(const std::string& path);

}  // namespace genesis
