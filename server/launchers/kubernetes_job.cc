#include "server/launchers/kubernetes_job.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files/sha256.h"
#include "base/text/scalars.h"
#include "base/text/text.h"
#include "base/text/yaml_document.h"

namespace genesis {
namespace {

constexpr char kGpu[] = "nvidia.com/gpu";
// Time in seconds for which a finished object is kept for inspection.
constexpr int kKeptSeconds = 600;
constexpr int kMaxDepth = 64;

// Converts a scalar. As in kubectl (YAML 1.1), 0440 is an octal number.
Json ScalarOf(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // Quoted.
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const bool octal =
      text.size() > 1 && text[0] == '0' &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c < '8'; });
  constexpr int kOctal = 8;
  if (octal) return static_cast<int64_t>(strtoll(text.c_str(), nullptr, kOctal));
  if (const std::optional<int64_t> number = ParseInt64(text)) return *number;
  if (const std::optional<double> number = ParseDouble(text)) return *number;
  return text;
}

Json ToJson(const YAML::Node& node, int depth = 0) {
  if (depth > kMaxDepth) return {};
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = ToJson(entry.second, depth + 1);
    return object;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& entry : node) list.push_back(ToJson(entry, depth + 1));
    return list;
  }
  return node.IsScalar() ? ScalarOf(node) : Json();
}

void Add(const std::string& path, std::string sentence, std::vector<FieldError>& errors) {
  FieldError error;
  error.path = path;
  error.accepted = std::move(sentence);
  errors.push_back(std::move(error));
}

// Checks only what the daemon relies on. The API server checks that fields exist.
void CheckTemplate(const Json& pod, std::vector<FieldError>& errors) {
  for (const auto& [key, value] : pod.items()) {
    if (key != "metadata" && key != "spec") {
      Add(key, "unknown key; accepted here: metadata, spec, those of a PodTemplateSpec", errors);
    }
  }
  const Json& spec = pod.contains("spec") ? pod["spec"] : Json::object();
  const bool has_container = spec.is_object() && spec.contains("containers") &&
                             spec["containers"].is_array() && !spec["containers"].empty() &&
                             spec["containers"][0].is_object();
  if (!has_container) {
    Add("spec.containers", "required; give a container that runs genesis-worker", errors);
    return;
  }
  if (spec["containers"][0].contains("args")) {
    Add("spec.containers[0].args", "set by the daemon; remove it", errors);
  }
  if (spec.contains("restartPolicy") && spec["restartPolicy"] != "Never") {
    Add("spec.restartPolicy",
        "Never, or nothing: a worker that has ended is not started again, for its job is", errors);
  }
}

// Returns the value at `path`; null if there is none.
const Json& ValueAt(const Json& object, std::initializer_list<const char*> path) {
  static const Json& none = *new Json();
  const Json* at = &object;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return none;
    at = &(*at)[key];
  }
  return *at;
}

// Returns the text at `path`; "" if there is none.
std::string TextAt(const Json& object, std::initializer_list<const char*> path) {
  const Json& value = ValueAt(object, path);
  return value.is_string() ? value.get<std::string>() : "";
}

const Json& ListAt(const Json& object, const char* first, const char* second) {
  static const Json& empty = *new Json(Json::array());
  const Json& value = ValueAt(object, {first, second});
  return value.is_array() ? value : empty;
}

// Returns the condition with that type and status; null if there is none.
Json Condition(const Json& object, const char* type, const char* status) {
  for (const Json& each : ListAt(object, "status", "conditions")) {
    if (TextAt(each, {"type"}) == type && TextAt(each, {"status"}) == status) return each;
  }
  return {};
}

// Returns reason and message on one line: "Unschedulable: 0/3 nodes are available".
std::string Words(const std::string& reason, const std::string& message) {
  const bool both = !reason.empty() && !message.empty();
  return OneLine(absl::StrCat(reason, both ? ": " : "", message), kMaxLineBytes);
}

// Returns why the pod is not running; "" if it runs or the reason is unknown.
std::string WhyItWaits(const Json& pod) {
  const Json unscheduled = Condition(pod, "PodScheduled", "False");
  if (!unscheduled.is_null()) {
    return Words(TextAt(unscheduled, {"reason"}), TextAt(unscheduled, {"message"}));
  }
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : ListAt(pod, "status", kind)) {
      const std::string reason = TextAt(container, {"state", "waiting", "reason"});
      if (reason.empty() || reason == "PodInitializing") continue;
      return Words(reason, TextAt(container, {"state", "waiting", "message"}));
    }
  }
  return "";
}

// Returns why the pod failed; "" if it did not fail or the reason is unknown.
std::string WhyItFailed(const Json& pod) {
  const Json disrupted = Condition(pod, "DisruptionTarget", "True");
  if (!disrupted.is_null()) {
    return Words(TextAt(disrupted, {"reason"}), TextAt(disrupted, {"message"}));
  }
  if (TextAt(pod, {"status", "phase"}) != "Failed") return "";
  // The kubelet's reasons, such as Evicted or NodeShutdown.
  if (const std::string reason = TextAt(pod, {"status", "reason"}); !reason.empty()) {
    return Words(reason, TextAt(pod, {"status", "message"}));
  }
  for (const Json& container : ListAt(pod, "status", "containerStatuses")) {
    const std::string reason = TextAt(container, {"state", "terminated", "reason"});
    if (reason.empty() || reason == "Completed") continue;
    const Json& ended = container["state"]["terminated"];
    const std::string code =
        ended.contains("exitCode") ? absl::StrCat("exit code ", ended["exitCode"].dump()) : "";
    return Words(absl::StrCat("container ", TextAt(container, {"name"}), ": ", reason), code);
  }
  return "";
}

bool IsPreempted(const Json& pod) {
  const Json disrupted = Condition(pod, "DisruptionTarget", "True");
  return !disrupted.is_null() || TextAt(pod, {"status", "reason"}) == "Evicted";
}

// Returns the first non-empty result of `why` with the pod's name.
std::string FirstOf(const std::vector<Json>& pods, std::string (*why)(const Json&)) {
  for (const Json& pod : pods) {
    const std::string reason = why(pod);
    if (reason.empty()) continue;
    return OneLine(absl::StrCat("pod ", TextAt(pod, {"metadata", "name"}), ": ", reason),
                   kMaxLineBytes);
  }
  return "";
}

}  // namespace

std::string JobObjectName(const std::string& request_name) {
  constexpr size_t kMaxName = 63 - 11;
  constexpr size_t kDigits = 8;
  if (request_name.size() <= kMaxName && !absl::EndsWith(request_name, "-")) return request_name;
  std::string head = request_name.substr(0, kMaxName - kDigits - 1);
  while (absl::EndsWith(head, "-")) head.pop_back();
  return absl::StrCat(head, "-", Sha256Hex(request_name).substr(0, kDigits));
}

std::string DaemonLabelOf(const std::string& prefix) {
  return std::string(absl::StripSuffix(prefix, "-"));
}

absl::StatusOr<Json> ReadPodTemplate(const std::string& path) {
  const std::string file = absl::StrCat("kubernetes.pod_template: ", path);
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kubernetes.pod_template: ", text.status().message()));
  }
  std::vector<FieldError> errors;
  const std::optional<YAML::Node> root = LoadYamlMapping(*text, errors);
  if (!errors.empty()) return ToStatus(errors, file);
  const Json pod = root.has_value() && root->IsMap() ? ToJson(*root) : Json::object();
  CheckTemplate(pod, errors);
  if (!errors.empty()) return ToStatus(errors, file);
  return pod;
}

Json MakeJobObject(const KubernetesSettings& settings, const Json& pod_template,
                   const LaunchRequest& request, const std::vector<std::string>& words) {
  // For example, "genesis-0a1b2c3d" in "genesis-0a1b2c3d-1-job".
  const size_t daemon_end = request.name.find('-', request.name.find('-') + 1);
  const Json labels = {{kDaemonLabel, request.name.substr(0, daemon_end)}};
  const Json annotations = {{kReservationAnnotation, request.name},
                            {kJobAnnotation, request.job_id}};
  Json pod = pod_template;
  for (const auto& [key, value] : labels.items()) pod["metadata"]["labels"][key] = value;
  for (const auto& [key, value] : annotations.items()) {
    pod["metadata"]["annotations"][key] = value;
  }
  Json& spec = pod["spec"];
  spec["restartPolicy"] = "Never";
  if (!settings.priority_class.empty()) spec["priorityClassName"] = settings.priority_class;
  Json& container = spec["containers"][0];
  container["args"] = words;
  if (settings.gpus_per_pod > 0) {
    container["resources"]["limits"][kGpu] = absl::StrCat(settings.gpus_per_pod);
  }
  return {
      {"apiVersion", "batch/v1"},
      {"kind", "Job"},
      {"metadata",
       {{"name", JobObjectName(request.name)}, {"labels", labels}, {"annotations", annotations}}},
      {"spec",
       {{"completionMode", "Indexed"},
        {"completions", request.workers},
        {"parallelism", request.workers},
        // A pod that fails ends the other pods, and the daemon submits a new Job.
        {"backoffLimit", 0},
        {"ttlSecondsAfterFinished", kKeptSeconds},
        {"template", pod}}}};
}

LaunchStatus StatusOfJob(const Json& job, const std::vector<Json>& pods) {
  LaunchStatus status;
  status.name =
      OneLine(TextAt(job, {"metadata", "annotations", kReservationAnnotation}), kMaxNameBytes);
  status.cluster_id = OneLine(TextAt(job, {"metadata", "name"}), kMaxNameBytes);
  const std::string failed_pod = FirstOf(pods, &WhyItFailed);
  if (!Condition(job, "Complete", "True").is_null()) {
    status.end = LaunchEnd::kDone;
    status.reason = "Complete";
    return status;
  }
  const Json failed = Condition(job, "Failed", "True");
  if (!failed.is_null()) {
    const std::string reason = TextAt(failed, {"reason"});
    const bool preempted = std::any_of(pods.begin(), pods.end(), &IsPreempted);
    status.end = reason == "DeadlineExceeded" ? LaunchEnd::kDone
                 : preempted                  ? LaunchEnd::kPreempted
                                              : LaunchEnd::kFailed;
    status.reason = failed_pod.empty() || reason == "DeadlineExceeded"
                        ? Words(reason, TextAt(failed, {"message"}))
                        : Words(reason, failed_pod);
    return status;
  }
  const auto runs = [](const Json& pod) { return TextAt(pod, {"status", "phase"}) == "Running"; };
  const std::string waits = FirstOf(pods, &WhyItWaits);
  status.running = waits.empty() && std::any_of(pods.begin(), pods.end(), runs);
  if (!TextAt(job, {"metadata", "deletionTimestamp"}).empty()) {
    status.reason = "Terminating";
  } else if (ValueAt(job, {"spec", "suspend"}) == true) {
    status.running = false;
    status.suspended = true;
    status.reason = "Suspended (spec.suspend is true)";
  } else if (!waits.empty()) {
    status.reason = OneLine(absl::StrCat("Pending: ", waits), kMaxLineBytes);
  } else {
    status.reason = status.running ? "Running" : "Pending";
  }
  return status;
}

}  // namespace genesis
