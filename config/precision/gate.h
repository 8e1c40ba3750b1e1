#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"

namespace genesis {

// The permission to use reduced precision (FP16, BF16, mixed). ENABLE_FP16_TRAINING must give it,
// FEATURE_FLAGS and YAML must not forbid it, and no job can override this.
struct PrecisionGate {
  bool enabled = false;
  // Completes the sentence "reduced precision is ..." and names every source that closes the
  // gate, e.g. "disabled by ENABLE_FP16_TRAINING=false" or "disabled by default
  // (ENABLE_FP16_TRAINING is not set)".
  std::string reason;
  // Values that cannot be parsed; each error names variable, value and accepted values. They close
  // the gate (an operator who types `False` at 3 a.m. gets FP32, not an outage) and are logged,
  // counted and shown in the status.
  std::vector<std::string> errors;
};

// Reads ENABLE_FP16_TRAINING: exactly "true" enables; "false" or unset disables; anything else
// disables and is an error. FEATURE_FLAGS is a comma-separated list of name:bool, in which
// fp16_training:false disables, an invalid item that contains fp16_training disables and is an
// error, and other names are ignored. `yaml_allows` is precision.reduced_precision.
PrecisionGate ReadPrecisionGate(const Environment& environment, bool yaml_allows);

}  // namespace genesis
