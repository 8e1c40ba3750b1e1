#include "server/ledger/job_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"

namespace genesis {
namespace {

constexpr JobState kQueued = training::v1::JOB_STATE_QUEUED;
constexpr JobState kStarting = training::v1::JOB_STATE_STARTING;
constexpr JobState kRunning = training::v1::JOB_STATE_RUNNING;
constexpr JobState kPausing = training::v1::JOB_STATE_PAUSING;
constexpr JobState kPaused = training::v1::JOB_STATE_PAUSED;
constexpr JobState kRecovering = training::v1::JOB_STATE_RECOVERING;
constexpr JobState kCancelling = training::v1::JOB_STATE_CANCELLING;
constexpr JobState kSucceeded = training::v1::JOB_STATE_SUCCEEDED;
constexpr JobState kFailed = training::v1::JOB_STATE_FAILED;
constexpr JobState kCancelled = training::v1::JOB_STATE_CANCELLED;

}  // namespace

const std::vector<JobMove>& JobMoves() {
  static const auto* const moves = new std::vector<JobMove>{
      {kQueued, kStarting, "a warm worker is given the job"},
      {kQueued, kPaused, "a user pauses it before it starts"},
      {kQueued, kCancelled, "a user cancels it before it starts"},
      {kQueued, kFailed,
       "its deadline passed before it could go on, or its cluster ended its workers too often"},
      {kStarting, kRunning, "the worker has read the data and built the model"},
      {kStarting, kPausing, "a user pauses it"},
      {kStarting, kCancelling, "a user cancels it"},
      {kStarting, kRecovering, "the worker is gone, or the daemon drains or starts again"},
      {kStarting, kFailed, "the worker reports why it cannot train, or restarts are used up"},
      {kRunning, kSucceeded, "all steps have run and the last checkpoint is durable"},
      {kRunning, kPausing, "a user pauses it"},
      {kRunning, kCancelling, "a user cancels it"},
      {kRunning, kRecovering, "the worker is gone, or the daemon drains or starts again"},
      {kRunning, kFailed, "the worker reports why it cannot go on, or restarts are used up"},
      {kPausing, kPaused, "the worker has checkpointed and stopped, or is gone"},
      {kPausing, kSucceeded, "the job ended before the request reached the worker"},
      {kPausing, kCancelling, "a user cancels it"},
      {kPausing, kFailed, "the worker reports why it cannot go on"},
      {kPaused, kQueued, "a user resumes it"},
      {kPaused, kCancelled, "a user cancels it"},
      {kPaused, kFailed, "its deadline passed while it was paused"},
      {kRecovering, kQueued, "it waits for a worker again, to go on from its last checkpoint"},
      {kRecovering, kCancelled, "a user cancels it"},
      {kCancelling, kCancelled, "the worker has stopped or is gone"},
      {kCancelling, kSucceeded, "the job ended before the request reached the worker"},
      {kCancelling, kFailed, "the worker reports why it cannot go on"},
  };
  return *moves;
}

bool IsLegalMove(JobState from, JobState to) {
  return std::any_of(JobMoves().begin(), JobMoves().end(),
                     [&](const JobMove& move) { return move.from == from && move.to == to; });
}

bool IsTraining(JobState state) { return state == kStarting || state == kRunning; }

bool IsOnWorker(JobState state) {
  return IsTraining(state) || state == kPausing || state == kCancelling;
}

const std::vector<JobState>& AllJobStates() {
  static const auto* const states =
      new std::vector<JobState>{kQueued,     kStarting,   kRunning,   kPausing, kPaused,
                                kRecovering, kCancelling, kSucceeded, kFailed,  kCancelled};
  return *states;
}

std::string JobMovesMarkdown() {
  std::string text = "| from | to | when |\n| --- | --- | --- |\n";
  for (const JobMove& move : JobMoves()) {
    absl::StrAppend(&text, "| ", ShortEnumName(move.from), " | ", ShortEnumName(move.to), " | ",
                    move.when, " |\n");
  }
  return text;
}

}  // namespace genesis
