#include "config/job/key_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"

namespace genesis {

bool IsKeyName(absl::string_view name) {
  constexpr size_t kMaxBytes = 63;
  constexpr absl::string_view kBesides = "._/-";
  return !name.empty() && name.size() <= kMaxBytes &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  kBesides.find(c) != absl::string_view::npos;
         });
}

}  // namespace genesis
