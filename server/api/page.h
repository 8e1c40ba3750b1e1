#pragma once

#include <google/protobuf/message.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// Pages of list calls (AIP-158). A token names the place where its page ended, by sort keys instead
// of a count, so entries that come and go in between shift nothing. It is opaque to callers. It is
// refused if this process did not issue it (HMAC-SHA256 with a random key of the process) or if it
// belongs to another query, so a client starts a list again after a restart.
namespace genesis {

// Returns the page size: 1 to 1000; 0 means 100. INVALID_ARGUMENT for any other.
absl::StatusOr<int> PageSize(int asked);

// `request` has page_size and page_token, which are not part of the query; `place` is where the
// page ended: a name, or sort keys formatted by PlaceOf.
std::string MakePageToken(const google::protobuf::Message& request, const std::string& place);

// Returns the place of request.page_token. INVALID_ARGUMENT for a refused token.
absl::StatusOr<std::string> ReadPageToken(const google::protobuf::Message& request);

// Formats sort keys as a place.
std::string PlaceOf(const std::vector<int64_t>& keys);

// Returns the place of request.page_token as exactly `Count` numbers. INVALID_ARGUMENT for a
// refused token.
template <size_t Count>
absl::StatusOr<std::array<int64_t, Count>> ReadPageKeys(const google::protobuf::Message& request);

}  // namespace genesis
