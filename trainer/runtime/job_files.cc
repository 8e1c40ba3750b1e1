#include "trainer/runtime/job_files.h"

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "config/job/job_paths.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

bool Beneath(const fs::path& real, const std::string& root) {
  std::error_code error;
  const std::string folder = fs::canonical(root, error).string();
  return !error && absl::StartsWith(real.string(), absl::StrCat(folder, "/"));
}

}  // namespace

absl::Status ResolveJobFiles(const std::string& datasets_root, const std::string& checkpoint_dir,
                             training::v1::JobSpec& spec) {
  for (const JobPath& named : PathsOf(spec)) {
    std::error_code error;
    const fs::path real = fs::canonical(named.path, error);
    if (error) continue;
    // The weights of start_from_checkpoint are stored with the checkpoints.
    if (!datasets_root.empty() && !Beneath(real, datasets_root) && !Beneath(real, checkpoint_dir)) {
      return absl::InvalidArgumentError(
          absl::StrCat(named.field, " is ", QuoteValue(named.path), ", which leads to ",
                       QuoteValue(real.string()), "; accepted: what lies beneath the dataset root ",
                       datasets_root));
    }
    SetPath(spec, named.field, real.string());
  }
  return absl::OkStatus();
}

}  // namespace genesis
