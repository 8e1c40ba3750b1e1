#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text/field_error.h"
#include "yaml-cpp/yaml.h"

namespace genesis {

// Where a key or value stands, 1-based.
struct Place {
  int line = 0;
  int column = 0;
};
Place PlaceOf(const YAML::Node& node);

// The whole of a text file of at most 1 MiB. NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT, with
// the path and what to do.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// The root mapping of `text`; a null node when the text holds nothing but comments; nullopt after
// adding a fault when it is not UTF-8, not YAML, more than one document, or no mapping at its root.
std::optional<YAML::Node> LoadYamlMapping(const std::string& text, std::vector<FieldError>& errors);

// For messages: what kind of thing `node` is, or its text in quotes.
std::string DescribeYaml(const YAML::Node& node);

}  // namespace genesis
