#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace genesis {

// One fault in what a user wrote. Every fault is found before any is reported.
struct FieldError {
  std::string path;      // "training.batch_size"; empty for a fault of the whole file.
  std::string value;     // As written: "-4", or "\"many\"". Empty: `accepted` is a whole sentence.
  std::string accepted;  // "1 to 1048576", or a whole sentence on what is wrong and how to fix it.
  int line = 0;          // 1-based; 0 when not from a file.
  int column = 0;
  std::string file = {};  // Set where faults of several places are listed together (LoadSettings).

  // "job.yaml:3:15: training.batch_size is -4; accepted: 1 to 1048576", or without a value
  // "job.yaml:4:3: training.max_steps: required; ...". `in_file` is used when `file` is empty.
  std::string ToString(const std::string& in_file = "") const;
};

// The payload of such a status: a serialized google.rpc.BadRequest with every fault.
inline constexpr char kBadRequestType[] = "type.googleapis.com/google.rpc.BadRequest";

// How many faults are told at once; the rest is a number, for a list that nobody reads to its end
// costs whoever makes it.
inline constexpr size_t kMaxFaultsListed = 20;

// INVALID_ARGUMENT whose message has one line per fault, the first kMaxFaultsListed of them.
// Requires at least one.
absl::Status ToStatus(const std::vector<FieldError>& errors, const std::string& file = "");

// `text` in double quotes with control characters escaped, cut after 120 bytes: a value for
// messages.
std::string QuoteValue(absl::string_view text);

// The shortest text that reads back as `value`: "0.1", "1e-08".
std::string FormatNumber(double value);

}  // namespace genesis
