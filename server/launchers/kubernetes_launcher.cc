#include "server/launchers/kubernetes_launcher.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text/scalars.h"
#include "base/text/text.h"
#include "base/text/yaml_document.h"
#include "config/settings/listen_address.h"
#include "server/launchers/kubernetes_job.h"

namespace genesis {
namespace {

constexpr int kOk = 200;
constexpr int kCreated = 201;
constexpr int kAccepted = 202;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kConflict = 409;
constexpr int kTooManyRequests = 429;
constexpr int kInternalError = 500;
// Maximum pages of a list. This daemon never creates so many objects.
constexpr int kMaxPages = 100;

// Returns the server's message (meta/v1 Status), or the beginning of the body.
std::string Said(const ApiServerReply& reply) {
  const Json status = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  const bool has =
      status.is_object() && status.contains("message") && status["message"].is_string();
  return absl::StrCat(
      reply.status, ": ",
      OneLine(has ? status["message"].get<std::string>() : reply.body, kMaxLineBytes));
}

absl::Status Refused(const std::string& what, const ApiServerReply& reply) {
  if (reply.status >= kInternalError || reply.status == kTooManyRequests) {
    return absl::UnavailableError(
        absl::StrCat("Kubernetes cannot answer ", what, " now: ", Said(reply)));
  }
  const std::string text = absl::StrCat("Kubernetes refuses ", what, ": ", Said(reply));
  if (reply.status == kForbidden) {
    return absl::PermissionDeniedError(absl::StrCat(
        text,
        "; give the daemon's service account the Role of deploy/kubernetes/overlays/launcher"));
  }
  if (reply.status == kNotFound) return absl::NotFoundError(text);
  return absl::FailedPreconditionError(text);
}

// Escapes the server's continue token for the URL of a list's next page.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.') {
      escaped += c;
    } else {
      absl::StrAppend(&escaped, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return escaped;
}

std::string TextOf(const Json& object, const char* first, const char* second) {
  if (!object.is_object() || !object.contains(first) || !object[first].is_object()) return "";
  const Json& group = object[first];
  return group.contains(second) && group[second].is_string() ? group[second].get<std::string>()
                                                             : "";
}

std::string ReservationOf(const Json& object) {
  if (!object.is_object() || !object.contains("metadata")) return "";
  return TextOf(object["metadata"], "annotations", kReservationAnnotation);
}

}  // namespace

std::string KubernetesLauncher::JobsPath() const {
  return absl::StrCat("/apis/batch/v1/namespaces/", namespace_, "/jobs");
}

absl::StatusOr<Json> KubernetesLauncher::Ask(const ApiServerCall& call, int wanted,
                                             const std::string& what) const {
  const absl::StatusOr<ApiServerReply> reply = api_.Call(call);
  if (!reply.ok()) return reply.status();
  if (reply->status != wanted) return Refused(what, *reply);
  Json object = Json::parse(reply->body, nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) return object;
  return absl::UnknownError(absl::StrCat("Kubernetes answers to ", what,
                                         " with no object: ", OneLine(reply->body, kMaxNameBytes)));
}

absl::StatusOr<std::string> KubernetesLauncher::Submit(const LaunchRequest& request) {
  const absl::StatusOr<Json> pod = ReadPodTemplate(settings_.pod_template);
  if (!pod.ok()) return pod.status();
  const Json job =
      MakeJobObject(settings_, *pod, request, WorkerWords(worker_, request.name, /*threads=*/0));
  const std::string name = JobObjectName(request.name);
  const absl::StatusOr<ApiServerReply> reply =
      api_.Call({.method = "POST",
                 .target = JobsPath() + "?fieldManager=genesisd&fieldValidation=Strict",
                 .body = job.dump(-1, ' ', false, Json::error_handler_t::replace)});
  if (!reply.ok()) return reply.status();
  if (reply->status == kCreated || reply->status == kOk || reply->status == kAccepted) return name;
  if (reply->status != kConflict) return Refused("the Job", *reply);
  // An earlier daemon may have created the Job and died before the reply.
  const absl::StatusOr<Json> known =
      Ask({.method = "GET", .target = absl::StrCat(JobsPath(), "/", name)}, kOk,
          absl::StrCat("a look at Job ", name));
  if (!known.ok()) return known.status();
  if (ReservationOf(*known) == request.name) return name;
  return absl::AlreadyExistsError(
      absl::StrCat("Kubernetes has a Job ", name,
                   " that is not of this daemon; delete it, or give the daemon a "
                   "namespace of its own"));
}

absl::StatusOr<std::vector<Json>> KubernetesLauncher::List(const std::string& path,
                                                           const std::string& selector,
                                                           const std::string& what) const {
  std::vector<Json> all;
  std::string next;
  for (int page = 0; page < kMaxPages; ++page) {
    absl::StatusOr<Json> list =
        Ask({.method = "GET",
             .target = absl::StrCat(path, "?limit=500&labelSelector=", Escaped(selector),
                                    next.empty() ? "" : "&continue=", Escaped(next))},
            kOk, what);
    if (!list.ok()) return list.status();
    if (list->contains("items") && (*list)["items"].is_array()) {
      for (Json& item : (*list)["items"]) all.push_back(std::move(item));
    }
    next = TextOf(*list, "metadata", "continue");
    if (next.empty()) return all;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("Kubernetes has more than ", kMaxPages, " pages for ", what));
}

absl::StatusOr<std::vector<LaunchStatus>> KubernetesLauncher::Poll(const std::string& prefix) {
  const std::string selector = absl::StrCat(kDaemonLabel, "=", DaemonLabelOf(prefix));
  const absl::StatusOr<std::vector<Json>> jobs = List(JobsPath(), selector, "a list of Jobs");
  if (!jobs.ok()) return jobs.status();
  if (jobs->empty()) return std::vector<LaunchStatus>();
  const absl::StatusOr<std::vector<Json>> pods =
      List(absl::StrCat("/api/v1/namespaces/", namespace_, "/pods"), selector, "a list of pods");
  if (!pods.ok()) return pods.status();
  std::map<std::string, std::vector<Json>> by_reservation;
  for (const Json& pod : *pods) by_reservation[ReservationOf(pod)].push_back(pod);
  std::vector<LaunchStatus> all;
  for (const Json& job : *jobs) {
    const std::string reservation = ReservationOf(job);
    if (reservation.empty()) continue;
    all.push_back(StatusOfJob(job, by_reservation[reservation]));
  }
  return all;
}

absl::Status KubernetesLauncher::Cancel(const std::string& name,
                                        const std::string& /*cluster_id*/) {
  const std::string target = absl::StrCat(JobsPath(), "/", JobObjectName(name));
  const absl::StatusOr<Json> known = Ask({.method = "GET", .target = target}, kOk,
                                         absl::StrCat("a look at Job ", JobObjectName(name)));
  if (absl::IsNotFound(known.status())) return absl::OkStatus();
  if (!known.ok()) return known.status();
  // Ignore an object of the same name that another owner has created.
  if (ReservationOf(*known) != name) return absl::OkStatus();
  // Foreground keeps the object until its pods are gone, so that their end is known.
  const Json options = {{"kind", "DeleteOptions"},
                        {"apiVersion", "v1"},
                        {"preconditions", {{"uid", TextOf(*known, "metadata", "uid")}}},
                        {"propagationPolicy", "Foreground"}};
  const absl::StatusOr<ApiServerReply> reply =
      api_.Call({.method = "DELETE", .target = target, .body = options.dump()});
  if (!reply.ok()) return reply.status();
  if (reply->status == kOk || reply->status == kAccepted || reply->status == kNotFound ||
      reply->status == kConflict) {
    return absl::OkStatus();
  }
  return Refused(absl::StrCat("to delete Job ", JobObjectName(name)), *reply);
}

absl::StatusOr<KubernetesPlace> FindKubernetes(const KubernetesSettings& settings,
                                               const Environment& environment,
                                               const std::string& namespace_file) {
  KubernetesPlace place;
  place.api.token_file = settings.token_file;
  place.api.ca_file = settings.ca_file;
  if (!settings.api_server.empty()) {
    absl::string_view address = settings.api_server;
    absl::ConsumePrefix(&address, "https://");
    const std::optional<HostPort> parsed = ParseHostPort(std::string(address));
    if (parsed.has_value()) {
      place.api.host = parsed->host;
      place.api.port = parsed->port;
    }
  } else {
    place.api.host = environment("KUBERNETES_SERVICE_HOST").value_or("");
    const std::optional<int64_t> port =
        ParseInt64(environment("KUBERNETES_SERVICE_PORT").value_or("443"));
    place.api.port = static_cast<int>(port.value_or(443));
  }
  if (place.api.host.empty()) {
    return absl::FailedPreconditionError(
        "kubernetes.api_server: required with kubernetes.pod_template outside of a pod, where "
        "KUBERNETES_SERVICE_HOST is not set; give https://host:port");
  }
  place.namespace_name = settings.namespace_name;
  if (place.namespace_name.empty()) {
    const absl::StatusOr<std::string> own = ReadTextFile(namespace_file);
    if (!own.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("kubernetes.namespace: required with kubernetes.pod_template outside of a "
                       "pod; ",
                       own.status().message()));
    }
    place.namespace_name = std::string(absl::StripAsciiWhitespace(*own));
  }
  return place;
}

}  // namespace genesis
