#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text/json.h"
#include "config/settings/settings.h"
#include "server/launchers/launcher.h"

namespace genesis {

// Builds the Indexed Job for a request, without any call to a server.

// Returns the name of the object: the request's name if it is valid, otherwise its beginning and a
// digest. The pods of the Job append at most 11 characters, and 63 are allowed.
std::string JobObjectName(const std::string& request_name);

// Returns the value of kDaemonLabel for every request of a daemon, whose names begin with `prefix`.
std::string DaemonLabelOf(const std::string& prefix);

inline constexpr char kDaemonLabel[] = "genesis-daemon";
inline constexpr char kReservationAnnotation[] = "genesis/reservation";
inline constexpr char kJobAnnotation[] = "genesis/job";

// Reads an operator's pod template from YAML to JSON. INVALID_ARGUMENT names the file, the place
// and what is accepted: a mapping of metadata and spec with a container, and no field that the
// daemon sets. The API server checks the rest, in strict mode.
absl::StatusOr<Json> ReadPodTemplate(const std::string& path);

// Returns the object to create on the API server. `words`: the command line of the first container.
Json MakeJobObject(const KubernetesSettings& settings, const Json& pod_template,
                   const LaunchRequest& request, const std::vector<std::string>& words);

// Combines the conditions of the Job and its pods in one status. `pods`: of that Job alone.
LaunchStatus StatusOfJob(const Json& job, const std::vector<Json>& pods);

}  // namespace genesis
