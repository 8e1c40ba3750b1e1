#include "base/files/safetensors_head.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

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

}  // namespace

std::string SafetensorsHead(const std::vector<SafetensorsPart>& parts,
                            const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      pairs.push_back(absl::StrCat(Quoted(key), ":", Quoted(value)));
    }
    members.push_back(absl::StrCat("\"__metadata__\":{", absl::StrJoin(pairs, ","), "}"));
  }
  uint64_t offset = 0;
  for (const SafetensorsPart& part : parts) {
    const uint64_t end = offset + part.size;
    members.push_back(absl::StrCat(Quoted(part.name), ":{\"dtype\":\"", part.type, "\",\"shape\":[",
                                   absl::StrJoin(part.shape, ","), "],\"data_offsets\":[", offset,
                                   ",", end, "]}"));
    offset = end;
  }
  std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  header.append((kHeaderAlignment - header.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header;
}

std::string WeightsHead(const training::v1::PublishedWeights& weights,
                        const std::function<bool(const training::v1::PublishedTensor&)>& takes) {
  std::vector<SafetensorsPart> parts;
  for (const training::v1::PublishedTensor& tensor : weights.tensors()) {
    if (!takes(tensor)) continue;
    parts.push_back({.name = tensor.name(),
                     .type = tensor.type(),
                     .shape = {tensor.shape().begin(), tensor.shape().end()},
                     .size = static_cast<uint64_t>(tensor.size_bytes())});
  }
  // Python's loaders look for the key "format".
  return SafetensorsHead(parts, {{"format", "pt"},
                                 {"job", weights.job_id()},
                                 {"step", absl::StrCat(weights.version().step())},
                                 {"version", absl::StrCat(weights.version().number())}});
}

std::vector<std::string_view> WeightsElements(const training::v1::PublishedWeights& weights,
                                              std::string_view file) {
  size_t total = 0;
  for (const training::v1::PublishedTensor& tensor : weights.tensors())
    total += tensor.size_bytes();
  file.remove_prefix(file.size() - total);
  std::vector<std::string_view> elements;
  for (const training::v1::PublishedTensor& tensor : weights.tensors()) {
    elements.push_back(file.substr(0, tensor.size_bytes()));
    file.remove_prefix(tensor.size_bytes());
  }
  return elements;
}

}  // namespace genesis
