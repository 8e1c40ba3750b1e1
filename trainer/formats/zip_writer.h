#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/formats/record_checksums.h"

namespace genesis {

// A writer of the zip files that torch.load reads: records are stored uncompressed, at multiples of
// 64 bytes so that they can be mapped, with zip64 fields if 32 bits do not suffice. The files
// contain no times, so equal records give equal files.
//
// Owner: one writer. Threads: one. Failure: none; the sink keeps the first error.
class ZipWriter {
 public:
  struct Record {
    std::string name;
    uint64_t size = 0;
    uint32_t crc32 = 0;
    uint32_t crc32c = 0;
    uint64_t header_offset = 0;
  };

  // Receives the file piece by piece.
  using Sink = std::function<void(const void* data, uint64_t size)>;

  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // Adds a record under a new name.
  void Add(const std::string& name, const void* data, uint64_t size);
  // Adds a record whose checksums are known.
  void Add(const std::string& name, const void* data, uint64_t size, const Checksums& sums);
  // Writes the directory. No records may follow.
  void Finish();

  const std::vector<Record>& records() const { return records_; }
  // The CRC-32C of all bytes written.
  uint32_t file_crc32c() const { return file_crc32c_; }

 private:
  // Writes bytes whose CRC-32C is known.
  void Write(const void* data, uint64_t size, uint32_t crc32c);
  void Write(const std::string& bytes);

  const Sink sink_;
  uint64_t size_ = 0;
  uint32_t file_crc32c_ = 0;
  std::vector<Record> records_;
};

}  // namespace genesis
