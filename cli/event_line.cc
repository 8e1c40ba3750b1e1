#include "cli/event_line.h"

#include "absl/strings/str_cat.h"
#include "cli/text.h"
#include "config/job/job_names.h"
#include "config/precision/precision.h"

namespace genesis::cli {
namespace {

using training::v1::JobEvent;

std::string Describe(const training::v1::StateChange& change) {
  const std::string to = JobStateName(change.to());
  const bool first = change.from() == training::v1::JOB_STATE_UNSPECIFIED;
  return absl::StrCat(first ? to : absl::StrCat(JobStateName(change.from()), " -> ", to), ": ",
                      change.reason());
}

std::string Describe(const training::v1::PrecisionChange& change) {
  const bool falls = change.trigger() != "promotion";
  return absl::StrCat(
      falls ? absl::StrCat("Falling back to ", PrecisionName(change.to()), ": ") : "", "precision ",
      PrecisionName(change.from()), " -> ", PrecisionName(change.to()), " at step ", change.step(),
      " (", change.trigger(), "): ", change.reason());
}

std::string Describe(const training::v1::Checkpoint& checkpoint) {
  return absl::StrCat("checkpoint ", checkpoint.id(), " at step ", checkpoint.step(), ", ",
                      FormatBytes(checkpoint.size_bytes()));
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
