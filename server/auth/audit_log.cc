#include "server/auth/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/text/json.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr int kRefusalsPerWindow = 100;
constexpr absl::Duration kWindow = absl::Minutes(1);
constexpr mode_t kMode = 0640;
// Valid job names are short. Longer values are abuse and are truncated.
constexpr size_t kLongestValue = 256;

absl::StatusOr<int> OpenFile(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
  if (fd >= 0) return fd;
  return absl::FailedPreconditionError(absl::StrCat("cannot open the audit log ", path, ": ",
                                                    strerror(errno),
                                                    "; choose another with --audit-file"));
}

// Returns `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD.
std::string Quoted(const std::string& text) {
  return Json(text.substr(0, kLongestValue))
      .dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string LineOf(const AuditEntry& entry, absl::Time now, int64_t suppressed) {
  std::string line = absl::StrCat(
      "{\"time\":", Quoted(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())),
      ",\"caller\":", Quoted(entry.caller), ",\"role\":", Quoted(entry.role),
      ",\"peer\":", Quoted(entry.peer), ",\"protocol\":", Quoted(entry.protocol),
      ",\"method\":", Quoted(entry.method), ",\"subject\":", Quoted(entry.subject),
      ",\"outcome\":", Quoted(entry.outcome));
  if (suppressed > 0) absl::StrAppend(&line, ",\"refusals_not_written\":", suppressed);
  return line + "}\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, Clock clock,
                                                         Lost on_lost) {
  const absl::StatusOr<int> fd = OpenFile(path);
  if (!fd.ok()) return fd.status();
  return std::unique_ptr<AuditLog>(new AuditLog(path, std::move(clock), std::move(on_lost), *fd));
}

AuditLog::AuditLog(std::string path, Clock clock, Lost on_lost, int fd)
    : path_(std::move(path)), clock_(std::move(clock)), on_lost_(std::move(on_lost)), fd_(fd) {}

AuditLog::~AuditLog() { close(fd_); }

void AuditLog::Write(const AuditEntry& entry) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  if (!MayWrite(entry, now)) return;
  Append(LineOf(entry, now, suppressed_), now);
}

bool AuditLog::MayWrite(const AuditEntry& entry, absl::Time now) {
  if (!entry.refused) return true;
  // A clock that was set back also starts a new window.
  if (now - window_begin_ >= kWindow || now < window_begin_) {
    window_begin_ = now;
    refusals_in_window_ = 0;
  }
  if (++refusals_in_window_ <= kRefusalsPerWindow) return true;
  ++suppressed_;
  return false;
}

void AuditLog::Append(std::string line, absl::Time now) {
  if (cut_) line = absl::StrCat("\n", line);
  ssize_t written = -1;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    cut_ = false;
    suppressed_ = 0;
    return;
  }
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0) cut_ = true;
  ++lost_;
  on_lost_();
  if (now - last_complaint_ < kWindow) return;
  last_complaint_ = now;
  spdlog::error(
      "the audit log {} cannot be written: {}; {} lines are lost so far: make room, or "
      "fix the file and send SIGHUP",
      path_, strerror(error), lost_);
}

absl::Status AuditLog::Reopen() {
  const absl::StatusOr<int> fd = OpenFile(path_);
  if (!fd.ok()) return fd.status();
  absl::MutexLock lock(&mutex_);
  close(fd_);
  fd_ = *fd;
  cut_ = false;
  return absl::OkStatus();
}

}  // namespace genesis
