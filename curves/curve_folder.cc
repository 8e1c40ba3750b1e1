#include "curves/curve_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/files/durable_file.h"
#include "base/files/errno_status.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const std::string& folder, const CurveFileName& name) {
  return folder + "/" + name.ToString();
}

}  // namespace

std::string CurveFolder(const std::string& checkpoint_dir, const std::string& job_id) {
  return checkpoint_dir + "/" + job_id + "-curves";
}

absl::StatusOr<std::vector<CurveFile>> ListCurveFiles(const std::string& folder) {
  std::vector<CurveFile> files;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  while (!error && entry != fs::directory_iterator()) {
    const std::optional<CurveFileName> name = ParseCurveFileName(entry->path().filename().string());
    std::error_code gone;
    const auto size = name ? entry->file_size(gone) : 0;
    if (name && !gone) files.push_back({*name, static_cast<int64_t>(size)});
    entry.increment(error);
  }
  if (error) return ErrnoStatus(folder, error.value());
  std::sort(files.begin(), files.end(),
            [](const CurveFile& a, const CurveFile& b) { return a.name < b.name; });
  return files;
}

absl::StatusOr<std::string> ReadCurveFile(const std::string& folder, const CurveFileName& name) {
  const std::string path = PathOf(folder, name);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) return "";
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (file.bad() || !file.is_open()) return ErrnoStatus(path, errno);
  return std::move(bytes).str();
}

absl::Status CombineCurveFiles(const std::string& folder, const std::vector<CurveFile>& files) {
  std::vector<CurvePoint> points;
  for (const CurveFile& file : files) {
    const absl::StatusOr<std::string> read = ReadCurveFile(folder, file.name);
    if (!read.ok()) return read.status();
    DecodeBlocks(*read, points);
  }
  CurveFileName name = files.front().name;
  name.level = std::min(name.level + 1, kCurveLevels - 1);
  int64_t width = 1;
  for (int i = 0; i < name.level; ++i) width *= kCurveThinning;
  // A reader that sees old and new files reads the old ones last, and they contain the same steps.
  absl::Status status =
      WriteDurably(PathOf(folder, name), EncodePoints(Thinned(points, 0, width), name.level));
  if (!status.ok()) return status;
  for (const CurveFile& file : files) {
    if (file.name.ToString() != name.ToString()) unlink(PathOf(folder, file.name).c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<Curves> ReadCurves(const std::string& folder, const CurveQuery& query) {
  const absl::StatusOr<std::vector<CurveFile>> files = ListCurveFiles(folder);
  if (!files.ok()) return files.status();
  std::vector<std::string> contents;  // The newest file first.
  for (auto file = files->rbegin(); file != files->rend(); ++file) {
    absl::StatusOr<std::string> bytes = ReadCurveFile(folder, file->name);
    if (!bytes.ok()) return bytes.status();
    contents.push_back(*std::move(bytes));
    // A file replaces all earlier records of its first step and of later steps, so the files before
    // it have none of the requested steps.
    if (query.from_step > 0 && FirstStep(contents.back()) <= query.from_step) break;
  }
  Curves read;
  std::vector<CurvePoint> all;
  for (auto bytes = contents.rbegin(); bytes != contents.rend(); ++bytes) {
    read.damaged_bytes += static_cast<int64_t>(DecodeBlocks(*bytes, all));
  }
  if (all.empty()) return read;
  read.last_step = all.back().last_step;
  const int64_t to = query.to_step > 0 ? query.to_step : read.last_step;
  std::erase_if(all, [&](const CurvePoint& point) {
    return point.last_step < query.from_step || point.first_step > to;
  });
  if (all.empty()) return read;
  const int64_t first = all.front().first_step;
  const int64_t steps = all.back().last_step - first + 1;
  const int64_t width = std::max<int64_t>(1, (steps + query.points - 1) / query.points);
  read.points = Thinned(all, first, width);
  return read;
}

}  // namespace genesis
