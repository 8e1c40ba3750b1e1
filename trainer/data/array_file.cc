#include "trainer/data/array_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

constexpr char kNpy[] = ".npy";

// Lists names of a file for a message: `"x", "y" and 3 more`.
std::string QuoteNames(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 8;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxShown); ++i) {
    shown.push_back(QuoteValue(names[i]));
  }
  if (names.empty()) return "none";
  const std::string list = absl::StrJoin(shown, ", ");
  return names.size() == shown.size()
             ? list
             : absl::StrCat(list, " and ", names.size() - shown.size(), " more");
}

// Returns the array of a .npy file at `offset` of `file`, of `size` bytes.
absl::StatusOr<StoredArray> ArrayInFile(const std::string& name,
                                        const std::shared_ptr<const DataFile>& file,
                                        uint64_t offset, uint64_t size) {
  absl::StatusOr<NpyHeader> header = ReadNpyHeader(
      name, size,
      [&](uint64_t at, uint64_t count, char* out) { return file->Read(offset + at, count, out); });
  if (!header.ok()) return header.status();
  return StoredArray(header->type, std::move(header->shape), file, offset + header->data_offset);
}

}  // namespace

StoredArray::StoredArray(ElementType type, std::vector<int64_t> shape,
                         std::shared_ptr<const DataFile> file, uint64_t offset)
    : type_(type), shape_(std::move(shape)), offset_(offset), file_(std::move(file)) {}

StoredArray::StoredArray(ElementType type, std::vector<int64_t> shape, std::string bytes,
                         uint64_t offset)
    : type_(type),
      shape_(std::move(shape)),
      offset_(offset),
      bytes_(std::make_shared<const std::string>(std::move(bytes))) {}

int64_t StoredArray::held_bytes() const {
  return bytes_ == nullptr ? 0 : static_cast<int64_t>(bytes_->size());
}

absl::Status StoredArray::Read(int64_t first, int64_t count, char* out) const {
  const auto size = static_cast<uint64_t>(ElementSize(type_));
  const uint64_t at = offset_ + static_cast<uint64_t>(first) * size;
  if (bytes_ == nullptr) return file_->Read(at, static_cast<uint64_t>(count) * size, out);
  std::memcpy(out, bytes_->data() + at, static_cast<size_t>(count) * size);
  return absl::OkStatus();
}

absl::Status StoredArray::ReadFloats(int64_t first, int64_t count, float* out) const {
  if (type_ == ElementType::kFloat32) return Read(first, count, reinterpret_cast<char*>(out));
  const int64_t size = ElementSize(type_);
  char piece[8192];
  const int64_t most = static_cast<int64_t>(sizeof(piece)) / size;
  for (int64_t done = 0; done < count; done += most) {
    const int64_t now = std::min(most, count - done);
    if (absl::Status status = Read(first + done, now, piece); !status.ok()) return status;
    ToFloats(type_, piece, now, out + done);
  }
  return absl::OkStatus();
}

absl::StatusOr<ArrayFile> ArrayFile::Open(const std::string& path, const std::string& npy_name,
                                          int64_t memory_limit_bytes) {
  ArrayFile arrays(path, memory_limit_bytes);
  if (absl::EndsWith(path, kNpy)) {
    absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
    if (!file.ok()) return file.status();
    arrays.npy_ = *std::move(file);
    arrays.names_ = {npy_name};
  } else if (absl::EndsWith(path, ".safetensors")) {
    absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
    if (!reader.ok()) return reader.status();
    for (const auto& [name, tensor] : reader->tensors()) arrays.names_.push_back(name);
    arrays.safetensors_ = *std::move(reader);
  } else {
    absl::StatusOr<ZipArchive> zip = ZipArchive::Open(path);
    if (!zip.ok()) return zip.status();
    for (const std::string& record : zip->names()) {
      const std::string name(absl::StripSuffix(record, kNpy));
      if (name != record && zip->Contains(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": has the members ", QuoteValue(name), " and ", QuoteValue(record),
                         ", both for the array ", QuoteValue(name),
                         "; accepted: each array once, as NAME.npy; save it again with np.savez"));
      }
      arrays.names_.push_back(name);
    }
    arrays.zip_ = *std::move(zip);
  }
  return arrays;
}

absl::StatusOr<StoredArray> ArrayFile::Load(const std::string& name) {
  if (zip_) return LoadFromZip(name);
  if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no tensor ", QuoteValue(name),
                                            "; it has: ", QuoteNames(names_)));
  }
  if (npy_ != nullptr) {
    return ArrayInFile(absl::StrCat(path_, ": ", name), npy_, 0, npy_->size());
  }
  const SafetensorsReader::Tensor& tensor = safetensors_->tensors().at(name);
  return StoredArray(tensor.type, tensor.shape, safetensors_->file(), tensor.offset);
}

absl::StatusOr<StoredArray> ArrayFile::LoadFromZip(const std::string& name) {
  const std::string record = name + kNpy;
  if (!zip_->Contains(record)) {
    return absl::NotFoundError(absl::StrCat(path_, ": has no array ", QuoteValue(name),
                                            ", which is the member ", QuoteValue(record),
                                            "; it has the members: ", QuoteNames(zip_->names())));
  }
  const absl::StatusOr<ZipArchive::Location> place = zip_->Locate(record);
  if (!place.ok()) return place.status();
  if (!place->stored) {
    if (place->size <= static_cast<uint64_t>(std::max<int64_t>(room_, 0))) {
      return Unpack(name, record);
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        path_, ": ", name, " is compressed and takes ", place->size,
        " bytes when unpacked; accepted: ", room_,
        ", what is left of dataset.memory_limit_bytes; save the file with np.savez instead of "
        "np.savez_compressed, so that it is read piece by piece, or raise the limit"));
  }
  if (absl::Status status = zip_->CheckStored(record); !status.ok()) return status;
  return ArrayInFile(absl::StrCat(path_, ": ", name), zip_->file(), place->offset, place->size);
}

absl::StatusOr<StoredArray> ArrayFile::Unpack(const std::string& name, const std::string& record) {
  absl::StatusOr<std::string> bytes = zip_->Read(record);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<NpyHeader> header =
      ReadNpyHeader(absl::StrCat(path_, ": ", name), bytes->size(),
                    [&bytes](uint64_t at, uint64_t count, char* out) {
                      std::memcpy(out, bytes->data() + at, count);
                      return absl::OkStatus();
                    });
  if (!header.ok()) return header.status();
  room_ -= static_cast<int64_t>(bytes->size());
  return StoredArray(header->type, std::move(header->shape), *std::move(bytes),
                     header->data_offset);
}

absl::Status ArrayFile::CheckUnchanged() const {
  if (npy_ != nullptr) return npy_->CheckUnchanged();
  return zip_ ? zip_->file()->CheckUnchanged() : safetensors_->file()->CheckUnchanged();
}

}  // namespace genesis
