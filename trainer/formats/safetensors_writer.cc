#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files/durable_file.h"
#include "base/text/field_error.h"
#include "base/text/utf8.h"
#include "trainer/formats/npy_header.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/safetensors_types.h"

namespace genesis {
namespace {

constexpr char kMetadata[] = "__metadata__";
// The data begins at a multiple of this, so that mapped tensors are aligned.
constexpr size_t kHeaderAlignment = 8;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

const char* TypeName(ElementType type) {
  for (const auto& [text, known] : kSafetensorsTypes) {
    if (type == known) return text;
  }
  return "";
}

uint64_t Bytes(const SafetensorsEntry& entry) {
  return static_cast<uint64_t>(ShapeElements(entry.shape) * ElementSize(entry.type));
}

std::string Header(const std::vector<SafetensorsEntry>& entries,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      pairs.push_back(absl::StrCat(Quoted(key), ":", Quoted(value)));
    }
    members.push_back(absl::StrCat("\"", kMetadata, "\":{", absl::StrJoin(pairs, ","), "}"));
  }
  uint64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const uint64_t end = offset + Bytes(entry);
    members.push_back(absl::StrCat(Quoted(entry.name), ":{\"dtype\":\"", TypeName(entry.type),
                                   "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                                   "],\"data_offsets\":[", offset, ",", end, "]}"));
    offset = end;
  }
  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  header.append((kHeaderAlignment - header.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  return header;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                              const std::map<std::string, std::string>& metadata) {
  const auto order = [](const SafetensorsEntry& entry) {
    return std::make_tuple(-ElementSize(entry.type), entry.name);
  };
  std::sort(entries.begin(), entries.end(),
            [&order](const auto& a, const auto& b) { return order(a) < order(b); });
  std::vector<std::string> names = {kMetadata};
  for (const SafetensorsEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor name ", QuoteValue(*twice),
                     " is taken; accepted: each name once, and not __metadata__"));
  }
  for (const std::string& name : names) {
    if (IsUtf8(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor name ", QuoteValue(name),
                     " is not UTF-8, which a safetensors file requires; accepted: UTF-8; "
                     "rename the entry and save the file again"));
  }
  absl::StatusOr<DurableFile> file = DurableFile::Create(path);
  if (!file.ok()) return file.status();
  const std::string header = Header(entries, metadata);
  const uint64_t length = header.size();
  file->Write(&length, sizeof(length));
  file->Write(header.data(), header.size());
  for (const SafetensorsEntry& entry : entries) file->Write(entry.data, Bytes(entry));
  return file->Commit();
}

}  // namespace genesis
