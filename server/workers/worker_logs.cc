#include "server/workers/worker_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/text.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{16} << 20U;
constexpr int64_t kKeptBytes = int64_t{1} << 20U;
constexpr int64_t kMaxFolderBytes = int64_t{256} << 20U;
constexpr int64_t kTailBytes = int64_t{16} * 1024;
constexpr size_t kTailLines = 50;
constexpr char kSuffix[] = ".log";
constexpr char kCutSuffix[] = ".1";

// Returns the last `most` bytes of a file; "" if the file does not exist.
std::string ReadEnd(const std::string& path, int64_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const int64_t size = file.tellg();
  file.seekg(std::max<int64_t>(0, size - most));
  return {std::istreambuf_iterator<char>(file), {}};
}

// Moves the end of the log to a second file. The worker appends, so it continues at the new end.
void Cut(const std::string& path) {
  const std::string kept = ReadEnd(path, kKeptBytes);
  std::ofstream(path + kCutSuffix, std::ios::binary | std::ios::trunc) << kept;
  [[maybe_unused]] const int result = truncate(path.c_str(), 0);
}

}  // namespace

std::string WorkerLogs::PathOf(const std::string& worker_id) const {
  return absl::StrCat(folder_, "/", worker_id, kSuffix);
}

std::vector<std::string> WorkerLogs::Tail(const std::string& worker_id) const {
  const std::string path = PathOf(worker_id);
  std::string end = ReadEnd(path, kTailBytes);
  if (std::ssize(end) < kTailBytes) end.insert(0, ReadEnd(path + kCutSuffix, kTailBytes));
  absl::string_view text = end;
  absl::ConsumeSuffix(&text, "\n");
  if (text.empty()) return {};
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(OneLine(line, kMaxLineBytes));
  }
  // The first line may be truncated.
  if (std::ssize(end) >= kTailBytes && lines.size() > 1) lines.erase(lines.begin());
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return lines;
}

void WorkerLogs::Remove(const std::string& worker_id) const {
  std::error_code ignored;
  fs::remove(PathOf(worker_id), ignored);
  fs::remove(PathOf(worker_id) + kCutSuffix, ignored);
}

void WorkerLogs::Trim(const std::set<std::string>& running) const {
  struct Kept {
    fs::file_time_type time;
    std::string worker_id;
    int64_t bytes = 0;
  };
  std::vector<Kept> ended;
  int64_t total = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::EndsWith(name, kSuffix)) continue;
    std::error_code gone;
    const auto size = static_cast<int64_t>(entry.file_size(gone));
    if (gone) continue;
    if (size > kMaxFileBytes) Cut(entry.path().string());
    Kept kept{entry.last_write_time(gone), std::string(absl::StripSuffix(name, kSuffix)),
              std::min(size, kMaxFileBytes)};
    total += kept.bytes;
    if (!running.contains(kept.worker_id)) ended.push_back(std::move(kept));
  }
  std::sort(ended.begin(), ended.end(),
            [](const Kept& a, const Kept& b) { return a.time < b.time; });
  for (const Kept& oldest : ended) {
    if (total <= kMaxFolderBytes) break;
    Remove(oldest.worker_id);
    total -= oldest.bytes;
  }
}

}  // namespace genesis
