#include "config/precision/gate.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

constexpr char kFlag[] = "fp16_training";

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; }

// Returns true if `item` contains the flag's name as a whole word, in any case.
// "fp16_training=false" and "\"fp16_training:false\"" do, "my_fp16_training:true" does not.
bool NamesOurFlag(absl::string_view item) {
  const std::string lower = absl::AsciiStrToLower(item);
  for (size_t at = lower.find(kFlag); at != std::string::npos; at = lower.find(kFlag, at + 1)) {
    const size_t end = at + sizeof(kFlag) - 1;
    const bool starts = at == 0 || !IsNameCharacter(lower[at - 1]);
    if (starts && (end == lower.size() || !IsNameCharacter(lower[end]))) return true;
  }
  return false;
}

// The findings from all sources. The gate is open if `closed_by` is empty.
struct Findings {
  std::vector<std::string> closed_by;
  std::vector<std::string> errors;
};

void ReadEnableVariable(const Environment& environment, Findings& findings) {
  const std::string kVariable = "ENABLE_FP16_TRAINING";
  const std::optional<std::string> value = environment(kVariable);
  if (value == "true") return;
  if (!value.has_value()) {
    findings.closed_by.push_back(absl::StrCat("default (", kVariable, " is not set)"));
  } else if (*value == "false") {
    findings.closed_by.push_back(absl::StrCat(kVariable, "=false"));
  } else {
    findings.closed_by.push_back(absl::StrCat(kVariable, "=", QuoteValue(*value), " (unreadable)"));
    findings.errors.push_back(
        absl::StrCat(kVariable, " is ", QuoteValue(*value),
                     "; accepted: exactly true or false; reduced precision is disabled"));
  }
}

void ReadFeatureFlags(const Environment& environment, Findings& findings) {
  const std::string list = environment("FEATURE_FLAGS").value_or("");
  for (absl::string_view item : absl::StrSplit(list, ',')) {
    item = absl::StripAsciiWhitespace(item);
    if (!NamesOurFlag(item) || item == "fp16_training:true") continue;
    if (item == "fp16_training:false") {
      findings.closed_by.push_back("FEATURE_FLAGS=fp16_training:false");
      continue;
    }
    findings.closed_by.push_back(
        absl::StrCat("FEATURE_FLAGS item ", QuoteValue(item), " (unreadable)"));
    findings.errors.push_back(absl::StrCat("FEATURE_FLAGS has ", QuoteValue(item),
                                           "; accepted: fp16_training:true or fp16_training:false; "
                                           "reduced precision is disabled"));
  }
}

}  // namespace

PrecisionGate ReadPrecisionGate(const Environment& environment, bool yaml_allows) {
  Findings findings;
  ReadEnableVariable(environment, findings);
  ReadFeatureFlags(environment, findings);
  if (!yaml_allows) findings.closed_by.push_back("precision.reduced_precision=false");

  PrecisionGate gate;
  gate.enabled = findings.closed_by.empty();
  gate.reason = gate.enabled ? "enabled by ENABLE_FP16_TRAINING=true"
                             : "disabled by " + absl::StrJoin(findings.closed_by, " and ");
  gate.errors = std::move(findings.errors);
  return gate;
}

}  // namespace genesis
