#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace genesis {

// Bytes [begin, end) of a file.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The bytes that a Range header asks of a file of `size` bytes. nullopt where there is no such byte
// (416). A header that is none, or that asks for several ranges, asks for the whole file, as RFC
// 9110 wants.
struct RangeAnswer {
  bool partial = false;
  std::optional<ByteRange> range;
};
RangeAnswer ReadRange(const std::string& header, int64_t size);

}  // namespace genesis
