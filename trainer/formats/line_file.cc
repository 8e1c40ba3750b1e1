#include "trainer/formats/line_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {

absl::Status LineFile::Scan(
    absl::FunctionRef<absl::Status(int64_t number, absl::string_view line)> line) {
  std::string piece;
  std::string rest;  // The start of a line from earlier pieces.
  const auto take = [&](absl::string_view text, uint64_t end) {
    starts_.push_back(end);
    return line(size() - 1, text);
  };
  for (uint64_t offset = 0; offset < file_->size(); offset += piece.size()) {
    piece.resize(std::min<uint64_t>(file_->size() - offset, 1 << 20));
    absl::Status status = file_->Read(offset, piece.size(), piece.data());
    size_t begin = 0;
    for (size_t feed; status.ok() && (feed = piece.find('\n', begin)) != std::string::npos;
         begin = feed + 1) {
      const absl::string_view here = absl::string_view(piece).substr(begin, feed - begin);
      if (!rest.empty()) absl::StrAppend(&rest, here);
      status = take(rest.empty() ? here : rest, offset + feed + 1);
      rest.clear();
    }
    if (!status.ok()) return status;
    rest.append(piece, begin);
    if (rest.size() > kMaxLine) {
      return absl::InvalidArgumentError(absl::StrCat(file_->name(), ": line ", size() + 1,
                                                     " has more than ", kMaxLine,
                                                     " bytes; accepted: one transition per line"));
    }
  }
  return rest.empty() ? absl::OkStatus() : take(rest, file_->size());
}

absl::Status LineFile::Read(int64_t first, int64_t count, std::string& text) const {
  const uint64_t begin = starts_[static_cast<size_t>(first)];
  text.resize(starts_[static_cast<size_t>(first + count)] - begin);
  return file_->Read(begin, text.size(), text.data());
}

}  // namespace genesis
