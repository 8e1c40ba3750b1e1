#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/files/safetensors_head.h"
#include "base/text/field_error.h"
#include "base/text/utf8.h"
#include "trainer/formats/npy_header.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/safetensors_types.h"

namespace genesis {
namespace {

constexpr char kMetadata[] = "__metadata__";

uint64_t Bytes(const SafetensorsEntry& entry) {
  return static_cast<uint64_t>(ShapeElements(entry.shape) * ElementSize(entry.type));
}

}  // namespace

const char* SafetensorsTypeName(ElementType type) {
  for (const auto& [text, known] : kSafetensorsTypes) {
    if (type == known) return text;
  }
  return "";
}

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
  std::vector<SafetensorsPart> parts;
  for (const SafetensorsEntry& entry : entries) {
    parts.push_back({entry.name, SafetensorsTypeName(entry.type), entry.shape, Bytes(entry)});
  }
  const std::string head = SafetensorsHead(parts, metadata);
  file->Write(head.data(), head.size());
  for (const SafetensorsEntry& entry : entries) file->Write(entry.data, Bytes(entry));
  return file->Commit();
}

}  // namespace genesis
