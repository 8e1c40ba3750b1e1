#pragma once

#include <google/protobuf/message.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// Pages of list calls (AIP-158). A page token names the place where its page ended, by sort keys
// instead of a count, so that entries added or removed between calls shift nothing. It is opaque to
// clients. It is refused for another query, or if another process issued it (HMAC-SHA256 with a
// random key per process), so clients list from the start after a daemon restart.
namespace genesis {

// Returns the page size: `asked`, 1 to 1000, or 100 for 0. INVALID_ARGUMENT for other values.
absl::StatusOr<int> PageSize(int asked);

// Returns a token for the page after `place`: a name, or sort keys formatted by PlaceOf. Fields of
// `request` other than page_size and page_token form the query.
std::string MakePageToken(const google::protobuf::Message& request, const std::string& place);

// Returns the place in request.page_token. INVALID_ARGUMENT for a refused token.
absl::StatusOr<std::string> ReadPageToken(const google::protobuf::Message& request);

// Formats sort keys as a place for MakePageToken.
std::string PlaceOf(const std::vector<int64_t>& keys);

// Returns the place in request.page_token as exactly `Count` numbers.
// INVALID_ARGUMENT for a refused token.
template <size_t Count>
absl::StatusOr<std::array<int64_t, Count>> ReadPageKeys(const google::protobuf::Message& request);

// Returns the number at which the page of a list sorted by one number begins; 0 for the first page.
// INVALID_ARGUMENT for a refused token.
template <typename Request>
absl::StatusOr<int64_t> ReadPageNumber(const Request& request) {
  if (request.page_token().empty()) return 0;
  const auto keys = ReadPageKeys<1>(request);
  if (!keys.ok()) return keys.status();
  return (*keys)[0];
}

}  // namespace genesis
