#include "trainer/checkpoint/weights.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/checkpoint/value_reader.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

// Looks for JSON after eight bytes of length. A zip file has no brace at this position.
bool LooksLikeSafetensors(const std::string& path) {
  const absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  std::string begin(9, '\0');
  const bool read =
      file.ok() &&
      (*file)->Read(0, std::min<uint64_t>((*file)->size(), begin.size()), begin.data()).ok();
  if (!read || absl::StartsWith(begin, "PK")) return false;
  // A file cut off before its brace is recognized by its name.
  return begin[8] == '{' || absl::EndsWith(path, ".safetensors");
}

absl::StatusOr<NamedTensors> ReadSafetensors(const std::string& path, WeightsKind kind) {
  if (kind == WeightsKind::kAverage) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a .safetensors file and has no ema_state_dict; accepted: a checkpoint"));
  }
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) return reader.status();
  NamedTensors tensors;
  for (const auto& [name, entry] : reader->tensors()) {
    at::Tensor tensor = at::empty(entry.shape, ToScalarType(entry.type));
    if (tensor.numel() > 0) {
      absl::Status status = reader->Read(entry, tensor.mutable_data_ptr());
      if (!status.ok()) return status;
    }
    tensors.emplace_back(name, std::move(tensor));
  }
  return tensors;
}

bool IsStateDict(const Value& value) {
  const auto* const dict = value.As<ValueDict>();
  return dict != nullptr && !dict->items.empty() &&
         std::any_of(dict->items.begin(), dict->items.end(),
                     [](const DictItem& item) { return item.value.As<at::Tensor>() != nullptr; });
}

// Lists the keys of a dict for a message.
std::string Keys(const ValueDict& dict) {
  std::string keys;
  for (size_t i = 0; i < dict.items.size() && i < 8; ++i) {
    const auto* const name = std::get_if<std::string>(&dict.items[i].key);
    const std::string shown =
        name != nullptr ? OneLine(*name, 64) : absl::StrCat(std::get<int64_t>(dict.items[i].key));
    absl::StrAppend(&keys, keys.empty() ? "" : ", ", shown);
  }
  if (dict.items.size() > 8) absl::StrAppend(&keys, ", and ", dict.items.size() - 8, " more");
  return keys.empty() ? "nothing" : keys;
}

// Returns whether the tree was built by ShardTree.
bool IsShard(const ValueReader& root) {
  if (!root.Has("shard")) return false;
  const auto* const shard = root.At("shard").value().As<ValueDict>();
  return shard != nullptr && root.At("shard").Has("token");
}

// Returns the part of the tree that holds the weights.
ValueReader FindWeights(const ValueReader& root, WeightsKind kind) {
  if (kind == WeightsKind::kAverage) return root.At("ema_state_dict");
  for (const char* const key : {"model_state_dict", "state_dict"}) {
    if (root.Has(key) && root.At(key).value().As<ValueDict>() != nullptr) return root.At(key);
  }
  if (IsStateDict(root.value())) return root;
  const auto* const dict = root.value().As<ValueDict>();
  root.Fault(
      absl::StrCat(dict != nullptr ? absl::StrCat("holds a dict of ", Keys(*dict))
                                   : absl::StrCat("holds ", DescribeValue(root.value())),
                   "; accepted: a dict of tensors, alone or as model_state_dict or state_dict"));
  return root;
}

absl::StatusOr<NamedTensors> ReadAnyWeights(const std::string& path, WeightsKind kind) {
  if (LooksLikeSafetensors(path)) return ReadSafetensors(path, kind);
  const absl::StatusOr<Value> tree = ReadTree(path);
  if (!tree.ok()) return tree.status();
  const ValueReader root(path, *tree);
  if (IsShard(root)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a shard, which holds a part of the weights; accepted: the .pt that lists it"));
  }
  const ValueReader weights = FindWeights(root, kind);
  NamedTensors tensors;
  if (root.status().ok()) {
    for (const auto& [name, entry] : weights.Named()) {
      tensors.emplace_back(name, entry.Tensor().contiguous());
    }
  }
  if (!root.status().ok()) return root.status();
  return tensors;
}

}  // namespace

absl::StatusOr<NamedTensors> ReadWeights(const std::string& path, WeightsKind kind) {
  absl::StatusOr<NamedTensors> tensors = ReadAnyWeights(path, kind);
  if (!tensors.ok()) return FitFileFault(tensors.status());
  return tensors;
}

absl::Status ExportSafetensors(const std::string& from, const std::string& to, WeightsKind kind) {
  const absl::StatusOr<NamedTensors> tensors = ReadWeights(from, kind);
  if (!tensors.ok()) return tensors.status();
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : *tensors) {
    entries.push_back({.name = name,
                       .type = ToElementType(tensor.scalar_type()).value_or(ElementType::kFloat32),
                       .shape = tensor.sizes().vec(),
                       .data = tensor.const_data_ptr()});
  }
  // Python's loaders look for this key.
  return WriteSafetensors(to, std::move(entries), {{"format", "pt"}});
}

}  // namespace genesis
