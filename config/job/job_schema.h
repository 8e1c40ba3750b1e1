#pragma once

#include <string>

namespace genesis {

// Returns the text of docs/job_file.schema.json: the JSON Schema (2020-12) of job files, built from
// the protos, their comments and the rules of their fields. Editors use it to check and complete a
// file. Rules between fields are not in it. It accepts the forms of docs/job_file.md only, not the
// full names of enum values and numbers in quotes that ParseJobFile also reads.
std::string JobSchema();

}  // namespace genesis
