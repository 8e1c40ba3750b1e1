#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace genesis {

// One error in user input. All errors are found before any is reported.
struct FieldError {
  std::string path;  // "training.batch_size"; empty for an error of the whole file.
  // As written: "-4" or "\"many\"". If empty, `accepted` is a whole sentence.
  std::string value;
  std::string accepted;  // "1 to 1048576", or a whole sentence on what is wrong and how to fix it.
  int line = 0;          // 1-based; 0 when not from a file.
  int column = 0;
  std::string file = {};  // Set if errors of several files are listed together (LoadSettings).

  // Returns "job.yaml:3:15: training.batch_size is -4; accepted: 1 to 1048576", or without a value
  // "job.yaml:4:3: training.max_steps: required; ...". Uses `in_file` if `file` is empty.
  std::string ToString(const std::string& in_file = "") const;
};

// The payload type of ToStatus(): a serialized google.rpc.BadRequest with the errors it lists.
inline constexpr char kBadRequestType[] = "type.googleapis.com/google.rpc.BadRequest";

// Maximum number of errors reported in full. Further errors are only counted.
inline constexpr size_t kMaxFaultsListed = 20;

// Returns INVALID_ARGUMENT whose message has one line for each of the first kMaxFaultsListed
// errors. Requires at least one.
absl::Status ToStatus(const std::vector<FieldError>& errors, const std::string& file = "");

// Returns `text` in double quotes, for an error message. Control characters are escaped, and the
// text is cut after 120 bytes.
std::string QuoteValue(absl::string_view text);

// Returns the shortest text that reads back as `value`: "0.1", "1e-08".
std::string FormatNumber(double value);

}  // namespace genesis
