#include "server/auth/browser_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/sha256.h"
#include "base/random_bytes.h"
#include "config/settings/token.h"

namespace genesis {
namespace {

constexpr size_t kCodeBytes = 16;

}  // namespace

absl::StatusOr<BrowserSessions::Secret> BrowserSessions::Add(Logins& logins, std::string text,
                                                             Login login, absl::Time now) {
  std::erase_if(logins, [now](const auto& each) { return each.second.end <= now; });
  size_t of_caller = 0;
  auto oldest = logins.end();
  for (auto each = logins.begin(); each != logins.end(); ++each) {
    if (each->second.name != login.name) continue;
    ++of_caller;
    if (oldest == logins.end() || each->second.end < oldest->second.end) oldest = each;
  }
  if (of_caller >= kMaxOfCaller) {
    logins.erase(oldest);
  } else if (logins.size() >= kMaxOfAll) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxOfAll,
                     " browsers are signing in or signed in, which is the most; retry in a minute, "
                     "or sign in with a token"));
  }
  const absl::Time end = login.end;
  logins[Sha256(text)] = std::move(login);
  return Secret{std::move(text), end};
}

absl::StatusOr<BrowserSessions::Secret> BrowserSessions::NewCode(const Caller& caller,
                                                                 absl::Time now) {
  Login login{caller.name, caller.role, *caller.credentials,
              std::min(now + kMaxCodeAge, caller.end)};
  login.credentials.is_gone = nullptr;  // Valid only during the call.
  absl::MutexLock lock(&mutex_);
  return Add(codes_, absl::WebSafeBase64Escape(RandomBytes(kCodeBytes)), std::move(login), now);
}

absl::StatusOr<BrowserSessions::Secret> BrowserSessions::Exchange(const std::string& code,
                                                                  absl::Time now) {
  absl::MutexLock lock(&mutex_);
  auto node = codes_.extract(Sha256(code));
  if (node.empty() || node.mapped().end <= now) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the link was used already, or is older than ", absl::FormatDuration(kMaxCodeAge),
        "; get a new one by genesisctl open or genesis.open, or sign in with a token"));
  }
  Login login = std::move(node.mapped());
  login.end = now + kMaxSessionAge;
  return Add(sessions_, NewToken(), std::move(login), now);
}

std::optional<BrowserSessions::Login> BrowserSessions::Find(const std::string& token,
                                                            absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  if (sessions_.empty()) return std::nullopt;
  const auto found = sessions_.find(Sha256(token));
  if (found == sessions_.end() || found->second.end <= now) return std::nullopt;
  return found->second;
}

void BrowserSessions::End(const std::string& token) {
  absl::MutexLock lock(&mutex_);
  ended_ += sessions_.erase(Sha256(token));
}

}  // namespace genesis
