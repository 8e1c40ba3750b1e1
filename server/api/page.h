#pragma once

#include <google/protobuf/message.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

// Pages of list calls (AIP-158). A token names the place where its page ended, by sort keys and not
// by a count, so entries that come and go in between shift nothing. It is opaque to callers, and
// refused when this process did not make it (HMAC-SHA256 with a random key of the process) or it
// belongs to another query; after a restart a list is begun anew.
namespace genesis {

// 1 to 1000; 0 means 100. INVALID_ARGUMENT for any other.
absl::StatusOr<int> PageSize(int asked);

// `request` has page_size and page_token, which are no part of the query; `place` says where the
// page ended: a name, or sort keys as PlaceOf writes them.
std::string MakePageToken(const google::protobuf::Message& request, const std::string& place);

// The place of request.page_token. INVALID_ARGUMENT as said above.
absl::StatusOr<std::string> ReadPageToken(const google::protobuf::Message& request);

// Numbers as a place.
std::string PlaceOf(const std::vector<int64_t>& keys);

// The place of request.page_token as exactly `Count` numbers. INVALID_ARGUMENT as said above.
template <size_t Count>
absl::StatusOr<std::array<int64_t, Count>> ReadPageKeys(const google::protobuf::Message& request);

}  // namespace genesis
