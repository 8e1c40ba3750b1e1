#include "trainer/formats/pickle_calls.h"

#include <utility>

namespace genesis {
namespace {

// Maximum number of dimensions in torch. Only a malicious file has more.
constexpr size_t kMaxDimensions = 64;

// Returns item `index` of a list as a T, or nullptr.
template <typename T>
const T* ItemAs(const PickleList& list, size_t index) {
  return index < list.items.size() ? list.items[index]->As<T>() : nullptr;
}

// Parses sizes or strides, which must not be negative.
std::optional<std::vector<int64_t>> Integers(const PickleList* list) {
  if (list == nullptr || list->items.size() > kMaxDimensions) return std::nullopt;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < list->items.size(); ++i) {
    const auto* const integer = ItemAs<int64_t>(*list, i);
    if (integer == nullptr || *integer < 0) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

// Takes (storage, offset, sizes, strides, requires_grad, hooks).
std::optional<PickleValue> RebuildTensor(const PickleList& arguments) {
  const auto* const storage = ItemAs<PickleStorage>(arguments, 0);
  const auto* const offset = ItemAs<int64_t>(arguments, 1);
  auto sizes = Integers(ItemAs<PickleList>(arguments, 2));
  auto strides = Integers(ItemAs<PickleList>(arguments, 3));
  if (storage == nullptr || offset == nullptr || *offset < 0 || !sizes || !strides ||
      sizes->size() != strides->size()) {
    return std::nullopt;
  }
  return PickleValue{PickleTensor{.storage = *storage,
                                  .offset = *offset,
                                  .sizes = *std::move(sizes),
                                  .strides = *std::move(strides)}};
}

// Takes (tensor, requires_grad, hooks).
std::optional<PickleValue> RebuildParameter(const PickleList& arguments) {
  const auto* const tensor = ItemAs<PickleTensor>(arguments, 0);
  if (tensor == nullptr) return std::nullopt;
  return PickleValue{*tensor};
}

// Takes (), with items set later, or ([[key, value], ...]), as old versions of Python write it.
std::optional<PickleValue> OrderedDict(const PickleList& arguments) {
  PickleDict dict;
  if (arguments.items.empty()) return PickleValue{std::move(dict)};
  const auto* const items = ItemAs<PickleList>(arguments, 0);
  if (items == nullptr) return std::nullopt;
  for (const PickleValue* const item : items->items) {
    const auto* const pair = item->As<PickleList>();
    if (pair == nullptr || pair->items.size() != 2) return std::nullopt;
    dict.items.emplace_back(pair->items[0], pair->items[1]);
  }
  return PickleValue{std::move(dict)};
}

// Returns torch.Size((3, 4)) as a tuple.
std::optional<PickleValue> Size(const PickleList& arguments) {
  const auto* const sizes = ItemAs<PickleList>(arguments, 0);
  if (sizes == nullptr) return std::nullopt;
  return PickleValue{*sizes};
}

}  // namespace

std::optional<PickleStorage> BuildPickleStorage(const PickleList& id) {
  const auto* const type = ItemAs<PickleGlobal>(id, 1);
  const auto* const key = ItemAs<std::string>(id, 2);
  const auto* const elements = ItemAs<int64_t>(id, 4);
  if (type == nullptr || type->rule != PickleRule::kStorageType || key == nullptr ||
      elements == nullptr || *elements < 0) {
    return std::nullopt;
  }
  return PickleStorage{.key = *key, .type = type->type, .elements = *elements};
}

std::optional<PickleValue> CallPickleGlobal(const PickleGlobal& callee,
                                            const PickleList& arguments) {
  switch (callee.rule) {
    case PickleRule::kRebuildTensor:
      return RebuildTensor(arguments);
    case PickleRule::kRebuildParameter:
      return RebuildParameter(arguments);
    case PickleRule::kOrderedDict:
      return OrderedDict(arguments);
    case PickleRule::kSize:
      return Size(arguments);
    case PickleRule::kStorageType:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace genesis
