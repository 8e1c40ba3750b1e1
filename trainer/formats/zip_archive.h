#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/formats/data_file.h"

namespace genesis {

// A zip file opened for reading: both .npz datasets and .pt checkpoints are zip files. Opening
// reads the central directory (zip64 included) and checks it against the redundant parts: the
// header of every record, the descriptor after its data, both end records. Records and directory
// must fill the file without gap or overlap. Records are read on demand (stored and deflate), each
// checked against its CRC-32.
//
// Threads: several may call Read at once. Failure: NOT_FOUND, PERMISSION_DENIED, DATA_LOSS for
// anything that is not a valid zip file, or UNIMPLEMENTED for an unknown compression.
class ZipArchive {
 public:
  static absl::StatusOr<ZipArchive> Open(const std::string& path);

  bool Contains(const std::string& name) const { return records_.contains(name); }
  std::vector<std::string> names() const;
  const std::string& path() const { return path_; }

  // Returns the whole uncompressed record.
  absl::StatusOr<std::string> Read(const std::string& name) const;

  // The position of a record's bytes in the file. NOT_FOUND if there is no such record.
  struct Location {
    bool stored = false;  // Not compressed: the `size` bytes from `offset` are the record.
    uint64_t offset = 0;
    uint64_t size = 0;  // Uncompressed.
  };
  absl::StatusOr<Location> Locate(const std::string& name) const;
  // Verifies the checksum of a stored record. Requires Location::stored.
  absl::Status CheckStored(const std::string& name) const { return ReadPieces(name, nullptr); }
  // Verifies a stored record and copies its Location::size bytes to `out`.
  absl::Status ReadStored(const std::string& name, char* out) const {
    return ReadPieces(name, out);
  }
  const std::shared_ptr<const DataFile>& file() const { return file_; }

 private:
  struct Record {
    uint64_t header_offset = 0;
    uint64_t compressed_size = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
    uint16_t flags = 0;
    uint16_t method = 0;
    uint16_t version = 0;
    uint64_t data_offset = 0;
  };
  struct Directory {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t records = 0;
  };
  absl::StatusOr<Directory> FindDirectory() const;
  absl::Status ReadDirectory(const Directory& directory);
  absl::Status AddRecord(const std::string& header, std::string name, const std::string& extra);
  absl::StatusOr<std::optional<Directory>> FindDirectory64(uint64_t end_offset) const;
  absl::Status CheckRecords(uint64_t directory_offset);
  absl::Status ReadLocalHeader(const std::string& name, Record& record) const;
  absl::StatusOr<uint64_t> EndOf(const std::string& name, const Record& record) const;
  // `out` may be null.
  absl::Status ReadPieces(const std::string& name, char* out) const;
  absl::Status NoRecord(const std::string& name) const;
  absl::Status Corrupt(const std::string& what) const;

  std::string path_;
  std::shared_ptr<const DataFile> file_;
  std::map<std::string, Record> records_;
};

}  // namespace genesis
