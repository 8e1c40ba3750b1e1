#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text/field_error.h"

namespace genesis {

// The errors that checks find in a job specification. A number of 0 is valid; it means the default.
class Faults {
 public:
  // `known` are errors found before.
  explicit Faults(std::vector<FieldError> known = {}) : errors_(std::move(known)) {}

  // Adds an error unless `value` is 0, or `fine` and finite. `accepted` describes what is fine.
  void CheckNumber(const std::string& path, double value, bool fine, const char* accepted);
  // Checks a path below a root: it must not be empty and must contain neither ".." nor NUL. It must
  // end in one of `endings` or, if there are none, be a plain folder path (no "." or empty part).
  // The error for an empty path asks for `what`, e.g. "an .npz, .jsonl or .safetensors file".
  void CheckPath(const std::string& field, const std::string& path, const char* what,
                 const std::vector<std::string>& endings);
  void Add(std::string path, std::string value, std::string accepted);

  std::vector<FieldError> Take() { return std::move(errors_); }

 private:
  std::vector<FieldError> errors_;
};

}  // namespace genesis
