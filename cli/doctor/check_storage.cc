#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/doctor/checks.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kStorage[] = "storage";
// Below kTooFew bytes, the next checkpoints may fail; below kLowShare, the operator should check.
constexpr int64_t kTooFew = int64_t{1} << 30;
constexpr double kLowShare = 0.1;
// Magic numbers from linux/magic.h and the file systems' own headers.
constexpr int64_t kTmpfs = 0x01021994;
constexpr int64_t kNfs = 0x6969;
constexpr int64_t kCifs = 0xFF534D42;
constexpr int64_t kSmb2 = 0xFE534D42;
constexpr int64_t kOverlay = 0x794c7630;

// Returns the folder or its nearest existing parent, below which the daemon creates the rest.
fs::path Nearest(fs::path path) {
  std::error_code none;
  while (!fs::exists(path, none) && path.has_relative_path()) path = path.parent_path();
  return path;
}

void CheckKind(const std::string& what, const fs::path& path, bool holds_store,
               Findings& findings) {
  struct statfs info = {};
  if (statfs(path.c_str(), &info) != 0) return;
  const auto kind = static_cast<int64_t>(info.f_type) & 0xFFFFFFFF;
  if (kind == kTmpfs || kind == kOverlay) {
    findings.push_back(
        Note(kStorage,
             absl::StrCat(what, " is on ",
                          kind == kTmpfs ? "tmpfs, which a restart of the machine empties"
                                         : "the layer of a container, which ends with it"),
             "put it on a disk or a volume that lasts"));
  } else if (holds_store && (kind == kNfs || kind == kCifs || kind == kSmb2)) {
    findings.push_back(Problem(kStorage,
                               absl::StrCat(what,
                                            " is on a network file system; the store's "
                                            "write-ahead log needs a local one (SQLite, WAL)"),
                               "put data_dir on a local disk; checkpoints and datasets may stay"));
  }
}

void CheckRoom(const std::string& what, const fs::path& path, Findings& findings) {
  struct statvfs info = {};
  if (statvfs(path.c_str(), &info) != 0) return;
  const auto block = static_cast<int64_t>(info.f_frsize);
  const int64_t free = static_cast<int64_t>(info.f_bavail) * block;
  const int64_t size = static_cast<int64_t>(info.f_blocks) * block;
  const std::string room =
      absl::StrCat(what, ": ", FormatBytes(free), " free of ", FormatBytes(size));
  const std::string fix =
      "free some space, or move the folder; `genesisctl checkpoints` lists what "
      "may be deleted";
  if (free < kTooFew) {
    findings.push_back(Problem(kStorage, room, fix));
  } else if (static_cast<double>(free) < kLowShare * static_cast<double>(size)) {
    findings.push_back(Note(kStorage, room, fix));
  } else {
    findings.push_back(Good(kStorage, room));
  }
}

void CheckFolder(const std::string& key, const std::string& folder, Findings& findings) {
  const fs::path path = Nearest(folder);
  const std::string what = absl::StrCat(key, " ", folder);
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    findings.push_back(
        Problem(kStorage, absl::StrCat(what, ": no right to write to ", path.string()),
                absl::StrCat("run doctor as the user of genesisd; if that is this one, "
                             "chown it")));
    return;
  }
  CheckKind(what, path, key == std::string("data_dir"), findings);
  CheckRoom(what, path, findings);
}

}  // namespace

Findings CheckStorage(const Settings& settings) {
  Findings findings;
  CheckFolder("data_dir", settings.data_dir, findings);
  CheckFolder("checkpoints.dir", settings.checkpoints.dir, findings);
  CheckFolder("datasets.root", settings.datasets.root, findings);
  const fs::path log = fs::path(settings.log.file).parent_path();
  if (access(Nearest(log).c_str(), W_OK | X_OK) != 0) {
    findings.push_back(Problem(
        kStorage, absl::StrCat("log.file ", settings.log.file, ": no right to write to its folder"),
        "chown the folder to the user of genesisd"));
  }
  return findings;
}

}  // namespace genesis::cli
