#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "server/store/event_reads.h"
#include "server/store/sqlite.h"

namespace genesis {

// Schema 7 of jobs.db (PRAGMA user_version), readable with the sqlite3 shell:
//   jobs(ordinal, id, state, reason, owner, priority, request_id, create_time, end_time)
//     ordinal: order of acceptance; reason: truncated; request_id: NULL if not given; end_time:
//     seconds since 1970, NULL until the job has ended. Rows are small, so that filters read
//     little.
//   job_records(ordinal, job)  a serialized training.v1.Job, from which `jobs` is derived
//   job_labels(ordinal, key, value)
//   events(sequence, job_id, time, event, kind, owner, state, labels)
//     event: a serialized JobEvent without its sequence; kind: name of its field, such as
//     state_changed; state, labels: those of the job after the event, labels as a JSON object
//   dropped_events(job_id, kind, sequence)  the newest event of this kind that was dropped because
//     the job had too many; job_id is empty for deletions, kind for all kinds
//   log_lines(number, job_id, time, line)
//   webhook_endpoints(name, cursor)  all events up to `cursor` were examined for the endpoint
//   webhook_deliveries(number, endpoint, sequence, job_id, create_time, attempts, next_attempt,
//     error, event)  times: milliseconds since 1970; next_attempt: NULL once no attempt is left
//   checkpoints(id, job_id, step, path, checkpoint, owner, size_bytes)  checkpoint is a serialized
//     Checkpoint
//   checkpoint_bytes(owner, bytes)  total size of an owner's checkpoints, updated by triggers
//   baselines(workload, job_id, time, curve)  curve is a serialized LossCurve of an FP32 job
//   sweeps(ordinal, id, owner, ended, cursor, sweep)  ended: 0 or 1; all events up to `cursor` are
//     in the trials; sweep is a serialized Sweep without its trials
//   sweep_trials(sweep, number, trial)  sweep: ordinal of the sweep; trial is a serialized Trial
//   facts(key, value)  other state, one value each
inline constexpr int64_t kSchemaVersion = 7;

absl::StatusOr<int64_t> ReadSchemaVersion(Database& database);

// Creates the schema or migrates an older one, completely or not at all. FAILED_PRECONDITION for a
// newer schema, DATA_LOSS for unreadable records.
absl::Status BringUpSchema(Database& database);

// Inserts or replaces the job's rows with this ordinal. Call between Begin and Commit.
absl::Status WriteJobRows(Database& database, int64_t ordinal, const training::v1::Job& job);

// Inserts an event of a job with these labels and returns its sequence number.
absl::StatusOr<int64_t> WriteEventRow(Database& database, const training::v1::JobEvent& event,
                                      const Labels& labels);

// Inserts the line of a log event.
absl::Status WriteLogLineRow(Database& database, const training::v1::JobEvent& line);

}  // namespace genesis
