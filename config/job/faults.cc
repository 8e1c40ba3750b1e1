#include "config/job/faults.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace genesis {
namespace {

// Returns true if no part is empty or ".": then no other spelling names the folder, and the folder
// is not the root itself. An absolute path has an empty part before its first '/'.
bool IsPlainFolder(const std::vector<std::string>& parts) {
  const auto first = parts.begin() + (parts.size() > 1 && parts[0].empty() ? 1 : 0);
  return std::none_of(first, parts.end(),
                      [](const std::string& part) { return part.empty() || part == "."; });
}

}  // namespace

void Faults::CheckNumber(const std::string& path, double value, bool fine, const char* accepted) {
  if (value == 0 || (std::isfinite(value) && fine)) return;
  Add(path, FormatNumber(value), accepted);
}

void Faults::CheckPath(const std::string& field, const std::string& path, const char* what,
                       const std::vector<std::string>& endings) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  const auto ends = [&path](const std::string& ending) { return absl::EndsWith(path, ending); };
  if (path.empty()) {
    Add(field, "", absl::StrCat("required; give the path of ", what, " below the dataset root"));
  } else if (absl::StrContains(path, '\0')) {
    Add(field, QuoteValue(path), "a path without a NUL byte");
  } else if (std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    Add(field, QuoteValue(path), "a path without \"..\"; it may not leave the dataset root");
  } else if (endings.empty() && !IsPlainFolder(parts)) {
    Add(field, QuoteValue(path),
        "the path of a folder below the dataset root, without \".\", empty parts and a '/' at its "
        "end");
  } else if (!endings.empty() && std::none_of(endings.begin(), endings.end(), ends)) {
    Add(field, QuoteValue(path),
        absl::StrCat("a path that ends in ", absl::StrJoin(endings, " or ")));
  }
}

void Faults::Add(std::string path, std::string value, std::string accepted) {
  FieldError error;
  error.path = std::move(path);
  error.value = std::move(value);
  error.accepted = std::move(accepted);
  errors_.push_back(std::move(error));
}

}  // namespace genesis
