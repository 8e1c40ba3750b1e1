#include "server/webhooks/delivery.h"

#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "base/version.h"
#include "genesis/training/v1/webhook.pb.h"
#include "server/rest/api_json.h"
#include "server/webhooks/public_address.h"
#include "server/webhooks/signature.h"

namespace genesis {
namespace {

constexpr absl::Duration kFirstDelay = absl::Seconds(5);
constexpr absl::Duration kMaxDelay = absl::Hours(2);
constexpr absl::Duration kMaxAge = absl::Hours(24);
constexpr long kTimeoutSeconds = 15;
constexpr size_t kMaxResponse = size_t{64} << 10U;
constexpr long kGone = 410;

std::string BodyOf(const training::v1::JobEvent& event) {
  training::v1::WebhookPayload payload;
  payload.set_type(EventType(event));
  *payload.mutable_timestamp() = event.time();
  *payload.mutable_data() = event;
  return std::string(absl::StripTrailingAsciiWhitespace(ToJsonLine(payload)));
}

}  // namespace

std::optional<absl::Time> NextAttempt(const StoredDelivery& delivery, absl::Time now,
                                      absl::Duration retry_after, double random) {
  const absl::Duration delay =
      std::min(kFirstDelay * std::pow(2, std::min(delivery.attempts, 20)), kMaxDelay);
  const absl::Time next =
      now + std::max(delay * (0.8 + 0.4 * random), std::min(retry_after, kMaxAge));
  return next <= delivery.create_time + kMaxAge ? std::optional(next) : std::nullopt;
}

Delivery::Delivery(const WebhookEndpoint& endpoint, StoredDelivery delivery, absl::Time now)
    : delivery_(std::move(delivery)),
      allow_private_(endpoint.allow_private),
      body_(BodyOf(delivery_.event)),
      easy_(curl_easy_init()) {
  if (easy_ == nullptr) return;
  const std::string id = WebhookId(delivery_.event);
  const int64_t timestamp = absl::ToUnixSeconds(now);
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  for (const std::string& header :
       {absl::StrCat("webhook-id: ", id), absl::StrCat("webhook-timestamp: ", timestamp),
        absl::StrCat("webhook-signature: ", SignWebhook(endpoint.key, id, timestamp, body_)),
        // Otherwise libcurl waits for "100 Continue" before it sends a large body.
        std::string("Expect:")}) {
    headers = curl_slist_append(headers, header.c_str());
  }
  headers_.reset(headers);
  const auto set = [this](CURLoption option, auto value) {
    curl_easy_setopt(easy_.get(), option, value);
  };
  set(CURLOPT_URL, endpoint.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, endpoint.allow_private ? "https,http" : "https");
  set(CURLOPT_HTTPHEADER, headers_.get());
  set(CURLOPT_USERAGENT, absl::StrCat("genesisd/", kVersion).c_str());
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
  set(CURLOPT_POSTFIELDS, body_.c_str());
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  // A connection of an endpoint that allows private addresses must not serve another endpoint.
  set(CURLOPT_FRESH_CONNECT, 1L);
  set(CURLOPT_FORBID_REUSE, 1L);
  set(CURLOPT_OPENSOCKETFUNCTION, &Delivery::OpenSocket);
  set(CURLOPT_OPENSOCKETDATA, this);
  set(CURLOPT_WRITEFUNCTION, &Delivery::Discard);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_TIMEOUT, kTimeoutSeconds);
  // A name that is being resolved must delay neither other deliveries nor the end of the daemon.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, message_);
  set(CURLOPT_PRIVATE, this);
}

curl_socket_t Delivery::OpenSocket(void* context, curlsocktype, curl_sockaddr* address) {
  auto& self = *static_cast<Delivery*>(context);
  if (!self.allow_private_ && !IsPublicAddress(address->addr)) {
    self.refused_ = AddressText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t Delivery::Discard(char*, size_t, size_t size, void* context) {
  size_t& bytes = static_cast<Delivery*>(context)->response_bytes_;
  bytes += size;
  return bytes <= kMaxResponse ? size : CURL_WRITEFUNC_ERROR;
}

std::string Delivery::ErrorText(CURLcode code, long status) const {
  if (status >= 300 && status < 400) {
    return absl::StrCat("HTTP ", status, ": redirects are not followed; name the final address");
  }
  if (status != 0 && (status < 200 || status >= 300)) return absl::StrCat("HTTP ", status);
  if (!refused_.empty() && code == CURLE_COULDNT_CONNECT) {
    return absl::StrCat("the address ", refused_,
                        " is not public; name another, or set allow_private: true");
  }
  return OneLine(message_[0] != '\0' ? message_ : curl_easy_strerror(code), kMaxNameBytes);
}

WebhookAttempt Delivery::Finish(CURLcode code, absl::Time now, double random) const {
  long status = 0;
  curl_off_t retry_after = 0;
  curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(easy_.get(), CURLINFO_RETRY_AFTER, &retry_after);
  WebhookAttempt attempt{.number = delivery_.number};
  // The status accepts the event, whatever becomes of the body.
  attempt.delivered = status >= 200 && status < 300;
  if (attempt.delivered) return attempt;
  attempt.error = ErrorText(code, status);
  if (status != kGone) {
    attempt.next_attempt = NextAttempt(delivery_, now, absl::Seconds(retry_after), random);
  }
  return attempt;
}

}  // namespace genesis
