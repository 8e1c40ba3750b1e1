#include "trainer/data/npz_reader.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace genesis {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
// 2^40 elements; a product of dimensions below it cannot overflow.
constexpr int64_t kMaxElements = int64_t{1} << 40;

int64_t ElementSize(NpyType type) {
  switch (type) {
    case NpyType::kFloat32:
      return 4;
    case NpyType::kFloat64:
    case NpyType::kInt64:
      return 8;
    case NpyType::kBool:
    case NpyType::kUint8:
      return 1;
  }
  return 1;
}

// What follows 'key': in the header, a Python literal such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
std::optional<std::string> HeaderValue(const std::string& header, const std::string& key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t found = header.find(quoted);
  if (found == std::string::npos) return std::nullopt;
  const std::string rest(
      absl::StripLeadingAsciiWhitespace(absl::string_view(header).substr(found + quoted.size())));
  size_t end = std::string::npos;
  if (absl::StartsWith(rest, "(")) {
    end = rest.find(')');
    if (end != std::string::npos) ++end;
  } else if (absl::StartsWith(rest, "[")) {
    return "a structured type";
  } else {
    end = rest.find_first_of(",}");
  }
  if (end == std::string::npos) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(rest.substr(0, end)));
}

absl::StatusOr<NpyType> ParseType(const std::string& name, const std::string& descr) {
  if (descr == "'<f4'") return NpyType::kFloat32;
  if (descr == "'<f8'") return NpyType::kFloat64;
  if (descr == "'|b1'") return NpyType::kBool;
  if (descr == "'|u1'") return NpyType::kUint8;
  if (descr == "'<i8'") return NpyType::kInt64;
  if (absl::StartsWith(descr, "'>")) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is big-endian (", descr,
        "); accepted: little-endian; save it as array.astype(array.dtype.newbyteorder('<'))"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, " has elements of type ", descr,
      "; accepted: float32, float64, bool, uint8, int64; convert it with array.astype"));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& name, const std::string& text) {
  const absl::Status broken =
      absl::DataLossError(absl::StrCat(name, ": the shape ", text, " in its header is unreadable"));
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return broken;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (absl::string_view part : absl::StrSplit(text.substr(1, text.size() - 2), ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    int64_t dimension = 0;
    if (!absl::SimpleAtoi(part, &dimension) || dimension < 0) return broken;
    if (dimension > 0 && elements > kMaxElements / dimension) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has shape ", text, "; accepted: at most 2^40 elements"));
    }
    elements *= dimension;
    shape.push_back(dimension);
  }
  return shape;
}

// Version, header text and the offset at which the elements begin.
struct Preamble {
  std::string header;
  size_t data_offset = 0;
};

absl::StatusOr<Preamble> ParsePreamble(const std::string& name, const std::string& bytes) {
  if (bytes.size() < kMagicSize + 4 || bytes.compare(0, kMagicSize, kMagic, kMagicSize) != 0) {
    return absl::DataLossError(absl::StrCat(name, " is not a NumPy array"));
  }
  const int version = static_cast<unsigned char>(bytes[kMagicSize]);
  if (version != 1 && version != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has .npy version ", version, "; accepted: 1 and 2"));
  }
  const size_t length_size = version == 1 ? 2 : 4;
  const size_t header_offset = kMagicSize + 2 + length_size;
  uint32_t length = 0;
  if (bytes.size() < header_offset) {
    return absl::DataLossError(absl::StrCat(name, ": its header is cut off"));
  }
  std::memcpy(&length, bytes.data() + kMagicSize + 2, length_size);
  if (length > bytes.size() - header_offset) {
    return absl::DataLossError(absl::StrCat(name, ": its header is cut off"));
  }
  return Preamble{.header = bytes.substr(header_offset, length),
                  .data_offset = header_offset + length};
}

}  // namespace

std::string NpyTypeName(NpyType type) {
  switch (type) {
    case NpyType::kFloat32:
      return "float32";
    case NpyType::kFloat64:
      return "float64";
    case NpyType::kBool:
      return "bool";
    case NpyType::kUint8:
      return "uint8";
    case NpyType::kInt64:
      return "int64";
  }
  return "";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

int64_t NpyArray::size() const {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

double NpyArray::At(int64_t i) const {
  const char* at = bytes.data() + i * ElementSize(type);
  const auto read = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return static_cast<double>(value);
  };
  switch (type) {
    case NpyType::kFloat32:
      return read(float{});
    case NpyType::kFloat64:
      return read(double{});
    case NpyType::kInt64:
      return read(int64_t{});
    case NpyType::kUint8:
      return read(uint8_t{});
    case NpyType::kBool:
      return *at != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

absl::StatusOr<NpyArray> ParseNpy(const std::string& name, std::string bytes) {
  const absl::StatusOr<Preamble> preamble = ParsePreamble(name, bytes);
  if (!preamble.ok()) return preamble.status();
  const auto descr = HeaderValue(preamble->header, "descr");
  const auto fortran = HeaderValue(preamble->header, "fortran_order");
  const auto shape_text = HeaderValue(preamble->header, "shape");
  if (!descr || !fortran || !shape_text) {
    return absl::DataLossError(
        absl::StrCat(name, ": its header lacks descr, fortran_order or shape"));
  }
  if (*fortran != "False") {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is in fortran order; accepted: C order; save np.ascontiguousarray(array)"));
  }
  const absl::StatusOr<NpyType> type = ParseType(name, *descr);
  if (!type.ok()) return type.status();
  absl::StatusOr<std::vector<int64_t>> shape = ParseShape(name, *shape_text);
  if (!shape.ok()) return shape.status();
  NpyArray array{.type = *type, .shape = *std::move(shape), .bytes = {}};
  const auto expected = static_cast<uint64_t>(array.size() * ElementSize(*type));
  const uint64_t held = bytes.size() - preamble->data_offset;
  if (held != expected) {
    return absl::DataLossError(absl::StrCat(name, " holds ", held, " bytes but its shape ",
                                            *shape_text, " of ", NpyTypeName(*type), " needs ",
                                            expected));
  }
  bytes.erase(0, preamble->data_offset);
  array.bytes = std::move(bytes);
  return array;
}

absl::StatusOr<NpzReader> NpzReader::Open(const std::string& path) {
  absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) return archive.status();
  return NpzReader(*std::move(archive));
}

absl::StatusOr<NpyArray> NpzReader::Read(const std::string& array) const {
  if (!Contains(array)) {
    return absl::NotFoundError(absl::StrCat(archive_.path(), ": has no array ", array,
                                            "; it has: ", absl::StrJoin(archive_.names(), ", ")));
  }
  absl::StatusOr<std::string> bytes = archive_.Read(array + ".npy");
  if (!bytes.ok()) return bytes.status();
  return ParseNpy(absl::StrCat(archive_.path(), ": ", array), *std::move(bytes));
}

}  // namespace genesis
