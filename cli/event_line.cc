#include "cli/event_line.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/text.h"
#include "config/precision/precision.h"

namespace genesis::cli {
namespace {

using training::v1::JobEvent;

std::string Describe(const training::v1::StateChange& change) {
  const std::string to = ShortEnumName(change.to());
  const bool first = change.from() == training::v1::JOB_STATE_UNSPECIFIED;
  return absl::StrCat(first ? to : absl::StrCat(ShortEnumName(change.from()), " -> ", to), ": ",
                      change.reason());
}

std::string Describe(const training::v1::PrecisionChange& change) {
  const bool falls = change.trigger() != "promotion";
  return absl::StrCat(
      falls ? absl::StrCat("Falling back to ", ShortEnumName(change.to()), ": ") : "", "precision ",
      ShortEnumName(change.from()), " -> ", ShortEnumName(change.to()), " at step ", change.step(),
      " (", change.trigger(), "): ", change.reason());
}

std::string Describe(const training::v1::Checkpoint& checkpoint) {
  return absl::StrCat("checkpoint ", checkpoint.id(), " at step ", checkpoint.step(), ", ",
                      FormatBytes(checkpoint.size_bytes()));
}

std::string Describe(const training::v1::MetricReport& report) {
  std::string text = absl::StrCat(report.reporter(), " reported about step ", report.step(), ":");
  for (const auto& [name, value] : std::map(report.values().begin(), report.values().end())) {
    absl::StrAppend(&text, " ", name, "=", FormatNumber(value));
  }
  return text;
}

std::string Describe(const JobEvent& event) {
  switch (event.what_case()) {
    case JobEvent::kStateChanged:
      return Describe(event.state_changed());
    case JobEvent::kPrecisionChanged:
      return Describe(event.precision_changed());
    case JobEvent::kIncident:
      return absl::StrCat("incident (", event.incident().rule(), "): ", event.incident().message());
    case JobEvent::kCheckpointWritten:
      return Describe(event.checkpoint_written());
    case JobEvent::kEvaluated:
      return absl::StrCat("evaluated at step ", event.evaluated().step(), ": held-out loss ",
                          FormatFigure(event.evaluated().loss()));
    case JobEvent::kLogLine:
      return absl::StrCat("log: ", event.log_line());
    case JobEvent::kUpdated:
      return event.updated();
    case JobEvent::kDeleted:
      return event.deleted().by_retention() ? "deleted by retention" : "deleted";
    case JobEvent::kRankChanged:
      return absl::StrCat("rank ended: ", event.rank_changed().reason());
    case JobEvent::kMetricsReported:
      return Describe(event.metrics_reported());
    case JobEvent::WHAT_NOT_SET:
      return "an event unknown to this genesisctl";
  }
  return "";
}

}  // namespace

std::string EventLine(const JobEvent& event) {
  return absl::StrCat(FormatTimestamp(event.time()), "  ", Printable(Describe(event)));
}

}  // namespace genesis::cli
