#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/caller.h"

namespace genesis {

// The browsers that sign in without typing a token. A caller gets a code for the address of the
// dashboard; the page exchanges the code, once, for the token of a session. The session stands for
// the caller's own credentials, which are checked again in each call.
//
// In memory only, where codes and tokens are known by their SHA-256. Owner: TokenAuthenticator.
// Threads: any.
class BrowserSessions {
 public:
  static constexpr absl::Duration kMaxCodeAge = absl::Seconds(60);
  static constexpr absl::Duration kMaxSessionAge = absl::Hours(12);
  // Codes of one caller, and sessions of one caller. A further one replaces the oldest.
  static constexpr size_t kMaxOfCaller = 16;
  // Codes of all callers, and sessions of all callers.
  static constexpr size_t kMaxOfAll = 4096;

  // A code or the token of a session.
  struct Secret {
    std::string text;
    absl::Time end;  // When it expires.
  };
  // The caller for whom a session stands.
  struct Login {
    std::string name;
    Role role;  // Highest role of the session.
    Credentials credentials;
    absl::Time end;  // When the code or session expires.
  };

  // Returns a code of 128 random bits. RESOURCE_EXHAUSTED beyond kMaxOfAll.
  absl::StatusOr<Secret> NewCode(const Caller& caller, absl::Time now);
  // Returns the token of a new session, and forgets the code. UNAUTHENTICATED, with one text, if
  // the code is unknown, used or expired.
  absl::StatusOr<Secret> Exchange(const std::string& code, absl::Time now);
  // Returns the login of a session's token; nullopt if the token belongs to none.
  std::optional<Login> Find(const std::string& token, absl::Time now) const;
  // Ends the session, if there is one.
  void End(const std::string& token);
  // Returns how many sessions End has ended.
  uint64_t ended() const { return ended_; }

 private:
  using Logins = std::map<std::string, Login>;  // Keys: SHA-256 of code or token.

  static absl::StatusOr<Secret> Add(Logins& logins, std::string text, Login login, absl::Time now);

  mutable absl::Mutex mutex_;
  Logins codes_ ABSL_GUARDED_BY(mutex_);
  Logins sessions_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> ended_{0};
};

}  // namespace genesis
