#include "server/auth/token_file.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "server/auth/secret_file.h"

namespace genesis {
namespace {

// Bounded because each call is compared with every token.
constexpr size_t kMaxEntries = 1000;
constexpr char kForms[] =
    "NAME ROLE sha256:SALT:DIGEST as genesisctl token prints it, cn:NAME ROLE or jwt:NAME ROLE";

// Adds the line's entry. Returns "", or the error.
std::string AddLine(absl::string_view line, TokenFile& file) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  absl::string_view name = words[0];
  const bool certificate = absl::ConsumePrefix(&name, "cn:");
  const bool named = certificate || absl::ConsumePrefix(&name, "jwt:");
  const size_t wanted = named ? 2 : 3;
  // Do not quote the words: they may be a secret that was put here by mistake.
  if (words.size() != wanted) {
    return absl::StrCat("has ", words.size(), " words; accepted: ", kForms);
  }
  // The name of a certificate or a JWT may hold more characters than a caller name, but no space.
  if (name.empty() || (!named && !IsCallerName(name))) {
    return absl::StrCat("the name is ", QuoteValue(name), "; accepted: ", kCallerNameRule);
  }
  const std::optional<Role> role = RoleOf(words[1]);
  if (!role.has_value()) {
    return absl::StrCat("the second word is no role; accepted: ", kRoleNames);
  }
  if (named) {
    (certificate ? file.certificates : file.jwts).push_back({std::string(name), *role});
    return "";
  }
  std::optional<TokenHash> hash = ParseTokenHash(words[2]);
  if (!hash.has_value()) {
    return absl::StrCat("the third word is no hash of a token; accepted: ", kForms);
  }
  file.tokens.push_back({std::string(name), *role, *std::move(hash)});
  return "";
}

}  // namespace

absl::StatusOr<TokenFile> ParseTokenFile(const std::string& text, const std::string& path) {
  TokenFile file;
  std::vector<std::string> faults;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#")) continue;
    const std::string fault = AddLine(line, file);
    if (!fault.empty()) faults.push_back(absl::StrCat(path, ":", number, ": ", fault));
  }
  const size_t entries = file.tokens.size() + file.certificates.size() + file.jwts.size();
  if (entries > kMaxEntries) {
    faults.push_back(
        absl::StrCat(path, ": has ", entries, " entries; accepted: at most ", kMaxEntries));
  }
  // An empty file would lock out every caller. It is probably still being written.
  if (entries == 0 && faults.empty()) {
    faults.push_back(absl::StrCat(path, ": holds no entry; accepted: at least one line ", kForms));
  }
  if (!faults.empty()) return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
  return file;
}

absl::StatusOr<TokenFile> LoadTokenFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile("auth.tokens_file", path);
  if (!text.ok()) return text.status();
  return ParseTokenFile(*text, path);
}

}  // namespace genesis
