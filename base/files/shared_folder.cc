#include "base/files/shared_folder.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"

namespace genesis {
namespace {

std::string PathOfId(const std::string& folder) { return folder + "/.genesis-folder"; }

std::string NewId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

}  // namespace

std::string ReadFolderId(const std::string& folder) {
  std::ifstream file(PathOfId(folder));
  std::string id;
  std::getline(file, id);
  return id;
}

absl::StatusOr<std::string> EnsureFolderId(const std::string& folder) {
  std::string id = ReadFolderId(folder);
  if (!id.empty()) return id;
  id = NewId();
  const std::string path = PathOfId(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const absl::Status written = WriteDurably(path, id + "\n");
  if (written.ok()) return id;
  return absl::UnavailableError(
      absl::StrCat("cannot write ", written.message(),
                   ", by which workers on other hosts identify the folder; fix its permissions"));
}

}  // namespace genesis
