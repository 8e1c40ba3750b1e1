#include "trainer/formats/zip_archive.h"

#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "trainer/formats/zip_format.h"

namespace genesis {
namespace {

constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLocator64Size = 20;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kDirectoryHeaderSize = 46;
constexpr uint64_t kMaxComment = 65535;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflate = 8;
// Deflate cannot compress more than this, so a record that claims more is an attack on memory.
constexpr uint64_t kMaxDeflateRatio = 1032;
constexpr uint16_t kEncrypted = 1;
// Flag: checksum and sizes follow the data, because a streaming writer knows them only then.
constexpr uint16_t kDescribedAfter = 8;
constexpr uint32_t kDescriptor = 0x08074b50;
constexpr uint16_t kVersions[] = {0, 10, 20, 45};  // torch.save writes 0.

// Returns the little-endian number at `offset`, which must lie inside of `bytes`.
template <typename T>
T Number(const std::string& bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool Holds(const DataFile& file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

// Returns nullopt if the range is not inside the file or the disk fails.
std::optional<std::string> ReadRange(const DataFile& file, uint64_t offset, uint64_t size) {
  if (!Holds(file, offset, size)) return std::nullopt;
  std::string bytes(size, '\0');
  if (!file.Read(offset, size, bytes.data()).ok()) return std::nullopt;
  return bytes;
}

// The 64-bit values in the zip64 extra field of a record. It holds them in a fixed order, each only
// if the 32-bit field has the value kFull32.
class Zip64Fields {
 public:
  explicit Zip64Fields(const std::string& extra) {
    uint64_t at = 0;
    while (at + 4 <= extra.size()) {
      const auto id = Number<uint16_t>(extra, at);
      const auto size = Number<uint16_t>(extra, at + 2);
      if (at + 4 + size > extra.size()) return;
      if (id == zip::kZip64Extra) fields_ = extra.substr(at + 4, size);
      at += 4 + uint64_t{size};
    }
    sound_ = at == extra.size();
  }

  // Returns whether the extra fields fill the extra data exactly.
  bool sound() const { return sound_; }

  std::optional<uint64_t> Resolve(uint32_t value) {
    if (value != zip::kFull32) return value;
    if (next_ + 8 > fields_.size()) return std::nullopt;
    next_ += 8;
    return Number<uint64_t>(fields_, next_ - 8);
  }

 private:
  std::string fields_;
  uint64_t next_ = 0;
  bool sound_ = false;
};

// Inflates raw deflate data to exactly `size` bytes.
std::optional<std::string> Inflate(const std::string& compressed, uint64_t size) {
  std::string plain(size, '\0');
  z_stream stream{};
  // Negative window bits: raw deflate, without zlib's own header.
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return std::nullopt;
  int result = Z_OK;
  while (result == Z_OK) {
    // zlib counts in 32 bits, so pass large records in pieces.
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
  if (absl::Status status = archive.CheckRecords(directory->offset); !status.ok()) return status;
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
  // The end record is last, before a comment that ends with the file, so search backwards.
  std::optional<uint64_t> end;
  bool other_comment = false;
  for (uint64_t back = kEndSize; back <= tail_size && !end; ++back) {
    const uint64_t at = tail_size - back;
    if (Number<uint32_t>(*tail, at) != zip::kEndOfDirectory) continue;
    if (Number<uint16_t>(*tail, at + 20) == back - kEndSize) end = at;
    other_comment = true;
  }
  if (!end && other_comment) return Corrupt("its comment does not end where the file ends");
  if (!end) {
    return Corrupt(absl::StrCat(
        "it has no central directory; the file is cut off or of another kind", file_->LooksLike()));
  }
  const uint64_t end_offset = tail_offset + *end;
  const Directory small{.offset = Number<uint32_t>(*tail, *end + 16),
                        .size = Number<uint32_t>(*tail, *end + 12),
                        .records = Number<uint16_t>(*tail, *end + 10)};
  if (Number<uint32_t>(*tail, *end + 4) != 0 ||
      Number<uint16_t>(*tail, *end + 8) != small.records) {
    return Corrupt("its end record has several disks");
  }
  const absl::StatusOr<std::optional<Directory>> large = FindDirectory64(end_offset);
  if (!large.ok()) return large.status();
  const bool full =
      small.offset == zip::kFull32 || small.size == zip::kFull32 || small.records == zip::kFull16;
  if (full && !*large) return Corrupt("its zip64 locator is missing");
  const Directory directory = large->value_or(small);
  const bool same = (small.offset == zip::kFull32 || small.offset == directory.offset) &&
                    (small.size == zip::kFull32 || small.size == directory.size) &&
                    (small.records == zip::kFull16 || small.records == directory.records);
  if (!same) return Corrupt("its two end records contradict each other");
  const uint64_t directory_end = *large ? end_offset - kLocator64Size - kEnd64Size : end_offset;
  if (!Holds(*file_, directory.offset, directory.size)) {
    return Corrupt("its central directory lies outside the file");
  }
  if (directory.offset + directory.size != directory_end) {
    return Corrupt("its central directory does not end where its end record begins");
  }
  return directory;
}

// Returns the zip64 end record, which precedes the end record together with its locator; nullopt if
// there is none.
absl::StatusOr<std::optional<ZipArchive::Directory>> ZipArchive::FindDirectory64(
    uint64_t end_offset) const {
  if (end_offset < kLocator64Size) return std::nullopt;
  const auto locator = ReadRange(*file_, end_offset - kLocator64Size, kLocator64Size);
  if (!locator || Number<uint32_t>(*locator, 0) != zip::kLocator64) return std::nullopt;
  const auto offset = Number<uint64_t>(*locator, 8);
  const auto end = ReadRange(*file_, offset, kEnd64Size);
  if (!end || Number<uint32_t>(*end, 0) != zip::kEndOfDirectory64) {
    return Corrupt("its zip64 locator points to no zip64 end record");
  }
  const auto records = Number<uint64_t>(*end, 32);
  const bool sound = offset + kEnd64Size + kLocator64Size == end_offset &&
                     Number<uint64_t>(*end, 4) == kEnd64Size - 12 &&
                     Number<uint64_t>(*end, 16) == 0 && Number<uint64_t>(*end, 24) == records &&
                     Number<uint32_t>(*locator, 4) == 0 && Number<uint32_t>(*locator, 16) <= 1;
  if (!sound) return Corrupt("its zip64 end record contradicts itself or its locator");
  return Directory{
      .offset = Number<uint64_t>(*end, 48), .size = Number<uint64_t>(*end, 40), .records = records};
}

absl::Status ZipArchive::ReadDirectory(const Directory& directory) {
  const auto bytes = ReadRange(*file_, directory.offset, directory.size);
  if (!bytes) return Corrupt("its central directory lies outside the file");
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.records; ++i) {
    if (at + kDirectoryHeaderSize > bytes->size() ||
        Number<uint32_t>(*bytes, at) != zip::kDirectoryHeader) {
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
  if (at == bytes->size()) return absl::OkStatus();
  return Corrupt(absl::StrCat("its central directory has ", bytes->size() - at,
                              " bytes more than its ", directory.records, " entries take"));
}

absl::Status ZipArchive::AddRecord(const std::string& header, std::string name,
                                   const std::string& extra) {
  const auto flags = Number<uint16_t>(header, 8);
  const auto version = Number<uint16_t>(header, 6);
  const std::string shown = absl::StrCat("record ", QuoteValue(name));
  Zip64Fields zip64(extra);
  const auto size = zip64.Resolve(Number<uint32_t>(header, 24));
  const auto compressed_size = zip64.Resolve(Number<uint32_t>(header, 20));
  const auto header_offset = zip64.Resolve(Number<uint32_t>(header, 42));
  if (!size || !compressed_size || !header_offset) {
    return Corrupt(absl::StrCat(shown, " lacks its zip64 sizes"));
  }
  const Record record{.header_offset = *header_offset,
                      .compressed_size = *compressed_size,
                      .size = *size,
                      .crc = Number<uint32_t>(header, 16),
                      .flags = flags,
                      .method = Number<uint16_t>(header, 10),
                      .version = version};
  if ((flags & kEncrypted) != 0) return Corrupt(absl::StrCat(shown, " is encrypted"));
  if (!zip64.sound() || Number<uint16_t>(header, 34) != 0) {
    return Corrupt(absl::StrCat(shown, " has a broken entry in the central directory"));
  }
  if (std::find(std::begin(kVersions), std::end(kVersions), version) == std::end(kVersions)) {
    return Corrupt(absl::StrCat(shown, " needs version ", version,
                                " of the zip format; accepted: 10, 20, 45"));
  }
  if (!Holds(*file_, record.header_offset, record.compressed_size)) {
    return Corrupt(absl::StrCat(shown, " lies outside the file"));
  }
  const bool sane = record.method == kStored
                        ? record.size == record.compressed_size
                        : record.size / kMaxDeflateRatio <= record.compressed_size;
  if (!sane) {
    return Corrupt(
        absl::StrCat(shown, " claims ", record.size, " bytes from ", record.compressed_size));
  }
  if (!records_.emplace(name, record).second) {
    return Corrupt(absl::StrCat(shown, " is there twice"));
  }
  return absl::OkStatus();
}

// Checks that records do not overlap and leave no gaps: records that share bytes let a small file
// unpack to a huge one, and no checksum covers bytes outside of records.
absl::Status ZipArchive::CheckRecords(uint64_t directory_offset) {
  std::vector<std::pair<uint64_t, const std::string*>> by_offset;
  for (const auto& [name, record] : records_) by_offset.emplace_back(record.header_offset, &name);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, *a.second) < std::tie(b.first, *b.second);
  });
  uint64_t end = 0;
  const std::string* before = nullptr;
  for (const auto& [offset, name] : by_offset) {
    if (offset < end) {
      return Corrupt(
          absl::StrCat("records ", QuoteValue(*before), " and ", QuoteValue(*name), " overlap"));
    }
    if (offset > end) {
      return Corrupt(absl::StrCat(offset - end, " bytes before record ", QuoteValue(*name),
                                  " belong to no record"));
    }
    Record& record = records_.at(*name);
    if (absl::Status status = ReadLocalHeader(*name, record); !status.ok()) return status;
    const absl::StatusOr<uint64_t> after = EndOf(*name, record);
    if (!after.ok()) return after.status();
    end = *after;
    before = name;
  }
  if (end == directory_offset) return absl::OkStatus();
  if (end > directory_offset) {
    return Corrupt(absl::StrCat("record ", QuoteValue(*before), " overlaps the central directory"));
  }
  return Corrupt(absl::StrCat(directory_offset - end,
                              " bytes before its central directory belong to no record"));
}

// Checks that the header before the data agrees with the central directory; sets data_offset.
absl::Status ZipArchive::ReadLocalHeader(const std::string& name, Record& record) const {
  const std::string shown = absl::StrCat("record ", QuoteValue(name));
  const auto local = ReadRange(*file_, record.header_offset, zip::kLocalHeaderSize);
  if (!local || Number<uint32_t>(*local, 0) != zip::kLocalHeader) {
    return Corrupt(absl::StrCat(shown, " has no header"));
  }
  const auto name_size = Number<uint16_t>(*local, 26);
  const auto extra_size = Number<uint16_t>(*local, 28);
  const auto rest = ReadRange(*file_, record.header_offset + zip::kLocalHeaderSize,
                              uint64_t{name_size} + extra_size);
  record.data_offset = record.header_offset + zip::kLocalHeaderSize + name_size + extra_size;
  if (!rest || !Holds(*file_, record.data_offset, record.compressed_size)) {
    return Corrupt(absl::StrCat(shown, " is cut off"));
  }
  Zip64Fields zip64(rest->substr(name_size));
  const auto size = zip64.Resolve(Number<uint32_t>(*local, 22));
  const auto compressed_size = zip64.Resolve(Number<uint32_t>(*local, 18));
  const auto crc = Number<uint32_t>(*local, 14);
  const auto version = Number<uint16_t>(*local, 4);
  const bool told_after = (record.flags & kDescribedAfter) != 0;
  const auto agrees = [&](std::optional<uint64_t> here, uint64_t there) {
    return here && (*here == there || (told_after && *here == 0));
  };
  // The versions may differ if one of the two headers needs zip64 and the other does not.
  const bool versions = version == record.version || version == 45 || record.version == 45;
  const char* const differs = absl::string_view(*rest).substr(0, name_size) != name ? "name"
                              : Number<uint16_t>(*local, 6) != record.flags         ? "flags"
                              : Number<uint16_t>(*local, 8) != record.method        ? "method"
                              : !versions                                           ? "version"
                              : !zip64.sound()                                      ? "extra data"
                              : !agrees(crc, record.crc)                            ? "checksum"
                              : !agrees(size, record.size)                          ? "size"
                              : !agrees(compressed_size, record.compressed_size) ? "compressed size"
                                                                                 : nullptr;
  if (differs == nullptr) return absl::OkStatus();
  return Corrupt(absl::StrCat("the ", differs, " in the header of ", shown,
                              " is not that of the central directory"));
}

// Returns where the next record begins: after the data and its descriptor.
absl::StatusOr<uint64_t> ZipArchive::EndOf(const std::string& name, const Record& record) const {
  const uint64_t end = record.data_offset + record.compressed_size;
  if ((record.flags & kDescribedAfter) == 0) return end;
  // A descriptor may have a signature, and sizes of four or eight bytes.
  for (const bool wide : {true, false}) {
    std::string told;
    const auto put = [&told](auto number) {
      told.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    put(record.crc);
    for (const uint64_t size : {record.compressed_size, record.size}) {
      wide ? put(size) : put(static_cast<uint32_t>(size));
    }
    std::string with_signature(reinterpret_cast<const char*>(&kDescriptor), sizeof(kDescriptor));
    with_signature += told;
    for (const std::string& wanted : {with_signature, told}) {
      if (ReadRange(*file_, end, wanted.size()) == wanted) return end + wanted.size();
    }
  }
  // miniz writes no descriptor after a record without data.
  if (record.compressed_size == 0) return end;
  return Corrupt(absl::StrCat("what follows record ", QuoteValue(name),
                              " is not what the central directory says of it"));
}

absl::StatusOr<ZipArchive::Location> ZipArchive::Locate(const std::string& name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) return NoRecord(name);
  const Record& record = found->second;
  return Location{
      .stored = record.method == kStored, .offset = record.data_offset, .size = record.size};
}

absl::Status ZipArchive::NoRecord(const std::string& name) const {
  return absl::NotFoundError(absl::StrCat(path_, ": has no record ", QuoteValue(name)));
}

absl::Status ZipArchive::ReadPieces(const std::string& name, char* out) const {
  const absl::StatusOr<Location> place = Locate(name);
  if (!place.ok()) return place.status();
  // Size of a piece that stays in the cache until its checksum is computed.
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
  return Corrupt(
      absl::StrCat("record ", QuoteValue(name), " fails its checksum; the file is damaged"));
}

absl::StatusOr<std::string> ZipArchive::Read(const std::string& name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) return NoRecord(name);
  const Record& record = found->second;
  if (record.method != kStored && record.method != kDeflate) {
    return absl::UnimplementedError(absl::StrCat(path_, ": record ", QuoteValue(name),
                                                 " is compressed by method ", record.method,
                                                 "; accepted: 0 (stored), 8 (deflate)"));
  }
  std::optional<std::string> bytes = ReadRange(*file_, record.data_offset, record.compressed_size);
  if (!bytes) return Corrupt(absl::StrCat("record ", QuoteValue(name), " is cut off"));
  if (record.method == kDeflate) {
    std::optional<std::string> plain = Inflate(*bytes, record.size);
    if (!plain) return Corrupt(absl::StrCat("record ", QuoteValue(name), " does not inflate"));
    *bytes = *std::move(plain);
  }
  if (libdeflate_crc32(0, bytes->data(), bytes->size()) != record.crc) {
    return Corrupt(
        absl::StrCat("record ", QuoteValue(name), " fails its checksum; the file is damaged"));
  }
  return *std::move(bytes);
}

}  // namespace genesis
