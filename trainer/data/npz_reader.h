#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/zip_archive.h"

namespace genesis {

enum class NpyType { kFloat32, kFloat64, kBool, kUint8, kInt64 };

// "float32", ...
std::string NpyTypeName(NpyType type);

// One NumPy array in memory, C order, little-endian.
struct NpyArray {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape;
  std::string bytes;  // The elements only.

  int64_t size() const;
  // Element `i` in C order as a number; bool gives 0 or 1.
  double At(int64_t i) const;
};

// "(1000, 3)", as NumPy writes it.
std::string ShapeText(const std::vector<int64_t>& shape);

// Reads the bytes of a .npy file, versions 1.0 and 2.0. `name` is used in messages only.
// INVALID_ARGUMENT for a layout that is not accepted (fortran order, big-endian, other types),
// DATA_LOSS for a broken one.
absl::StatusOr<NpyArray> ParseNpy(const std::string& name, std::string bytes);

// A file written by np.savez or np.savez_compressed.
//
// Owner: whoever opened it. Threads: Read may be called from several at once. Failure: statuses
// whose message begins with the path.
class NpzReader {
 public:
  static absl::StatusOr<NpzReader> Open(const std::string& path);

  bool Contains(const std::string& array) const { return archive_.Contains(array + ".npy"); }
  absl::StatusOr<NpyArray> Read(const std::string& array) const;

 private:
  explicit NpzReader(ZipArchive archive) : archive_(std::move(archive)) {}

  ZipArchive archive_;
};

}  // namespace genesis
