#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace genesis {

// Copies one page of `entries` into `out` (AIP-158) and sets `next_token`, empty on the last page.
// A token is the id of the last entry of the page before, so that entries that come in between
// shift nothing. INVALID_ARGUMENT for a page size outside 1 to 1000 (0 means 100), or for a token
// that names no entry.
template <typename Entry, typename Repeated>
absl::Status CutPage(const std::vector<Entry>& entries, int page_size, const std::string& token,
                     Repeated* out, std::string* next_token) {
  constexpr int kDefaultSize = 100;
  constexpr int kMaxSize = 1000;
  if (page_size < 0 || page_size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", page_size, "; accepted: 1 to ", kMaxSize));
  }
  size_t begin = 0;
  if (!token.empty()) {
    while (begin < entries.size() && entries[begin].id() != token) ++begin;
    if (begin == entries.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "page_token is \"", token, "\"; accepted: next_page_token of the page before"));
    }
    ++begin;
  }
  size_t end = begin + static_cast<size_t>(page_size == 0 ? kDefaultSize : page_size);
  if (end < entries.size()) {
    *next_token = entries[end - 1].id();
  } else {
    end = entries.size();
  }
  for (size_t i = begin; i < end; ++i) *out->Add() = entries[i];
  return absl::OkStatus();
}

}  // namespace genesis
