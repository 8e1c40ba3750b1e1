#include "replay/segment_index.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"
#include "base/files/durable_file.h"
#include "replay/file.h"

namespace genesis {
namespace {

constexpr char kIndexMagic[] = "GNSRPLX1";
constexpr size_t kPreamble = 24;
constexpr size_t kEntry = 36;
constexpr uint64_t kMaxIndex = uint64_t{1} << 30;

template <typename T>
void PutIndexed(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// A reader of numbers and strings from the front of a buffer. Returns zeros past its end.
class Bytes {
 public:
  explicit Bytes(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    T value{};
    if (Fits(sizeof(T))) std::memcpy(&value, bytes_.data(), sizeof(T));
    Skip(sizeof(T));
    return value;
  }
  std::string Text(size_t size) {
    std::string text(Fits(size) ? bytes_.substr(0, size) : "");
    Skip(size);
    return text;
  }
  bool sound() const { return sound_; }
  size_t left() const { return bytes_.size(); }

 private:
  bool Fits(size_t size) const { return size <= bytes_.size(); }
  void Skip(size_t size) {
    sound_ = sound_ && Fits(size);
    bytes_.remove_prefix(Fits(size) ? size : bytes_.size());
  }

  absl::string_view bytes_;
  bool sound_ = true;
};

std::optional<std::string> ReadFile(const std::string& path) {
  const absl::StatusOr<ReplayFile> file = ReplayFile::OpenToRead(path);
  if (!file.ok()) return std::nullopt;
  const absl::StatusOr<uint64_t> size = file->Size();
  if (!size.ok() || *size < kPreamble + sizeof(uint32_t) || *size > kMaxIndex) return std::nullopt;
  std::string bytes(*size, '\0');
  if (!file->Read(0, bytes.size(), bytes.data()).ok()) return std::nullopt;
  return bytes;
}

}  // namespace

std::string SegmentIndexName(uint64_t first) { return absl::StrFormat("%020u.index", first); }

absl::Status WriteSegmentIndex(const std::string& folder, uint64_t first, uint64_t segment_size,
                               const std::vector<RecordEntry>& records) {
  std::string bytes(kIndexMagic, 8);
  PutIndexed(bytes, segment_size);
  PutIndexed(bytes, static_cast<uint64_t>(records.size()));
  for (const RecordEntry& record : records) {
    PutIndexed(bytes, record.offset);
    PutIndexed(bytes, record.body_size);
    PutIndexed(bytes, record.first);
    PutIndexed(bytes, record.body_checksum);
    PutIndexed(bytes, record.count);
    PutIndexed(bytes, record.id_size);
    bytes += record.id;
  }
  PutIndexed(bytes, Crc32c(0, bytes.data(), bytes.size()));
  return WriteDurably(absl::StrCat(folder, "/", SegmentIndexName(first)), bytes);
}

std::optional<std::vector<RecordEntry>> ReadSegmentIndex(const std::string& folder,
                                                         const SegmentHeader& header,
                                                         uint64_t segment_size) {
  const auto file = ReadFile(absl::StrCat(folder, "/", SegmentIndexName(header.first)));
  if (!file) return std::nullopt;
  const size_t checked = file->size() - sizeof(uint32_t);
  uint32_t checksum = 0;
  std::memcpy(&checksum, file->data() + checked, sizeof(checksum));
  if (Crc32c(0, file->data(), checked) != checksum) return std::nullopt;
  Bytes bytes(absl::string_view(*file).substr(0, checked));
  if (bytes.Text(8) != kIndexMagic || bytes.Take<uint64_t>() != segment_size) return std::nullopt;
  const auto count = bytes.Take<uint64_t>();
  if (count > bytes.left() / kEntry) return std::nullopt;
  std::vector<RecordEntry> records;
  uint64_t offset = header.size;
  uint64_t next = header.first;
  for (uint64_t i = 0; i < count; ++i) {
    RecordEntry record;
    record.offset = bytes.Take<uint64_t>();
    record.body_size = bytes.Take<uint64_t>();
    record.first = bytes.Take<uint64_t>();
    record.body_checksum = bytes.Take<uint32_t>();
    record.count = bytes.Take<uint32_t>();
    record.id_size = bytes.Take<uint32_t>();
    record.id = bytes.Text(record.id_size);
    const bool sound = bytes.sound() && record.offset == offset && record.first == next &&
                       record.body_size <= kMaxBatchBytes;
    if (!sound) return std::nullopt;
    offset = record.end();
    next += record.count;
    records.push_back(std::move(record));
  }
  if (bytes.left() != 0 || offset != segment_size) return std::nullopt;
  return records;
}

}  // namespace genesis
