#include "trainer/checkpoint/manifest.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/durable_file.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/json_cursor.h"

namespace genesis {
namespace {

constexpr int64_t kManifestFormat = 1;
// Upper bound of a manifest's size; a record takes less than 100 bytes.
constexpr uint64_t kMaxSize = uint64_t{256} << 20;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      absl::StrAppendFormat(&quoted, "\\u%04x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Returns "null" for a missing number, and for NaN and infinities, which JSON lacks.
std::string Number(std::optional<double> number) {
  if (!number || !std::isfinite(*number)) return "null";
  return absl::StrFormat("%.17g", *number);
}

class Parser {
 public:
  explicit Parser(const std::string& text) : json_(text) {}

  absl::StatusOr<CheckpointManifest> Parse() {
    int64_t format = 0;
    const auto member = [&](const std::string& key) {
      if (key == "format") return json_.Count(format);
      if (key == "id") return json_.String(manifest_.id);
      if (key == "size") return Count(manifest_.size);
      if (key == "crc32c") return Checksum(manifest_.crc32c);
      if (key == "job_id") return json_.String(manifest_.job_id);
      if (key == "step") return json_.Count(manifest_.step);
      if (key == "mode") return json_.String(manifest_.mode);
      if (key == "loss") return Loss(manifest_.loss);
      if (key == "held_out_loss") return OptionalLoss();
      if (key == "records") return Records();
      if (key == "sha256") return json_.String(manifest_.sha256);
      if (key == "shards") return Shards();
      return json_.Skip();
    };
    if (!json_.Object(member) || !json_.End()) return absl::DataLossError(json_.fault());
    if (format != kManifestFormat) {
      return absl::DataLossError(
          absl::StrCat("its format is ", format, "; accepted: ", kManifestFormat));
    }
    if (manifest_.id.empty() || manifest_.records.empty()) {
      return absl::DataLossError("it has no id or no records");
    }
    return std::move(manifest_);
  }

 private:
  bool Count(uint64_t& value) {
    int64_t count = 0;
    if (!json_.Count(count)) return false;
    value = static_cast<uint64_t>(count);
    return true;
  }
  // Parses eight hexadecimal digits.
  bool Checksum(uint32_t& value) {
    std::string text;
    if (!json_.String(text)) return false;
    return (text.size() == 8 && absl::SimpleHexAtoi(text, &value)) ||
           json_.Fail("a checksum has not eight hexadecimal digits");
  }
  bool Loss(double& value) {
    bool whole = false;
    return json_.Peek() == 'n' ? json_.Skip() : json_.Number(value, whole);
  }
  bool OptionalLoss() {
    if (json_.Peek() == 'n') return json_.Skip();
    return Loss(manifest_.held_out_loss.emplace());
  }
  bool Records() {
    return json_.Array([this] {
      CheckpointManifest::Record& record = manifest_.records.emplace_back();
      return json_.Object([&](const std::string& key) {
        if (key == "name") return json_.String(record.name);
        if (key == "size") return Count(record.size);
        if (key == "crc32c") return Checksum(record.crc32c);
        return json_.Skip();
      });
    });
  }

  bool Shards() {
    return json_.Array([this] {
      ShardFile& shard = manifest_.shards.emplace_back();
      return json_.Object([&](const std::string& key) {
        if (key == "file") return json_.String(shard.name);
        if (key == "size") return Count(shard.size);
        if (key == "sha256") return json_.String(shard.sha256);
        return json_.Skip();
      });
    });
  }

  JsonCursor json_;
  CheckpointManifest manifest_;
};

}  // namespace

std::string ManifestPath(const std::string& checkpoint) { return checkpoint + ".manifest.json"; }

absl::Status WriteManifest(const CheckpointManifest& manifest, const std::string& checkpoint) {
  std::string text = absl::StrFormat(
      "{\"format\": %d, \"id\": %s, \"size\": %d, \"crc32c\": \"%08x\",\n"
      " \"job_id\": %s, \"step\": %d, \"mode\": %s, \"loss\": %s, \"held_out_loss\": %s,\n",
      kManifestFormat, Quoted(manifest.id), manifest.size, manifest.crc32c, Quoted(manifest.job_id),
      manifest.step, Quoted(manifest.mode), Number(manifest.loss), Number(manifest.held_out_loss));
  if (!manifest.sha256.empty()) {
    absl::StrAppendFormat(&text, " \"sha256\": %s,\n", Quoted(manifest.sha256));
  }
  const char* separator = "";
  if (!manifest.shards.empty()) {
    text += " \"shards\": [\n";
    for (const ShardFile& shard : manifest.shards) {
      absl::StrAppendFormat(&text, "%s  {\"file\": %s, \"size\": %d, \"sha256\": %s}", separator,
                            Quoted(shard.name), shard.size, Quoted(shard.sha256));
      separator = ",\n";
    }
    text += "\n ],\n";
  }
  text += " \"records\": [\n";
  separator = "";
  for (const CheckpointManifest::Record& record : manifest.records) {
    absl::StrAppendFormat(&text, "%s  {\"name\": %s, \"size\": %d, \"crc32c\": \"%08x\"}",
                          separator, Quoted(record.name), record.size, record.crc32c);
    separator = ",\n";
  }
  text += "\n ]}\n";
  absl::StatusOr<DurableFile> file = DurableFile::Create(ManifestPath(checkpoint));
  if (!file.ok()) return file.status();
  file->Write(text.data(), text.size());
  return file->Commit();
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& checkpoint) {
  const std::string path = ManifestPath(checkpoint);
  const absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  if (!file.ok()) return file.status();
  if ((*file)->size() > kMaxSize) {
    return absl::DataLossError(
        absl::StrCat(path, ": is ", (*file)->size(), " bytes long; accepted: up to ", kMaxSize));
  }
  std::string text((*file)->size(), '\0');
  if (absl::Status status = (*file)->Read(0, text.size(), text.data()); !status.ok()) return status;
  absl::StatusOr<CheckpointManifest> manifest = Parser(text).Parse();
  if (manifest.ok()) return manifest;
  return FitFileFault(absl::DataLossError(
      absl::StrCat(path, ": is not a valid manifest: ", manifest.status().message())));
}

}  // namespace genesis
