#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text/json.h"
#include "config/settings/settings.h"
#include "server/launchers/launcher.h"

namespace genesis {

// The words of an Indexed Job that a request becomes, without a call to anybody.

// The name of the object: the request's where that may be one, else its beginning and a digest. The
// pods of the Job add at most 11 characters to it, and 63 are allowed.
std::string JobObjectName(const std::string& request_name);

// The value of kDaemonLabel for every request of a daemon, whose names begin with `prefix`.
std::string DaemonLabelOf(const std::string& prefix);

inline constexpr char kDaemonLabel[] = "genesis-daemon";
inline constexpr char kReservationAnnotation[] = "genesis/reservation";
inline constexpr char kJobAnnotation[] = "genesis/job";

// The pod template of an operator, in YAML, as JSON. INVALID_ARGUMENT names the file, the place and
// what is accepted: a mapping of metadata and spec with a container, and nothing that the daemon
// sets. The rest is the API server's to check, which is asked to be strict.
absl::StatusOr<Json> ReadPodTemplate(const std::string& path);

// The object that the API server is to create. `words`: what the first container runs.
Json MakeJobObject(const KubernetesSettings& settings, const Json& pod_template,
                   const LaunchRequest& request, const std::vector<std::string>& words);

// The Job's and its pods' conditions in one status. `pods`: of that Job alone.
LaunchStatus StatusOfJob(const Json& job, const std::vector<Json>& pods);

}  // namespace genesis
