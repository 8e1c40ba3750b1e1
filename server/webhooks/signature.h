#pragma once

#include <cstdint>
#include <optional>
#include <string>

// Signatures of Standard Webhooks 1.0.0 (github.com/standard-webhooks/standard-webhooks).
namespace genesis {

// Returns the key in a secret such as "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"; nullopt unless it
// is that prefix and the base64 of 24 to 64 bytes.
std::optional<std::string> ParseWebhookSecret(const std::string& secret);

// Returns the header webhook-signature: "v1," and the base64 of HMAC-SHA256 over
// "<id>.<timestamp>.<body>". `timestamp`: seconds since 1970.
std::string SignWebhook(const std::string& key, const std::string& id, int64_t timestamp,
                        const std::string& body);

}  // namespace genesis
