#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text/field_error.h"

namespace genesis {

// Collects the errors of a job specification. In each check, 0 is valid if it means the default.
class Faults {
 public:
  // `known`: errors found before.
  explicit Faults(std::vector<FieldError> known = {}) : errors_(std::move(known)) {}

  // `fine` is whether a finite value other than 0 is in range.
  void CheckNumber(const std::string& path, double value, bool fine, const char* accepted);
  // Checks a path below a root: not empty, no "..", no NUL, and one of the endings, or if there are
  // none, a plain path of a folder. Describes all errors of `field` in terms of `what`, e.g. "an
  // .npz, .jsonl or .safetensors file".
  void CheckPath(const std::string& field, const std::string& path, const char* what,
                 const std::vector<std::string>& endings);
  void Add(std::string path, std::string value, std::string accepted);

  std::vector<FieldError> Take() { return std::move(errors_); }

 private:
  std::vector<FieldError> errors_;
};

}  // namespace genesis
