#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/formats/json_cursor.h"
#include "trainer/formats/npy_header.h"
#include "trainer/formats/safetensors.h"
#include "trainer/formats/safetensors_types.h"

namespace genesis {
namespace {

constexpr uint64_t kLengthSize = 8;
// The limit of the reference implementation.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
constexpr size_t kMaxShape = 64;

// One tensor, as the header describes it.
struct Entry {
  std::string type;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  bool has_type = false, has_shape = false, has_offsets = false;
};

bool ParseCounts(JsonCursor& json, size_t most, std::vector<int64_t>& counts) {
  return json.Array([&] {
    if (counts.size() == most) return json.Fail("too many numbers");
    return json.Count(counts.emplace_back());
  });
}

bool ParseEntry(JsonCursor& json, Entry& entry) {
  return json.Object([&](const std::string& key) {
    bool* const seen = key == "dtype"          ? &entry.has_type
                       : key == "shape"        ? &entry.has_shape
                       : key == "data_offsets" ? &entry.has_offsets
                                               : nullptr;
    if (seen == nullptr) return json.Fail("accepted: dtype, shape, data_offsets");
    if (std::exchange(*seen, true)) return json.Fail(absl::StrCat(key, " is there twice"));
    if (key == "dtype") return json.String(entry.type);
    if (key == "shape") return ParseCounts(json, kMaxShape, entry.shape);
    return ParseCounts(json, 2, entry.offsets);
  });
}

// Returns the bytes of `shape`, or nullopt if they are too many.
std::optional<uint64_t> Bytes(const std::vector<int64_t>& shape, ElementType type) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension > 0 && elements > kMaxArrayElements / dimension) return std::nullopt;
    elements *= dimension;
  }
  return static_cast<uint64_t>(elements * ElementSize(type));
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  if (!file.ok()) return file.status();
  SafetensorsReader reader;
  reader.file_ = *std::move(file);
  if (absl::Status status = reader.ReadHeader(); !status.ok()) return status;
  return reader;
}

absl::Status SafetensorsReader::Broken(const std::string& what) const {
  return absl::DataLossError(
      absl::StrCat(file_->path(), ": is not a sound safetensors file: ", what));
}

absl::Status SafetensorsReader::ReadHeader() {
  uint64_t length = 0;
  if (file_->size() < kLengthSize) {
    return Broken(absl::StrCat("it has ", file_->size(), " bytes; the header's length takes 8"));
  }
  if (absl::Status status = file_->Read(0, kLengthSize, &length); !status.ok()) return status;
  if (length > kMaxSafetensorsHeader) {
    return Broken(absl::StrCat("its header claims ", length, " bytes; accepted: at most ",
                               kMaxSafetensorsHeader, file_->LooksLike()));
  }
  if (length > file_->size() - kLengthSize) {
    return Broken(absl::StrCat("its header of ", length, " bytes is cut off; the file has ",
                               file_->size(), file_->LooksLike()));
  }
  std::string header(length, '\0');
  absl::Status status = file_->Read(kLengthSize, length, header.data());
  if (status.ok()) status = ParseHeader(header, kLengthSize + length);
  if (status.ok()) status = CheckLayout(kLengthSize + length);
  return status;
}

absl::Status SafetensorsReader::ParseHeader(const std::string& header, uint64_t data_offset) {
  JsonCursor json(header);
  absl::Status fault;
  const auto fail = [&fault](absl::Status status) {
    fault = std::move(status);
    return false;
  };
  bool has_metadata = false;
  const auto metadata = [&](const std::string& key) {
    std::string value;
    if (!json.String(value)) return false;
    const bool fresh = metadata_.emplace(key, value).second;
    return fresh || fail(Broken(absl::StrCat("__metadata__ has ", QuoteValue(key), " twice")));
  };
  const auto member = [&](const std::string& name) {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata, true)) return fail(Broken("__metadata__ is there twice"));
      return json.Object(metadata);
    }
    Entry entry;
    if (!ParseEntry(json, entry)) return false;
    const std::string tensor = absl::StrCat("tensor ", QuoteValue(name), " ");
    if (!entry.has_type || !entry.has_shape || entry.offsets.size() != 2) {
      return fail(Broken(absl::StrCat(tensor, "lacks dtype, shape or two data_offsets")));
    }
    const std::optional<ElementType> type = SafetensorsType(entry.type);
    if (!type) {
      return fail(absl::InvalidArgumentError(absl::StrCat(
          file_->path(), ": ", tensor, "has dtype ", OneLine(entry.type, kMaxNameBytes),
          "; accepted: F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL; convert it")));
    }
    const std::optional<uint64_t> bytes = Bytes(entry.shape, *type);
    const int64_t begin = entry.offsets[0];
    const int64_t end = entry.offsets[1];
    if (!bytes || end < begin || static_cast<uint64_t>(end - begin) != *bytes) {
      return fail(
          Broken(absl::StrCat(tensor, "has data_offsets [", begin, ", ", end, "] but its shape ",
                              ShapeText(entry.shape), " of ", entry.type, " needs ",
                              bytes ? absl::StrCat(*bytes, " bytes") : "2^40 and more")));
    }
    if (static_cast<uint64_t>(end) > file_->size() - data_offset) {
      return fail(Broken(absl::StrCat(tensor, "ends at byte ", end, " of the data, which has ",
                                      file_->size() - data_offset)));
    }
    const Tensor value{.type = *type,
                       .shape = std::move(entry.shape),
                       .offset = data_offset + static_cast<uint64_t>(begin),
                       .size = *bytes};
    return tensors_.emplace(name, value).second ||
           fail(Broken(absl::StrCat(tensor, "is there twice")));
  };
  if (json.Object(member) && json.End()) return absl::OkStatus();
  return fault.ok() ? Broken(absl::StrCat("its header is unreadable ", json.fault())) : fault;
}

absl::Status SafetensorsReader::CheckLayout(uint64_t data_offset) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, tensor] : tensors_) ranges.emplace_back(tensor.offset, tensor.size);
  std::sort(ranges.begin(), ranges.end());
  uint64_t end = data_offset;
  for (const auto& [offset, size] : ranges) {
    if (offset != end) {
      return Broken(absl::StrCat("its tensors ", offset < end ? "overlap" : "leave a hole",
                                 " at byte ", std::min(offset, end) - data_offset, " of the data"));
    }
    end = offset + size;
  }
  if (end == file_->size()) return absl::OkStatus();
  return Broken(absl::StrCat(file_->size() - end, " bytes after its last tensor belong to none"));
}

absl::Status SafetensorsReader::Read(const Tensor& tensor, void* out) const {
  return file_->Read(tensor.offset, tensor.size, out);
}

}  // namespace genesis
