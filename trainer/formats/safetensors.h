#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/element_type.h"

namespace genesis {

// A .safetensors file: eight bytes of header length (little-endian), a JSON header with each
// tensor's dtype, shape and data_offsets, then the elements in C order and little-endian.
//
// Read strictly: the header is at most 100 MB, keys are unique, sizes agree with shapes, and the
// tensors fill the data without holes or overlaps. Types: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
//
// Threads: any, once open. Failure: as DataFile; DATA_LOSS for a broken file, INVALID_ARGUMENT for
// an unsupported type. Messages begin with the path.
class SafetensorsReader {
 public:
  struct Tensor {
    ElementType type = ElementType::kFloat32;
    std::vector<int64_t> shape;
    uint64_t offset = 0;  // Offset in the file.
    uint64_t size = 0;    // Bytes.
  };

  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // The entries under __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::shared_ptr<const DataFile>& file() const { return file_; }
  // Copies the elements of a tensor of this reader. `out` has room for tensor.size bytes.
  absl::Status Read(const Tensor& tensor, void* out) const;

 private:
  absl::Status ReadHeader();
  absl::Status ParseHeader(const std::string& header, uint64_t data_offset);
  absl::Status CheckLayout(uint64_t data_offset) const;
  absl::Status Broken(const std::string& what) const;

  std::shared_ptr<const DataFile> file_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Returns the name of an element type in safetensors: "F32", "BF16", ...
const char* SafetensorsTypeName(ElementType type);

// One tensor to be written; `data` holds its elements in C order.
struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// Writes the file complete and durable, or not at all. As in the reference implementation, larger
// elements come first; within a size, by name. INVALID_ARGUMENT for a name that is repeated, is not
// UTF-8, or is __metadata__; RESOURCE_EXHAUSTED if the disk is full.
absl::Status WriteSafetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                              const std::map<std::string, std::string>& metadata);

}  // namespace genesis
