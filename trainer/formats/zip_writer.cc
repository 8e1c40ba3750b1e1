#include "trainer/formats/zip_writer.h"

#include <algorithm>
#include <type_traits>

#include "base/files/crc32c.h"
#include "trainer/formats/zip_format.h"

namespace genesis {
namespace {

constexpr uint16_t kPaddingExtra = 0x4246;  // "FB", as torch pads.
constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kUtf8 = 0x0800;
constexpr uint16_t kFirstOfJanuary1980 = 0x21;
constexpr uint64_t kAlignment = 64;

// A buffer of consecutive little-endian numbers.
class Fields {
 public:
  template <typename T>
  Fields& Add(T number) {
    static_assert(std::is_unsigned_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Fields& Add16(uint64_t number) {
    return Add(static_cast<uint16_t>(std::min(number, zip::kFull16)));
  }
  Fields& Add32(uint64_t number) {
    return Add(static_cast<uint32_t>(std::min(number, zip::kFull32)));
  }
  Fields& Append(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Adds the fields common to local header and directory, from the flags to the length of the name.
Fields& AddCommon(Fields& fields, const ZipWriter::Record& record) {
  constexpr uint16_t kStored = 0;
  constexpr uint16_t kMidnight = 0;
  return fields.Add(kUtf8)
      .Add(kStored)
      .Add(kMidnight)
      .Add(kFirstOfJanuary1980)
      .Add(record.crc32)
      .Add32(record.size)
      .Add32(record.size)
      .Add16(record.name.size());
}

std::string LocalHeader(const ZipWriter::Record& record) {
  Fields extra;
  const bool large = record.size >= zip::kFull32;
  if (large) extra.Add(zip::kZip64Extra).Add16(16).Add(record.size).Add(record.size);
  // Pad to the next multiple; the padding's own header takes four bytes.
  const uint64_t begin =
      record.header_offset + zip::kLocalHeaderSize + record.name.size() + extra.bytes().size() + 4;
  const uint64_t padding = (kAlignment - begin % kAlignment) % kAlignment;
  extra.Add(kPaddingExtra).Add16(padding).Append(std::string(padding, 'Z'));
  Fields header;
  header.Add(zip::kLocalHeader).Add(large ? kVersion64 : kVersion);
  AddCommon(header, record).Add16(extra.bytes().size());
  return header.Append(record.name).Append(extra.bytes()).bytes();
}

std::string DirectoryHeader(const ZipWriter::Record& record) {
  Fields large;
  if (record.size >= zip::kFull32) large.Add(record.size).Add(record.size);
  if (record.header_offset >= zip::kFull32) large.Add(record.header_offset);
  Fields extra;
  if (!large.bytes().empty()) {
    extra.Add(zip::kZip64Extra).Add16(large.bytes().size()).Append(large.bytes());
  }
  const uint16_t version = large.bytes().empty() ? kVersion : kVersion64;
  Fields header;
  header.Add(zip::kDirectoryHeader).Add(version).Add(version);
  AddCommon(header, record)
      .Add16(extra.bytes().size())
      .Add16(0)  // Comment.
      .Add16(0)  // Disk.
      .Add16(0)
      .Add32(0)  // Attributes.
      .Add32(record.header_offset);
  return header.Append(record.name).Append(extra.bytes()).bytes();
}

}  // namespace

void ZipWriter::Write(const void* data, uint64_t size, uint32_t crc32c) {
  sink_(data, size);
  file_crc32c_ = CombineCrc32c(file_crc32c_, crc32c, size);
  size_ += size;
}

void ZipWriter::Write(const std::string& bytes) {
  Write(bytes.data(), bytes.size(), Crc32c(0, bytes.data(), bytes.size()));
}

void ZipWriter::Add(const std::string& name, const void* data, uint64_t size) {
  Add(name, data, size, ChecksumsOf(data, size));
}

void ZipWriter::Add(const std::string& name, const void* data, uint64_t size,
                    const Checksums& sums) {
  records_.push_back({.name = name,
                      .size = size,
                      .crc32 = sums.crc32,
                      .crc32c = sums.crc32c,
                      .header_offset = size_});
  Write(LocalHeader(records_.back()));
  Write(data, size, sums.crc32c);
}

void ZipWriter::Finish() {
  const uint64_t offset = size_;
  for (const Record& record : records_) Write(DirectoryHeader(record));
  const uint64_t size = size_ - offset;
  const uint64_t count = records_.size();
  const uint64_t end64 = size_;
  if (offset >= zip::kFull32 || size >= zip::kFull32 || count >= zip::kFull16) {
    Write(Fields()
              .Add(zip::kEndOfDirectory64)
              .Add(uint64_t{44})  // Number of bytes that follow.
              .Add(kVersion64)
              .Add(kVersion64)
              .Add32(0)
              .Add32(0)
              .Add(count)
              .Add(count)
              .Add(size)
              .Add(offset)
              .bytes());
    Write(Fields().Add(zip::kLocator64).Add32(0).Add(end64).Add32(1).bytes());
  }
  Write(Fields()
            .Add(zip::kEndOfDirectory)
            .Add16(0)
            .Add16(0)
            .Add16(count)
            .Add16(count)
            .Add32(size)
            .Add32(offset)
            .Add16(0)
            .bytes());
}

}  // namespace genesis
