#include "server/workers/log_tail.h"

#include <algorithm>
#include <fstream>

namespace genesis {
namespace {

constexpr std::streamoff kBytes = std::streamoff{16} * 1024;
constexpr size_t kLines = 50;

}  // namespace

std::vector<std::string> ReadLogTail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  // The first line may have lost its beginning.
  if (size > kBytes && !lines.empty()) lines.erase(lines.begin());
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  return lines;
}

}  // namespace genesis
