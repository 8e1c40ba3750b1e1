#pragma once

#include <map>
#include <optional>
#include <string>

#include "trainer/formats/pickle_reader.h"

namespace genesis {

// The opcodes that torch.save and the pickler of LibTorch write, with protocols 2 to 5.
enum PickleOpcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kPersistentId = 'Q',
  kReduce = 'R',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinFloat = 'G',
  kProtocol = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Returns the rule for a name such as torch._utils._rebuild_tensor_v2; nullopt if it is unknown.
inline std::optional<PickleGlobal> FindGlobal(const std::string& name) {
  using enum PickleRule;
  static const auto* const globals = new std::map<std::string, PickleGlobal>{
      {"torch._utils._rebuild_tensor_v2", {kRebuildTensor}},
      {"torch._utils._rebuild_parameter", {kRebuildParameter}},
      {"collections.OrderedDict", {kOrderedDict}},
      {"torch.Size", {kSize}},
      {"torch.FloatStorage", {kStorageType, ElementType::kFloat32}},
      {"torch.DoubleStorage", {kStorageType, ElementType::kFloat64}},
      {"torch.HalfStorage", {kStorageType, ElementType::kFloat16}},
      {"torch.BFloat16Storage", {kStorageType, ElementType::kBfloat16}},
      {"torch.LongStorage", {kStorageType, ElementType::kInt64}},
      {"torch.IntStorage", {kStorageType, ElementType::kInt32}},
      {"torch.ShortStorage", {kStorageType, ElementType::kInt16}},
      {"torch.CharStorage", {kStorageType, ElementType::kInt8}},
      {"torch.ByteStorage", {kStorageType, ElementType::kUint8}},
      {"torch.BoolStorage", {kStorageType, ElementType::kBool}}};
  const auto found = globals->find(name);
  if (found == globals->end()) return std::nullopt;
  return found->second;
}

}  // namespace genesis
