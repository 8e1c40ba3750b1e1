#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/job/final_state.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

using training::v1::JobState;

// A legal move of a job between states, and when it happens.
struct JobMove {
  JobState from;
  JobState to;
  const char* when;
};

// Returns all legal moves. docs/life_of_a_job.md prints them.
const std::vector<JobMove>& JobMoves();

bool IsLegalMove(JobState from, JobState to);

// Returns true if a worker holds the job: STARTING, RUNNING, PAUSING, CANCELLING.
bool IsOnWorker(JobState state);

// Returns true if a worker holds the job and no user is stopping it: STARTING, RUNNING.
bool IsTraining(JobState state);

// Returns every state except UNSPECIFIED, in the order of job.proto.
const std::vector<JobState>& AllJobStates();

// Returns the legal moves as a Markdown table, for the documentation.
std::string JobMovesMarkdown();

}  // namespace genesis
