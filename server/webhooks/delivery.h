#pragma once

#include <curl/curl.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/base/http_transfer.h"
#include "server/store/webhook_rows.h"
#include "server/webhooks/endpoints.h"

namespace genesis {

// Returns when a delivery whose attempt at `now` failed is tried again: after 5 s, then after twice
// as long each time, up to 2 h, at most 20 % sooner or later, and not before the response's
// Retry-After, of which at most 24 h count. nullopt if that is more than 24 h after the delivery
// was created. `random`: 0 to 1.
std::optional<absl::Time> NextAttempt(const StoredDelivery& delivery, absl::Time now,
                                      absl::Duration retry_after, double random);

// One attempt to deliver an event: a libcurl transfer of at most 15 seconds, over a connection of
// its own, without proxy, redirects, cookies or credentials. Unless the endpoint allows private
// addresses, it connects only to public ones; that is checked for the address of each connection,
// so that the name's DNS server cannot evade it.
//
// Owner: WebhookSender. Threads: one.
class Delivery {
 public:
  Delivery(const WebhookEndpoint& endpoint, StoredDelivery delivery, absl::Time now);
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Null if libcurl could not create it.
  CURL* handle() const { return transfer_.handle(); }
  const StoredDelivery& delivery() const { return delivery_; }

  // Returns the result of the finished transfer. A status of 200 to 299 is a success; after 410
  // there is no other attempt.
  WebhookAttempt Finish(CURLcode code, absl::Time now, double random) const;

 private:
  static curl_socket_t OpenSocket(void* context, curlsocktype purpose, curl_sockaddr* address);
  std::string ErrorText(CURLcode code, long status) const;

  const StoredDelivery delivery_;
  const bool allow_private_;
  std::string refused_;  // Address to which no connection was allowed; empty if none.
  HttpTransfer transfer_;
};

}  // namespace genesis
