#include "trainer/data/npy_header.h"

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
// Magic, version and a length of two bytes.
constexpr size_t kSmallestPreamble = kMagicSize + 4;
// NumPy's own headers take about 128 bytes.
constexpr uint32_t kMaxHeader = 1 << 16;

// What follows 'key': in the header, a Python literal such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// nullopt unless it is there exactly once.
std::optional<std::string> HeaderValue(const std::string& header, const std::string& key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t found = header.find(quoted);
  if (found == std::string::npos) return std::nullopt;
  if (header.find(quoted, found + 1) != std::string::npos) return std::nullopt;
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

absl::StatusOr<ElementType> ParseType(const std::string& name, const std::string& descr) {
  constexpr std::pair<const char*, ElementType> kTypes[] = {
      {"'<f4'", ElementType::kFloat32}, {"'<f8'", ElementType::kFloat64},
      {"'<f2'", ElementType::kFloat16}, {"'<i8'", ElementType::kInt64},
      {"'<i4'", ElementType::kInt32},   {"'<i2'", ElementType::kInt16},
      {"'|i1'", ElementType::kInt8},    {"'|u1'", ElementType::kUint8},
      {"'|b1'", ElementType::kBool}};
  for (const auto& [text, type] : kTypes) {
    if (descr == text) return type;
  }
  if (absl::StartsWith(descr, "'>")) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is big-endian (", descr,
        "); accepted: little-endian; save it as array.astype(array.dtype.newbyteorder('<'))"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " has elements of type ", descr,
                   "; accepted: float32, float64, float16, int64, int32, int16, int8, uint8, bool; "
                   "convert it with array.astype"));
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
    if (dimension > 0 && elements > kMaxArrayElements / dimension) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has shape ", text, "; accepted: at most 2^40 elements"));
    }
    elements *= dimension;
    shape.push_back(dimension);
  }
  return shape;
}

struct Preamble {
  std::string header;
  uint64_t data_offset = 0;
};

absl::StatusOr<Preamble> ReadPreamble(const std::string& name, uint64_t size, ByteReader read) {
  char start[kSmallestPreamble + 2] = {};
  if (size < kSmallestPreamble) {
    return absl::DataLossError(absl::StrCat(name, " is not a NumPy array"));
  }
  const uint64_t start_size = std::min<uint64_t>(size, sizeof(start));
  if (absl::Status status = read(0, start_size, start); !status.ok()) return status;
  if (std::memcmp(start, kMagic, kMagicSize) != 0) {
    return absl::DataLossError(absl::StrCat(name, " is not a NumPy array"));
  }
  const int version = static_cast<unsigned char>(start[kMagicSize]);
  if (version != 1 && version != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has .npy version ", version, "; accepted: 1 and 2"));
  }
  const size_t length_size = version == 1 ? 2 : 4;
  const size_t header_offset = kMagicSize + 2 + length_size;
  uint32_t length = 0;
  std::memcpy(&length, start + kMagicSize + 2, length_size);
  if (size < header_offset || length > size - header_offset) {
    return absl::DataLossError(absl::StrCat(name, ": its header is cut off"));
  }
  if (length > kMaxHeader) {
    return absl::DataLossError(absl::StrCat(name, ": its header claims ", length,
                                            " bytes; accepted: at most ", kMaxHeader));
  }
  Preamble preamble{.header = std::string(length, '\0'), .data_offset = header_offset + length};
  if (absl::Status status = read(header_offset, length, preamble.header.data()); !status.ok()) {
    return status;
  }
  return preamble;
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

int64_t ShapeElements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

absl::StatusOr<NpyHeader> ReadNpyHeader(const std::string& name, uint64_t size, ByteReader read) {
  const absl::StatusOr<Preamble> preamble = ReadPreamble(name, size, read);
  if (!preamble.ok()) return preamble.status();
  const auto descr = HeaderValue(preamble->header, "descr");
  const auto fortran = HeaderValue(preamble->header, "fortran_order");
  const auto shape_text = HeaderValue(preamble->header, "shape");
  if (!descr || !fortran || !shape_text) {
    return absl::DataLossError(
        absl::StrCat(name, ": its header lacks descr, fortran_order or shape, or has one twice"));
  }
  if (*fortran != "False") {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is in fortran order; accepted: C order; save np.ascontiguousarray(array)"));
  }
  const absl::StatusOr<ElementType> type = ParseType(name, *descr);
  if (!type.ok()) return type.status();
  absl::StatusOr<std::vector<int64_t>> shape = ParseShape(name, *shape_text);
  if (!shape.ok()) return shape.status();
  const auto expected = static_cast<uint64_t>(ShapeElements(*shape) * ElementSize(*type));
  const uint64_t held = size - preamble->data_offset;
  if (held != expected) {
    return absl::DataLossError(absl::StrCat(name, " holds ", held, " bytes but its shape ",
                                            *shape_text, " of ", ElementTypeName(*type), " needs ",
                                            expected));
  }
  return NpyHeader{.type = *type, .shape = *std::move(shape), .data_offset = preamble->data_offset};
}

}  // namespace genesis
