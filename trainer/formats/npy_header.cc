#include "trainer/formats/npy_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text/field_error.h"
#include "base/text/text.h"

namespace genesis {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
// Size of magic, version and a two-byte length.
constexpr size_t kSmallestPreamble = kMagicSize + 4;
// Maximum size of the header, far above NumPy's own headers of about 128 bytes.
constexpr uint32_t kMaxNpyHeader = 1 << 16;

// The header of a .npy file: a Python literal such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// with exactly these keys, in any order.
struct HeaderFields {
  std::optional<std::string> descr;  // In single quotes: "'<f4'".
  std::optional<std::string> fortran_order;
  std::optional<std::string> shape;
};

// A parser of the header literal, which rejects everything else.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  // Returns the error with its byte, or "" if the whole text is a valid header literal.
  std::string Parse(HeaderFields& fields) {
    if (!Take('{')) return Fault("accepted: a dict {...}");
    while (!Take('}')) {
      std::string key;
      if (!String(key)) return Fault("accepted: a key in quotes");
      std::optional<std::string>* const field = key == "'descr'"           ? &fields.descr
                                                : key == "'fortran_order'" ? &fields.fortran_order
                                                : key == "'shape'"         ? &fields.shape
                                                                           : nullptr;
      if (field == nullptr) return Fault(absl::StrCat("has the key ", QuoteValue(key)));
      if (field->has_value()) return Fault(absl::StrCat(key, " is there twice"));
      if (!Take(':')) return Fault("accepted: ':'");
      std::string& value = field->emplace();
      const bool read = field == &fields.descr   ? Descr(value)
                        : field == &fields.shape ? Tuple(value)
                                                 : Word(value);
      if (!read) return Fault(absl::StrCat("the value of ", key, " is unreadable"));
      if (Take(',')) continue;
      if (!Take('}')) return Fault("accepted: ',' or '}'");
      break;
    }
    Space();
    if (at_ != text_.size()) return Fault("accepted: nothing but white space after the dict");
    if (fields.descr && fields.fortran_order && fields.shape) return "";
    return Fault("it lacks descr, fortran_order or shape");
  }

 private:
  std::string Fault(const std::string& what) const {
    return absl::StrCat("at byte ", at_, " of its header: ", what);
  }
  void Space() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(char c) {
    Space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Reads a string in either kind of quotes; the result has single quotes.
  bool String(std::string& value) {
    Space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == absl::string_view::npos) return false;
    const absl::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (inside.find('\\') != absl::string_view::npos) return false;
    value = absl::StrCat("'", inside, "'");
    at_ = end + 1;
    return true;
  }
  // Reads a string, or the list of a structured type, which is not parsed further.
  bool Descr(std::string& value) {
    Space();
    if (at_ == text_.size() || text_[at_] != '[') return String(value);
    int depth = 0;
    do {
      depth += text_[at_] == '[' ? 1 : text_[at_] == ']' ? -1 : 0;
      ++at_;
    } while (depth > 0 && at_ < text_.size());
    value = "a structured type";
    return depth == 0;
  }
  bool Word(std::string& value) {
    Space();
    for (const char* const word : {"False", "True"}) {
      if (!absl::StartsWith(text_.substr(at_), word)) continue;
      value = word;
      at_ += value.size();
      return true;
    }
    return false;
  }
  bool Tuple(std::string& value) {
    Space();
    if (at_ == text_.size() || text_[at_] != '(') return false;
    const size_t end = text_.find(')', at_);
    if (end == absl::string_view::npos) return false;
    value = std::string(text_.substr(at_, end + 1 - at_));
    at_ = end + 1;
    return true;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

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
        name, " is big-endian (", OneLine(descr, kMaxNameBytes),
        "); accepted: little-endian; save it as array.astype(array.dtype.newbyteorder('<'))"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " has elements of type ", OneLine(descr, kMaxNameBytes),
                   "; accepted: float32, float64, float16, int64, int32, int16, int8, uint8, bool; "
                   "convert it with array.astype"));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& name, const std::string& text) {
  const absl::Status broken = absl::DataLossError(absl::StrCat(
      name, ": the shape ", OneLine(text, kMaxNameBytes), " in its header is unreadable"));
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return broken;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text).substr(1, text.size() - 2), ',');
  // "()" and the comma that ends "(3,)" leave an empty part; "(3)" is a number in Python.
  if (absl::StripAsciiWhitespace(parts.back()).empty()) {
    parts.pop_back();
  } else if (parts.size() == 1) {
    return broken;
  }
  for (absl::string_view part : parts) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty() || !std::all_of(part.begin(), part.end(), absl::ascii_isdigit)) return broken;
    int64_t dimension = 0;
    if (!absl::SimpleAtoi(part, &dimension) || dimension < 0) return broken;
    if (dimension > 0 && elements > kMaxArrayElements / dimension) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has shape ", OneLine(text, kMaxNameBytes), "; accepted: at most 2^40 elements"));
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
  if (length > kMaxNpyHeader) {
    return absl::DataLossError(absl::StrCat(name, ": its header claims ", length,
                                            " bytes; accepted: at most ", kMaxNpyHeader));
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
  HeaderFields fields;
  if (const std::string fault = HeaderParser(preamble->header).Parse(fields); !fault.empty()) {
    return absl::DataLossError(absl::StrCat(
        name, ": ", fault, "; accepted: {'descr': ..., 'fortran_order': ..., 'shape': ...}"));
  }
  if (*fields.fortran_order != "False") {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is in fortran order; accepted: C order; save np.ascontiguousarray(array)"));
  }
  const absl::StatusOr<ElementType> type = ParseType(name, *fields.descr);
  if (!type.ok()) return type.status();
  absl::StatusOr<std::vector<int64_t>> shape = ParseShape(name, *fields.shape);
  if (!shape.ok()) return shape.status();
  const auto expected = static_cast<uint64_t>(ShapeElements(*shape) * ElementSize(*type));
  const uint64_t held = size - preamble->data_offset;
  if (held != expected) {
    return absl::DataLossError(absl::StrCat(name, " holds ", held, " bytes but its shape ",
                                            OneLine(*fields.shape, kMaxNameBytes), " of ",
                                            ElementTypeName(*type), " needs ", expected));
  }
  return NpyHeader{.type = *type, .shape = *std::move(shape), .data_offset = preamble->data_offset};
}

}  // namespace genesis
