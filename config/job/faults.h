#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text/field_error.h"

namespace genesis {

// The errors of a job specification, as the checks find them. 0 is valid if it means the default.
class Faults {
 public:
  // `known` are errors found before.
  explicit Faults(std::vector<FieldError> known = {}) : errors_(std::move(known)) {}

  // Adds an error unless `value` is 0, or `fine` and finite. `accepted` describes what is fine.
  void CheckNumber(const std::string& path, double value, bool fine, const char* accepted);
  // Checks a path below a root: not empty, no "..", no NUL, and with one of the endings, or, if
  // there are none, a plain folder. Errors of `field` describe the accepted path as `what`, e.g.
  // "an .npz, .jsonl or .safetensors file".
  void CheckPath(const std::string& field, const std::string& path, const char* what,
                 const std::vector<std::string>& endings);
  void Add(std::string path, std::string value, std::string accepted);

  std::vector<FieldError> Take() { return std::move(errors_); }

 private:
  std::vector<FieldError> errors_;
};

}  // namespace genesis
