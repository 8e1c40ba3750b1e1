#include "server/webhooks/delivery.h"

#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text/text.h"
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
      transfer_(kMaxResponse) {
  if (handle() == nullptr) return;
  const std::string id = WebhookId(delivery_.event);
  const int64_t timestamp = absl::ToUnixSeconds(now);
  std::string body = BodyOf(delivery_.event);
  transfer_.AddHeader(absl::StrCat("webhook-id: ", id));
  transfer_.AddHeader(absl::StrCat("webhook-timestamp: ", timestamp));
  transfer_.AddHeader(
      absl::StrCat("webhook-signature: ", SignWebhook(endpoint.key, id, timestamp, body)));
  transfer_.SetBody(std::move(body), "application/json");
  transfer_.Set(CURLOPT_URL, endpoint.url.c_str());
  transfer_.Set(CURLOPT_PROTOCOLS_STR, endpoint.allow_private ? "https,http" : "https");
  transfer_.Set(CURLOPT_PROXY, "");
  // A connection of an endpoint that allows private addresses must not serve another endpoint.
  transfer_.Set(CURLOPT_FRESH_CONNECT, 1L);
  transfer_.Set(CURLOPT_FORBID_REUSE, 1L);
  transfer_.Set(CURLOPT_OPENSOCKETFUNCTION, &Delivery::OpenSocket);
  transfer_.Set(CURLOPT_OPENSOCKETDATA, this);
  transfer_.Set(CURLOPT_TIMEOUT, kTimeoutSeconds);
  // A name that is being resolved must delay neither other deliveries nor the end of the daemon.
  transfer_.Set(CURLOPT_QUICK_EXIT, 1L);
  transfer_.Set(CURLOPT_PRIVATE, this);
}

curl_socket_t Delivery::OpenSocket(void* context, curlsocktype, curl_sockaddr* address) {
  auto& self = *static_cast<Delivery*>(context);
  if (!self.allow_private_ && !IsPublicAddress(address->addr)) {
    self.refused_ = AddressText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
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
  return OneLine(transfer_.ErrorText(code), kMaxNameBytes);
}

WebhookAttempt Delivery::Finish(CURLcode code, absl::Time now, double random) const {
  const long status = transfer_.Status();
  curl_off_t retry_after = 0;
  curl_easy_getinfo(handle(), CURLINFO_RETRY_AFTER, &retry_after);
  WebhookAttempt attempt{.number = delivery_.number};
  // The status alone decides whether the event is delivered; an error in the body does not matter.
  attempt.delivered = status >= 200 && status < 300;
  if (attempt.delivered) return attempt;
  attempt.error = ErrorText(code, status);
  if (status != kGone) {
    attempt.next_attempt = NextAttempt(delivery_, now, absl::Seconds(retry_after), random);
  }
  return attempt;
}

}  // namespace genesis
