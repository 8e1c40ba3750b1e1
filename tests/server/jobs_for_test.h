#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "gtest/gtest.h"
#include "server/store/job_store.h"

namespace genesis {

inline training::v1::Job MakeJob(const std::string& id,
                                 training::v1::JobState state = training::v1::JOB_STATE_QUEUED) {
  training::v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.set_owner("ann");
  job.mutable_create_time()->set_seconds(1'700'000'000);
  if (state >= training::v1::JOB_STATE_SUCCEEDED) {
    job.mutable_end_time()->set_seconds(1'700'000'100);
  }
  return job;
}

// Returns an event of the job with a text.
inline training::v1::JobEvent TextEvent(const std::string& job_id, const std::string& text) {
  training::v1::JobEvent event;
  event.mutable_time()->set_seconds(1'700'000'000);
  event.set_job_id(job_id);
  event.set_updated(text);
  return event;
}

// Returns a finished job of typical size, with a specification and a checkpoint.
inline training::v1::Job LargeJob(int number) {
  training::v1::Job job = MakeJob(absl::StrCat("done-", number), training::v1::JOB_STATE_SUCCEEDED);
  job.mutable_end_time()->set_seconds(1'700'000'000 + number);
  job.set_owner(number % 100 == 0 ? "rare" : "ann");
  job.set_priority(number % 7);
  (*job.mutable_labels())["team"] = number % 50 == 0 ? "red" : "blue";
  job.set_state_reason(std::string(1500, 'r'));
  return job;
}

// Creates the finished jobs done-1 to done-<count> with three events each.
inline void FillWithEnded(const std::string& dir, int count) {
  auto store = JobStore::Open(dir);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Begin().ok());
  for (int i = 1; i <= count; ++i) {
    const training::v1::Job job = LargeJob(i);
    ASSERT_TRUE((*store)->PutJob(i, job).ok());
    for (const char* line : {"queued", "begun", "ended"}) {
      ASSERT_TRUE((*store)->AddEvent(TextEvent(job.id(), line)).ok());
    }
  }
  ASSERT_TRUE((*store)->Commit().ok());
}

}  // namespace genesis
