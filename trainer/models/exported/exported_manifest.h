#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/formats/json_cursor.h"

namespace genesis {

// Format 1 had no producer, and its graphs multiply tensors with gaps in memory incorrectly.
inline constexpr int64_t kExportedFormat = 3;
inline constexpr size_t kMaxTensors = 100'000;

// The manifest of an exported file, as written in it.
struct ExportedManifest {
  struct Entry {
    std::string name;
    std::string type;
    std::string role;
    std::vector<int64_t> shape;
  };
  struct Prediction {
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
  };
  int64_t format = 0;
  std::string producer;
  std::string torch;
  std::string module;
  std::vector<std::string> precisions;
  std::map<std::string, std::string> without;
  std::vector<Entry> fields;
  std::vector<Entry> tensors;
  std::map<std::string, std::string> tied;
  std::vector<std::pair<std::string, int64_t>> versions;
  std::map<std::string, std::vector<std::string>> constants;
  std::optional<int64_t> batch_size;
  std::string losses;
  int64_t held_out_quotients = 0;
  std::vector<std::string> gradients;
  std::vector<std::string> changed;
  std::optional<Prediction> prediction;
};

// Reads the whole JSON text. Returns false on an error, which `json` holds. Skips unknown keys of
// another format, whose number is reported after parsing.
bool ReadManifest(JsonCursor& json, ExportedManifest& manifest);

}  // namespace genesis
