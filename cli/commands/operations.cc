// The `workers`, `drain-worker`, `precision`, `webhooks` commands.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/commands/pages.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

using training::v1::GetPrecisionPolicyResponse;
using training::v1::ListWorkersResponse;
using training::v1::PolicyApplication;
using training::v1::WorkerInfo;

std::string StateName(const WorkerInfo& worker) {
  const std::string name = ShortEnumName(worker.state());
  return worker.draining() ? name + ", draining" : name;
}

std::string WorkersText(const ListWorkersResponse& response, size_t max_width) {
  Table workers({"WORKER", "STATE", "DEVICE", ">PID", "JOB", "STARTED"});
  for (const WorkerInfo& each : response.workers()) {
    workers.AddRow({Printable(each.id()), StateName(each), Printable(each.device()),
                    absl::StrCat(each.pid()),
                    each.job_id().empty() ? "-" : Printable(each.job_id()),
                    FormatTimestamp(each.start_time())});
  }
  Table devices({"DEVICE", ">BUSY", ">SLOTS", "QUARANTINED"});
  for (const training::v1::DeviceStatus& each : response.devices()) {
    devices.AddRow({Printable(each.name()), absl::StrCat(each.busy()), absl::StrCat(each.slots()),
                    each.quarantined() ? Printable(each.reason()) : "no"});
  }
  return absl::StrCat(workers.ToString(max_width), "\n", devices.ToString(max_width));
}

std::string PolicyText(const GetPrecisionPolicyResponse& response) {
  const training::v1::PrecisionPolicy& policy = response.policy();
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"reduced precision", response.reduced_precision_enabled() ? "enabled" : "disabled"},
      {"because", Printable(response.reason())},
      {"policy", policy.reduced_precision_allowed() ? "left to the gate" : "disabled"}};
  if (policy.has_change_time()) {
    pairs.emplace_back("changed", FormatTimestamp(policy.change_time()));
    pairs.emplace_back("by", Printable(policy.changed_by()));
    pairs.emplace_back("reason", Printable(policy.reason()));
  }
  return FormatPairs(pairs);
}

ExitCode ShowPolicy(Session& session) {
  GetPrecisionPolicyResponse response;
  const grpc::Status status = Call(&Service::GetPrecisionPolicy, {}, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) session.out << PolicyText(response);
  return ExitCode::kOk;
}

// Parses the value of an option; UNSPECIFIED if it is unknown.
PolicyApplication ParseApplication(const std::string& text) {
  if (text.empty() || text == "new-attempts") return training::v1::POLICY_APPLICATION_NEW_ATTEMPTS;
  if (text == "next-step") return training::v1::POLICY_APPLICATION_NEXT_STEP;
  if (text == "at-once") return training::v1::POLICY_APPLICATION_AT_ONCE;
  return training::v1::POLICY_APPLICATION_UNSPECIFIED;
}

ExitCode SetPolicy(bool allowed, const Arguments& arguments, Session& session) {
  training::v1::SetPrecisionPolicyRequest request;
  request.set_reduced_precision_allowed(allowed);
  request.set_reason(arguments.Value("reason"));
  request.set_application(ParseApplication(arguments.Value("running")));
  if (request.application() == training::v1::POLICY_APPLICATION_UNSPECIFIED) {
    return ReportUsage(absl::StrCat("--running is ", QuoteValue(arguments.Value("running")),
                                    "; accepted: new-attempts, next-step or at-once"),
                       session);
  }
  training::v1::SetPrecisionPolicyResponse response;
  const grpc::Status status = Call(&Service::SetPrecisionPolicy, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) {
    session.out << "reduced precision is "
                << (response.reduced_precision_enabled() ? "enabled" : "disabled") << "; "
                << response.affected_jobs() << " jobs ran in it\n";
  }
  return ExitCode::kOk;
}

}  // namespace

ExitCode RunWorkers(const Arguments&, Session& session) {
  ListWorkersResponse response;
  const grpc::Status status = Call(&Service::ListWorkers, {}, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) session.out << WorkersText(response, session.table_width());
  return ExitCode::kOk;
}

ExitCode RunDrainWorker(const Arguments& arguments, Session& session) {
  training::v1::DrainWorkerRequest request;
  request.set_worker_id(arguments.operands.front());
  training::v1::DrainWorkerResponse response;
  const grpc::Status status = Call(&Service::DrainWorker, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.worker(), session)) {
    session.out << "worker " << Printable(request.worker_id()) << " is drained"
                << (response.worker().job_id().empty()
                        ? ""
                        : absl::StrCat("; job ", Printable(response.worker().job_id()),
                                       " is checkpointed and queued again"))
                << "\n";
  }
  return ExitCode::kOk;
}

ExitCode RunPrecision(const Arguments& arguments, Session& session) {
  const std::string action = arguments.operands.empty() ? "show" : arguments.operands.front();
  if (action == "show") return ShowPolicy(session);
  if (action == "disable") return SetPolicy(/*allowed=*/false, arguments, session);
  if (action == "allow") return SetPolicy(/*allowed=*/true, arguments, session);
  return ReportUsage(
      absl::StrCat("precision: ", QuoteValue(action), "; accepted: show, disable or allow"),
      session);
}

ExitCode RunWebhooks(const Arguments&, Session& session) {
  training::v1::ListWebhookDeliveriesResponse all;
  const grpc::Status status = ReadAllPages(
      training::v1::ListWebhookDeliveriesRequest(),
      [&](auto* context, const auto& asked, auto* page) {
        return session.service.ListWebhookDeliveries(context, asked, page);
      },
      &all);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(all, session)) return ExitCode::kOk;
  Table table({"ENDPOINT", "EVENT", "TYPE", "JOB", "STATE", ">ATTEMPTS", "NEXT", "LAST ERROR"});
  for (const training::v1::WebhookDelivery& each : all.deliveries()) {
    table.AddRow({Printable(each.endpoint()), each.webhook_id(), each.type(),
                  Printable(each.job_id()), ShortEnumName(each.state()),
                  absl::StrCat(each.attempts()),
                  each.has_next_attempt_time() ? FormatTimestamp(each.next_attempt_time()) : "-",
                  each.last_error().empty() ? "-" : Printable(each.last_error())});
  }
  session.out << (all.deliveries().empty() ? "every endpoint has received its events\n"
                                           : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

}  // namespace genesis::cli
