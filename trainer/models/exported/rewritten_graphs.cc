#include "trainer/models/exported/rewritten_graphs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "trainer/cuda/cuda_operators.h"
#include "trainer/formats/zip_archive.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

// Folder of the weights and the manifest, which the copy leaves out.
constexpr char kExtra[] = "module/extra/";
constexpr char kGraphs[] = "module/models/";

// A file descriptor to write to. Keeps the first error for status().
class Output {
 public:
  explicit Output(int handle) : handle_(handle) {}

  void Write(const void* data, uint64_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0 && error_ == 0) {
      const ssize_t written = write(handle_, next, size);
      if (written < 0 && errno != EINTR) error_ = errno;
      if (written <= 0) continue;
      next += written;
      size -= static_cast<uint64_t>(written);
    }
  }

  absl::Status status() const {
    if (error_ == 0) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "model.exported: its graphs cannot be kept in memory: ", std::strerror(error_)));
  }

 private:
  const int handle_;
  int error_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<RewrittenGraphs>> RewrittenGraphs::Make(const ExportedFile& file,
                                                                     const Rewrite& rewrite) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(file.path);
  if (!archive.ok()) return archive.status();
  std::map<std::string, std::string> rewritten;
  for (const std::string& name : archive->names()) {
    if (!absl::StartsWith(name, kGraphs)) continue;
    const absl::StatusOr<std::string> graph = archive->Read(name);
    if (!graph.ok()) return graph.status();
    if (std::optional<std::string> other = rewrite(*graph)) rewritten[name] = *std::move(other);
  }
  if (rewritten.empty()) return std::nullopt;
  const int handle = memfd_create("genesis-graphs", MFD_CLOEXEC);
  if (handle < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  }
  RewrittenGraphs graphs(handle);
  Output output(handle);
  ZipWriter writer([&](const void* data, uint64_t size) { output.Write(data, size); });
  for (const std::string& name : archive->names()) {
    if (absl::StartsWith(name, kExtra)) continue;
    const auto found = rewritten.find(name);
    const absl::StatusOr<std::string> record =
        found != rewritten.end() ? std::move(found->second) : archive->Read(name);
    if (!record.ok()) return record.status();
    writer.Add(name, record->data(), record->size());
  }
  writer.Finish();
  if (absl::Status status = output.status(); !status.ok()) return status;
  return std::optional<RewrittenGraphs>(std::move(graphs));
}

RewrittenGraphs::~RewrittenGraphs() {
  if (handle_ >= 0) close(handle_);
}

std::string RewrittenGraphs::path() const { return absl::StrCat("/proc/self/fd/", handle_); }

std::string ForCuda(const std::string& graph) {
  // Replace quoted strings, because these are whole JSON values and not parts of names.
  std::vector<std::pair<std::string, std::string>> replacements = {{"\"cpu\"", "\"cuda\""}};
  for (const auto& [operation, substitute] : OperatorsForCuda()) {
    replacements.emplace_back(absl::StrCat("\"", operation, "\""),
                              absl::StrCat("\"", substitute, "\""));
  }
  return absl::StrReplaceAll(graph, replacements);
}

}  // namespace genesis
