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

// The bytes of a file of `size` bytes that a Range header requests. `range` is unset if the file
// has none of them (416). A malformed header or several ranges request the whole file (RFC 9110).
struct RangeAnswer {
  bool partial = false;
  std::optional<ByteRange> range;
};
RangeAnswer ReadRange(const std::string& header, int64_t size);

}  // namespace genesis
