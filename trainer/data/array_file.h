#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/element_type.h"
#include "trainer/formats/npy_header.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/zip_archive.h"

namespace genesis {

// One array of a file, in C order. Its elements are in the file, or in memory if compressed.
class StoredArray {
 public:
  StoredArray() = default;
  StoredArray(ElementType type, std::vector<int64_t> shape, std::shared_ptr<const DataFile> file,
              uint64_t offset);
  StoredArray(ElementType type, std::vector<int64_t> shape, std::string bytes, uint64_t offset);

  ElementType type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return ShapeElements(shape_); }
  int64_t held_bytes() const;

  // Copies elements [first, first + count) without conversion.
  absl::Status Read(int64_t first, int64_t count, char* out) const;
  // Copies elements as float32. Values out of its range become infinite.
  absl::Status ReadFloats(int64_t first, int64_t count, float* out) const;

 private:
  ElementType type_ = ElementType::kFloat32;
  std::vector<int64_t> shape_;
  uint64_t offset_ = 0;
  std::shared_ptr<const DataFile> file_;
  std::shared_ptr<const std::string> bytes_;
};

// A file of named arrays: .npz, .safetensors, or .npy, for which the caller names the only array.
// An uncompressed array is read from the file, and its checksum (.npz) is verified once. A
// compressed array is unpacked into memory.
//
// Threads: one; several may read the returned arrays. Failure: statuses whose message begins with
// the path: those of ZipArchive, SafetensorsReader and ReadNpyHeader, and RESOURCE_EXHAUSTED if
// unpacking exceeds the memory limit.
class ArrayFile {
 public:
  static absl::StatusOr<ArrayFile> Open(const std::string& path, const std::string& npy_name,
                                        int64_t memory_limit_bytes);

  // Names of the arrays, in alphabetical order.
  const std::vector<std::string>& names() const { return names_; }
  // Returns NOT_FOUND if there is no such array.
  absl::StatusOr<StoredArray> Load(const std::string& name);
  absl::Status CheckUnchanged() const;

 private:
  ArrayFile(std::string path, int64_t room) : path_(std::move(path)), room_(room) {}

  absl::StatusOr<StoredArray> LoadFromZip(const std::string& name);
  absl::StatusOr<StoredArray> Unpack(const std::string& name, const std::string& record);

  std::string path_;
  int64_t room_;  // Bytes left for unpacked arrays.
  std::vector<std::string> names_;
  std::optional<ZipArchive> zip_;
  std::optional<SafetensorsReader> safetensors_;
  std::shared_ptr<const DataFile> npy_;
};

}  // namespace genesis
