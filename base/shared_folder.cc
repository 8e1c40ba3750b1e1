#include "base/shared_folder.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"

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
  std::ofstream file(path + ".new");
  file << id << "\n";
  file.close();
  if (file.good()) std::filesystem::rename(path + ".new", path, error);
  if (file.good() && !error) return id;
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path,
                   ", by which workers of other hosts know the folder; mend its permissions"));
}

}  // namespace genesis
