#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text/json.h"
#include "config/settings/settings.h"
#include "server/launchers/launcher.h"

namespace genesis {

// Functions that build and read Indexed Jobs, without any call to a server.

// Returns the object's name: the request's name if it is valid, otherwise its beginning and a
// digest. Pods of the Job append at most 11 characters to it, and 63 are allowed.
std::string JobObjectName(const std::string& request_name);

// Returns the value of kDaemonLabel for all requests of a daemon, whose names begin with `prefix`.
std::string DaemonLabelOf(const std::string& prefix);

inline constexpr char kDaemonLabel[] = "genesis-daemon";
inline constexpr char kReservationAnnotation[] = "genesis/reservation";
inline constexpr char kJobAnnotation[] = "genesis/job";

// Reads an operator's pod template from YAML to JSON. INVALID_ARGUMENT names the file, the field
// and what is accepted: a mapping with metadata and a spec with a container, but no field that the
// daemon sets. The API server checks the rest, in strict mode.
absl::StatusOr<Json> ReadPodTemplate(const std::string& path);

// Returns the object to create. `words` is the command line of the first container.
Json MakeJobObject(const KubernetesSettings& settings, const Json& pod_template,
                   const LaunchRequest& request, const std::vector<std::string>& words);

// Combines the conditions of the Job and its pods into one status. `pods` are of that Job only.
LaunchStatus StatusOfJob(const Json& job, const std::vector<Json>& pods);

}  // namespace genesis
