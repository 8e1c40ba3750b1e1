#include "trainer/models/exported/rewritten_graphs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "trainer/cuda/cuda_operators.h"
#include "trainer/formats/zip_archive.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

// Folder of weights and manifest.
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

absl::StatusOr<RewrittenGraphs> RewrittenGraphs::Make(const ExportedFile& file,
                                                      const Rewrite& rewrite) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(file.path);
  if (!archive.ok()) return archive.status();
  const int handle = memfd_create("genesis-graphs", MFD_CLOEXEC);
  if (handle < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  }
  RewrittenGraphs graphs(handle);
  Output output(handle);
  ZipWriter writer([&](const void* data, uint64_t size) { output.Write(data, size); });
  for (const std::string& name : archive->names()) {
    if (absl::StartsWith(name, kExtra)) continue;
    const absl::StatusOr<std::string> record = archive->Read(name);
    if (!record.ok()) return record.status();
    const std::optional<std::string> rewritten =
        absl::StartsWith(name, kGraphs) ? rewrite(*record) : std::nullopt;
    graphs.changed_ |= rewritten.has_value();
    const std::string& text = rewritten ? *rewritten : *record;
    writer.Add(name, text.data(), text.size());
  }
  writer.Finish();
  if (absl::Status status = output.status(); !status.ok()) return status;
  return graphs;
}

RewrittenGraphs::~RewrittenGraphs() {
  if (handle_ >= 0) close(handle_);
}

std::string RewrittenGraphs::path() const { return absl::StrCat("/proc/self/fd/", handle_); }

std::string ForCuda(const std::string& graph) {
  // Quoted JSON strings are whole values.
  std::vector<std::pair<std::string, std::string>> replacements = {{"\"cpu\"", "\"cuda\""}};
  for (const auto& [operation, substitute] : OperatorsForCuda()) {
    replacements.emplace_back(absl::StrCat("\"", operation, "\""),
                              absl::StrCat("\"", substitute, "\""));
  }
  return absl::StrReplaceAll(graph, replacements);
}

}  // namespace genesis
