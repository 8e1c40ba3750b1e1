#include "trainer/data/zip_archive.h"

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryHeader = 0x02014b50;
constexpr uint32_t kEndOfDirectory = 0x06054b50;
constexpr uint32_t kEndOfDirectory64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLocator64Size = 20;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kDirectoryHeaderSize = 46;
constexpr uint64_t kLocalHeaderSize = 30;
constexpr uint64_t kMaxComment = 65535;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflate = 8;
// Deflate cannot shrink data further than this; a record that claims more is a trap for memory.
constexpr uint64_t kMaxDeflateRatio = 1032;

// Little-endian number at `offset`; the caller has checked that it is inside.
template <typename T>
T Number(const std::string& bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool Holds(const DataFile& file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

// nullopt when the range is not inside the file or the disk fails.
std::optional<std::string> ReadRange(const DataFile& file, uint64_t offset, uint64_t size) {
  if (!Holds(file, offset, size)) return std::nullopt;
  std::string bytes(size, '\0');
  if (!file.Read(offset, size, bytes.data()).ok()) return std::nullopt;
  return bytes;
}

// The 64-bit value of a field whose 32-bit form says "see the zip64 extra field". The values stand
// there in a fixed order, each only when its 32-bit form is full.
class Zip64Fields {
 public:
  explicit Zip64Fields(const std::string& extra) {
    for (uint64_t at = 0; at + 4 <= extra.size();) {
      const auto id = Number<uint16_t>(extra, at);
      const auto size = Number<uint16_t>(extra, at + 2);
      if (at + 4 + size > extra.size()) return;
      if (id == kZip64Extra) fields_ = extra.substr(at + 4, size);
      at += 4 + uint64_t{size};
    }
  }

  std::optional<uint64_t> Resolve(uint32_t value) {
    if (value != 0xFFFFFFFFu) return value;
    if (next_ + 8 > fields_.size()) return std::nullopt;
    next_ += 8;
    return Number<uint64_t>(fields_, next_ - 8);
  }

 private:
  std::string fields_;
  uint64_t next_ = 0;
};

// Inflates raw deflate data to exactly `size` bytes.
std::optional<std::string> Inflate(const std::string& compressed, uint64_t size) {
  std::string plain(size, '\0');
  z_stream stream{};
  // Negative window bits: raw deflate, without zlib's own header.
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return std::nullopt;
  int result = Z_OK;
  while (result == Z_OK) {
    // zlib counts in 32 bits, so large records go through in pieces.
    constexpr uint64_t kPiece = uint64_t{1} << 30;
    stream.next_in =
        const_cast<Bytef*>(reinterpret_cast<const Bytef*>(compressed.data() + stream.total_in));
    stream.avail_in = static_cast<uInt>(std::min(kPiece, compressed.size() - stream.total_in));
    stream.next_out = reinterpret_cast<Bytef*>(plain.data() + stream.total_out);
    stream.avail_out = static_cast<uInt>(std::min(kPiece, plain.size() - stream.total_out));
    result = inflate(&stream, Z_NO_FLUSH);
  }
  const bool whole = result == Z_STREAM_END && stream.total_out == size;
  inflateEnd(&stream);
  if (!whole) return std::nullopt;
  return plain;
}

}  // namespace

absl::StatusOr<ZipArchive> ZipArchive::Open(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  if (!file.ok()) return file.status();
  ZipArchive archive;
  archive.path_ = path;
  archive.file_ = *std::move(file);
  absl::StatusOr<Directory> directory = archive.FindDirectory();
  if (!directory.ok()) return directory.status();
  if (absl::Status status = archive.ReadDirectory(*directory); !status.ok()) return status;
  if (absl::Status status = archive.CheckOverlaps(); !status.ok()) return status;
  return archive;
}

std::vector<std::string> ZipArchive::names() const {
  std::vector<std::string> names;
  for (const auto& [name, record] : records_) names.push_back(name);
  return names;
}

absl::Status ZipArchive::Corrupt(const std::string& what) const {
  return absl::DataLossError(absl::StrCat(path_, ": is not a sound zip file: ", what));
}

absl::StatusOr<ZipArchive::Directory> ZipArchive::FindDirectory() const {
  const uint64_t tail_size = std::min(file_->size(), kEndSize + kMaxComment);
  const uint64_t tail_offset = file_->size() - tail_size;
  const std::optional<std::string> tail = ReadRange(*file_, tail_offset, tail_size);
  if (!tail) return Corrupt("its end cannot be read");
  // The end record is last, before a comment of unknown length: look for it backwards.
  std::optional<uint64_t> end;
  for (uint64_t back = kEndSize; back <= tail_size && !end; ++back) {
    const uint64_t at = tail_size - back;
    if (Number<uint32_t>(*tail, at) == kEndOfDirectory) end = at;
  }
  if (!end) return Corrupt("it has no central directory; the file is cut off or of another kind");
  const uint64_t end_offset = tail_offset + *end;
  Directory directory{.offset = Number<uint32_t>(*tail, *end + 16),
                      .size = Number<uint32_t>(*tail, *end + 12),
                      .records = Number<uint16_t>(*tail, *end + 10)};
  const bool needs_zip64 = directory.offset == 0xFFFFFFFFu || directory.size == 0xFFFFFFFFu ||
                           directory.records == 0xFFFFu;
  if (!needs_zip64) return directory;
  if (end_offset < kLocator64Size) return Corrupt("its zip64 locator is missing");
  const auto locator = ReadRange(*file_, end_offset - kLocator64Size, kLocator64Size);
  if (!locator || Number<uint32_t>(*locator, 0) != kLocator64) {
    return Corrupt("its zip64 locator is missing");
  }
  const auto end64 = ReadRange(*file_, Number<uint64_t>(*locator, 8), kEnd64Size);
  if (!end64 || Number<uint32_t>(*end64, 0) != kEndOfDirectory64) {
    return Corrupt("its zip64 locator points to no zip64 end record");
  }
  return Directory{.offset = Number<uint64_t>(*end64, 48),
                   .size = Number<uint64_t>(*end64, 40),
                   .records = Number<uint64_t>(*end64, 32)};
}

absl::Status ZipArchive::ReadDirectory(const Directory& directory) {
  const auto bytes = ReadRange(*file_, directory.offset, directory.size);
  if (!bytes) return Corrupt("its central directory lies outside the file");
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.records; ++i) {
    if (at + kDirectoryHeaderSize > bytes->size() ||
        Number<uint32_t>(*bytes, at) != kDirectoryHeader) {
      return Corrupt(absl::StrCat("entry ", i, " of its central directory is broken"));
    }
    const uint64_t name_size = Number<uint16_t>(*bytes, at + 28);
    const uint64_t extra_size = Number<uint16_t>(*bytes, at + 30);
    const uint64_t comment_size = Number<uint16_t>(*bytes, at + 32);
    const uint64_t entry_size = kDirectoryHeaderSize + name_size + extra_size + comment_size;
    if (at + entry_size > bytes->size()) {
      return Corrupt(absl::StrCat("entry ", i, " of its central directory is cut off"));
    }
    absl::Status status =
        AddRecord(bytes->substr(at, kDirectoryHeaderSize),
                  bytes->substr(at + kDirectoryHeaderSize, name_size),
                  bytes->substr(at + kDirectoryHeaderSize + name_size, extra_size));
    if (!status.ok()) return status;
    at += entry_size;
  }
  return absl::OkStatus();
}

absl::Status ZipArchive::AddRecord(const std::string& header, std::string name,
                                   const std::string& extra) {
  const auto flags = Number<uint16_t>(header, 8);
  Zip64Fields zip64(extra);
  const auto size = zip64.Resolve(Number<uint32_t>(header, 24));
  const auto compressed_size = zip64.Resolve(Number<uint32_t>(header, 20));
  const auto header_offset = zip64.Resolve(Number<uint32_t>(header, 42));
  if (!size || !compressed_size || !header_offset) {
    return Corrupt(absl::StrCat("record ", name, " lacks its zip64 sizes"));
  }
  const Record record{.header_offset = *header_offset,
                      .compressed_size = *compressed_size,
                      .size = *size,
                      .crc = Number<uint32_t>(header, 16),
                      .method = Number<uint16_t>(header, 10)};
  if ((flags & 1) != 0) return Corrupt(absl::StrCat("record ", name, " is encrypted"));
  if (!Holds(*file_, record.header_offset, record.compressed_size)) {
    return Corrupt(absl::StrCat("record ", name, " lies outside the file"));
  }
  const bool sane = record.method == kStored
                        ? record.size == record.compressed_size
                        : record.size / kMaxDeflateRatio <= record.compressed_size;
  if (!sane) {
    return Corrupt(absl::StrCat("record ", name, " claims ", record.size, " bytes from ",
                                record.compressed_size));
  }
  if (!records_.emplace(name, record).second) {
    return Corrupt(absl::StrCat("record ", name, " is there twice"));
  }
  return absl::OkStatus();
}

// Records that share bytes are how a small file unpacks to a huge one.
absl::Status ZipArchive::CheckOverlaps() const {
  std::map<uint64_t, const std::string*> by_offset;
  for (const auto& [name, record] : records_) {
    const auto [at, fresh] = by_offset.emplace(record.header_offset, &name);
    if (!fresh) return Corrupt(absl::StrCat("records ", *at->second, " and ", name, " overlap"));
  }
  for (auto at = by_offset.begin(); at != by_offset.end(); ++at) {
    const auto next = std::next(at);
    if (next == by_offset.end()) break;
    const uint64_t size = records_.at(*at->second).compressed_size;
    const uint64_t room = next->first - at->first;
    if (room >= kLocalHeaderSize && size <= room - kLocalHeaderSize) continue;
    return Corrupt(absl::StrCat("records ", *at->second, " and ", *next->second, " overlap"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ZipArchive::DataOffset(const std::string& name,
                                                const Record& record) const {
  const auto local = ReadRange(*file_, record.header_offset, kLocalHeaderSize);
  if (!local || Number<uint32_t>(*local, 0) != kLocalHeader) {
    return Corrupt(absl::StrCat("record ", name, " has no header"));
  }
  // Sizes come from the central directory: writers of streams leave them empty here.
  const uint64_t offset = record.header_offset + kLocalHeaderSize + Number<uint16_t>(*local, 26) +
                          Number<uint16_t>(*local, 28);
  if (!Holds(*file_, offset, record.compressed_size)) {
    return Corrupt(absl::StrCat("record ", name, " is cut off"));
  }
  return offset;
}

absl::StatusOr<std::string> ZipArchive::ReadCompressed(const std::string& name,
                                                       const Record& record) const {
  const absl::StatusOr<uint64_t> offset = DataOffset(name, record);
  if (!offset.ok()) return offset.status();
  auto bytes = ReadRange(*file_, *offset, record.compressed_size);
  if (!bytes) return Corrupt(absl::StrCat("record ", name, " is cut off"));
  return *std::move(bytes);
}

absl::StatusOr<ZipArchive::Location> ZipArchive::Locate(const std::string& name) const {
  const Record& record = records_.at(name);
  const absl::StatusOr<uint64_t> offset = DataOffset(name, record);
  if (!offset.ok()) return offset.status();
  return Location{.stored = record.method == kStored, .offset = *offset, .size = record.size};
}

absl::Status ZipArchive::ReadPieces(const std::string& name, char* out) const {
  const absl::StatusOr<Location> place = Locate(name);
  if (!place.ok()) return place.status();
  // As large as stays in the cache until its checksum is taken.
  constexpr uint64_t kPiece = uint64_t{1} << 18;
  std::string scratch(out == nullptr ? std::min(kPiece, place->size) : 0, '\0');
  uint32_t crc = 0;
  for (uint64_t done = 0; done < place->size; done += kPiece) {
    const uint64_t count = std::min(kPiece, place->size - done);
    char* const piece = out == nullptr ? scratch.data() : out + done;
    absl::Status status = file_->Read(place->offset + done, count, piece);
    if (!status.ok()) return status;
    crc = libdeflate_crc32(crc, piece, count);
  }
  if (crc == records_.at(name).crc) return absl::OkStatus();
  return Corrupt(absl::StrCat("record ", name, " fails its checksum; the file is damaged"));
}

absl::StatusOr<std::string> ZipArchive::Read(const std::string& name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no record ", name));
  }
  const Record& record = found->second;
  if (record.method != kStored && record.method != kDeflate) {
    return absl::UnimplementedError(absl::StrCat(path_, ": record ", name,
                                                 " is compressed by method ", record.method,
                                                 "; accepted: 0 (stored), 8 (deflate)"));
  }
  absl::StatusOr<std::string> bytes = ReadCompressed(name, record);
  if (!bytes.ok()) return bytes;
  if (record.method == kDeflate) {
    std::optional<std::string> plain = Inflate(*bytes, record.size);
    if (!plain) return Corrupt(absl::StrCat("record ", name, " does not inflate"));
    *bytes = *std::move(plain);
  }
  if (libdeflate_crc32(0, bytes->data(), bytes->size()) != record.crc) {
    return Corrupt(absl::StrCat("record ", name, " fails its checksum; the file is damaged"));
  }
  return bytes;
}

}  // namespace genesis
