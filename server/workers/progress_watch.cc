#include "server/workers/progress_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Section;

// Time in which events that a worker queued while its stream was broken arrive.
constexpr absl::Duration kReturnPatience = absl::Seconds(10);

struct SectionRow {
  int HangSettings::*seconds;
  const char* doing;
  const char* setting;
};

const SectionRow& RowOf(Section section) {
  static constexpr SectionRow kSetup = {&HangSettings::setup_seconds, "preparing the job",
                                        "hang.setup_seconds"};
  static constexpr SectionRow kStep = {&HangSettings::step_seconds, "making steps",
                                       "hang.step_seconds"};
  static constexpr SectionRow kEvaluation = {&HangSettings::evaluation_seconds, "evaluating",
                                             "hang.evaluation_seconds"};
  static constexpr SectionRow kCheckpoint = {&HangSettings::checkpoint_seconds,
                                             "writing a checkpoint", "hang.checkpoint_seconds"};
  switch (section) {
    case training::v1::SECTION_STEP:
      return kStep;
    case training::v1::SECTION_EVALUATION:
      return kEvaluation;
    case training::v1::SECTION_CHECKPOINT:
      return kCheckpoint;
    default:
      return kSetup;
  }
}

}  // namespace

void ProgressWatch::Begin(absl::Time now) {
  watching_ = true;
  progress_ = now;
  patience_ = absl::InfinitePast();
}

void ProgressWatch::Resume(absl::Time now) {
  watching_ = true;
  if (patience_ == absl::InfinitePast()) patience_ = now + kReturnPatience;
}

void ProgressWatch::OnEvent(const AttachRequest& event, absl::Time now) {
  if (event.sequence() != 0) {
    // The event is a repeat that was not acknowledged.
    if (event.sequence() <= last_sequence_) return;
    last_sequence_ = event.sequence();
  }
  if (event.has_started()) {
    section_ = training::v1::SECTION_STEP;
  } else if (event.has_section_entered()) {
    // A reattached worker reports its current section again.
    if (section_ == event.section_entered().section()) return;
    section_ = event.section_entered().section();
  } else if (section_ == training::v1::SECTION_STEP && event.has_log_line()) {
    return;
  }
  // The job has ended. The time for the process to exit is limited elsewhere.
  if (event.has_finished()) watching_ = false;
  progress_ = now;
  patience_ = absl::InfinitePast();
}

absl::Time ProgressWatch::Deadline(const HangSettings& timeouts) const {
  // A worker that returned and left again without progress gets no further extension.
  const bool came_and_went = patience_ != absl::InfinitePast();
  if (!watching_ && !came_and_went) return absl::InfiniteFuture();
  return std::max(progress_ + absl::Seconds(timeouts.*RowOf(section_).seconds), patience_);
}

std::string ProgressWatch::Describe(const HangSettings& timeouts) const {
  const SectionRow& row = RowOf(section_);
  return absl::StrCat("no progress for ",
                      absl::FormatDuration(absl::Seconds(timeouts.*row.seconds)), " while ",
                      row.doing, " (", row.setting, ")");
}

}  // namespace genesis
