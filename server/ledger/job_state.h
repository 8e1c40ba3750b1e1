#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/job/job_names.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

using training::v1::JobState;

// One legal move of a job, and when it happens.
struct JobMove {
  JobState from;
  JobState to;
  const char* when;
};

// The whole table; there are no other moves. docs/life_of_a_job.md prints it.
const std::vector<JobMove>& JobMoves();

bool IsLegalMove(JobState from, JobState to);

// A worker holds the job: STARTING, RUNNING, PAUSING, CANCELLING.
bool IsOnWorker(JobState state);

// A worker holds the job and no user wants it back: STARTING, RUNNING.
bool IsTraining(JobState state);

// Every state but UNSPECIFIED, in the order of job.proto.
const std::vector<JobState>& AllJobStates();

// The table as Markdown, for the documents.
std::string JobMovesMarkdown();

}  // namespace genesis
