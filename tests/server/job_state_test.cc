#include "server/ledger/job_state.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text/enum_names.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: state names.

TEST(JobState, EveryStateButUnspecifiedIsListedOnce) {
  std::set<JobState> states(AllJobStates().begin(), AllJobStates().end());
  EXPECT_EQ(states.size(), AllJobStates().size());
  EXPECT_EQ(static_cast<int>(states.size()), JobState_descriptor()->value_count() - 1);
  EXPECT_FALSE(states.contains(JOB_STATE_UNSPECIFIED));
}

TEST(JobState, AFinalStateIsNeverLeft) {
  for (const JobState from : AllJobStates()) {
    for (const JobState to : AllJobStates()) {
      EXPECT_FALSE(IsFinal(from) && IsLegalMove(from, to)) << from << " to " << to;
    }
  }
}

TEST(JobState, EveryStateButQueuedIsReachedAndEveryStateButFinalOnesIsLeft) {
  for (const JobState state : AllJobStates()) {
    bool reached = state == JOB_STATE_QUEUED;
    bool left = IsFinal(state);
    for (const JobMove& move : JobMoves()) {
      reached = reached || move.to == state;
      left = left || move.from == state;
    }
    EXPECT_TRUE(reached && left) << ShortEnumName(state);
  }
}

TEST(JobState, EveryJobThatIsNotFinalCanBeCancelledOrIsBeing) {
  for (const JobState state : AllJobStates()) {
    if (IsFinal(state) || state == JOB_STATE_CANCELLING) continue;
    EXPECT_TRUE(IsLegalMove(state, JOB_STATE_CANCELLED) || IsLegalMove(state, JOB_STATE_CANCELLING))
        << ShortEnumName(state);
  }
}

TEST(JobState, TheTableHasExactlyTheseMoves) {
  EXPECT_EQ(JobMoves().size(), 26U);
  EXPECT_TRUE(IsLegalMove(JOB_STATE_QUEUED, JOB_STATE_STARTING));
  EXPECT_TRUE(IsLegalMove(JOB_STATE_RUNNING, JOB_STATE_RECOVERING));
  EXPECT_FALSE(IsLegalMove(JOB_STATE_QUEUED, JOB_STATE_RUNNING));
  EXPECT_FALSE(IsLegalMove(JOB_STATE_RECOVERING, JOB_STATE_RUNNING));
  EXPECT_FALSE(IsLegalMove(JOB_STATE_CANCELLING, JOB_STATE_RUNNING));
}

TEST(JobState, NamesAreTheProtocolsWithoutThePrefix) {
  EXPECT_EQ(ShortEnumName(JOB_STATE_RECOVERING), "RECOVERING");
}

}  // namespace
}  // namespace genesis
