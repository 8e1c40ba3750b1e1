#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"

namespace genesis {

// Whether reduced precision (FP16, BF16, mixed) may run at all. The environment, FEATURE_FLAGS and
// YAML must all allow it, and no job can override a refusal.
struct PrecisionGate {
  bool enabled = false;
  // Completes the sentence "reduced precision is ..." and names every source that closes the gate,
  // e.g. "disabled by ENABLE_FP16_TRAINING=false", "disabled by default (ENABLE_FP16_TRAINING is
  // not set)".
  std::string reason;
  // Unreadable values; each names variable, value and accepted set. They close the gate (an
  // operator who types `False` at 3 a.m. gets FP32, not an outage) and are logged, shown in status
  // and counted.
  std::vector<std::string> errors;
};

// Reads ENABLE_FP16_TRAINING: exactly "true" enables, "false" or unset disables, anything else
// disables and is an error. FEATURE_FLAGS is a comma list of name:bool; fp16_training:false
// disables, an unreadable item that names fp16_training disables and is an error, other names are
// ignored. `yaml_allows` is precision.reduced_precision.
PrecisionGate ReadPrecisionGate(const Environment& environment, bool yaml_allows);

}  // namespace genesis
