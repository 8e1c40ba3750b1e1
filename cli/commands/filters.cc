#include "cli/commands/filters.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"

namespace genesis::cli {

using training::v1::JobState;

std::string AddStates(const Arguments& arguments, google::protobuf::RepeatedField<int>& states) {
  for (const std::string& text : arguments.Values("state")) {
    const auto state = ParseEnumName<JobState>(absl::AsciiStrToUpper(text));
    if (!state || *state == training::v1::JOB_STATE_UNSPECIFIED) {
      return absl::StrCat("--state is ", QuoteValue(text),
                          "; accepted: ", ShortEnumNames(*training::v1::JobState_descriptor()));
    }
    states.Add(*state);
  }
  return "";
}

std::string AddLabels(const Arguments& arguments,
                      google::protobuf::Map<std::string, std::string>& labels) {
  for (const std::string& text : arguments.Values("label")) {
    const std::pair<std::string, std::string> label = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (label.first.empty()) {
      return absl::StrCat("--label is ", QuoteValue(text), "; accepted: KEY or KEY=VALUE");
    }
    labels[label.first] = label.second;
  }
  return "";
}

}  // namespace genesis::cli
