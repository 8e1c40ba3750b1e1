#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/formats/element_type.h"

namespace genesis {

// Maximum number of elements, 2^40, so that sizes in bytes cannot overflow.
inline constexpr int64_t kMaxArrayElements = int64_t{1} << 40;

// The header of a .npy file whose elements are in C order and little-endian.
struct NpyHeader {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t data_offset = 0;
};

// Returns "(1000, 3)", as NumPy prints it.
std::string ShapeText(const std::vector<int64_t>& shape);
// Returns the product of the dimensions. Requires that it does not overflow.
int64_t ShapeElements(const std::vector<int64_t>& shape);

// Copies bytes [offset, offset + size) of the file that contains the array.
using ByteReader = absl::FunctionRef<absl::Status(uint64_t offset, uint64_t size, char* out)>;

// Reads the header of a .npy file of `size` bytes, versions 1.0 and 2.0, and checks that the
// elements fill the rest exactly. `name` is used in messages only. INVALID_ARGUMENT for a layout
// that is not accepted (fortran order, big-endian, other types), DATA_LOSS for a malformed header.
absl::StatusOr<NpyHeader> ReadNpyHeader(const std::string& name, uint64_t size, ByteReader read);

}  // namespace genesis
