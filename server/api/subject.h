#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace genesis {

// Returns the ID of what a request is about, for the audit log: its job_id, checkpoint_id,
// sweep_id, worker_id, dataset, sha256 or name; empty if it has none.
std::string SubjectOf(const google::protobuf::Message& request);

}  // namespace genesis
