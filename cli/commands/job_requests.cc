// The `pause`, `resume`, `cancel`, `update`, `report`, `delete` commands: requests for one job.
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/text.h"
#include "config/job/job_spec.h"

namespace genesis::cli {
namespace {

// Makes a call that takes a job ID and returns the job.
template <typename Request, typename Response>
ExitCode Ask(Request request, const Arguments& arguments, Session& session,
             grpc::Status (Service::*method)(grpc::ClientContext*, const Request&, Response*)) {
  request.set_job_id(arguments.operands.front());
  const std::string fault = JobIdFault(request.job_id());
  if (!fault.empty()) return ReportUsage(fault, session);
  Response response;
  const grpc::Status status = Call(method, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.job(), session)) {
    session.out << "job " << Printable(response.job().id()) << " "
                << ShortEnumName(response.job().state()) << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

ExitCode RunPause(const Arguments& arguments, Session& session) {
  return Ask(training::v1::PauseJobRequest(), arguments, session, &Service::PauseJob);
}

ExitCode RunResume(const Arguments& arguments, Session& session) {
  return Ask(training::v1::ResumeJobRequest(), arguments, session, &Service::ResumeJob);
}

ExitCode RunCancel(const Arguments& arguments, Session& session) {
  training::v1::CancelJobRequest request;
  request.set_now(arguments.Has("now"));
  return Ask(request, arguments, session, &Service::CancelJob);
}

ExitCode RunUpdate(const Arguments& arguments, Session& session) {
  training::v1::UpdateJobRequest request;
  if (arguments.Has("priority")) {
    int priority = 0;
    if (!absl::SimpleAtoi(arguments.Value("priority"), &priority)) {
      return ReportUsage(absl::StrCat("--priority is ", QuoteValue(arguments.Value("priority")),
                                      "; accepted: a whole number from -100 to 100"),
                         session);
    }
    request.set_priority(priority);
    request.mutable_update_mask()->add_paths("priority");
  }
  for (const std::string& label : arguments.Values("label")) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return ReportUsage(absl::StrCat("--label is ", QuoteValue(label), "; accepted: KEY=VALUE"),
                         session);
    }
    (*request.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  if (arguments.Has("label") || arguments.Has("no-labels")) {
    request.mutable_update_mask()->add_paths("labels");
  }
  if (request.update_mask().paths().empty()) {
    return ReportUsage("update: nothing to change; give --priority, --label or --no-labels",
                       session);
  }
  return Ask(request, arguments, session, &Service::UpdateJob);
}

ExitCode RunReport(const Arguments& arguments, Session& session) {
  training::v1::ReportMetricsRequest request;
  request.set_checkpoint_id(arguments.Value("checkpoint"));
  int64_t step = 0;
  if (arguments.Has("step")) {
    if (!absl::SimpleAtoi(arguments.Value("step"), &step)) {
      return ReportUsage(absl::StrCat("--step is ", QuoteValue(arguments.Value("step")),
                                      "; accepted: a whole number, 0 or more"),
                         session);
    }
    request.set_step(step);
  }
  for (size_t i = 1; i < arguments.operands.size(); ++i) {
    const std::string& operand = arguments.operands[i];
    const size_t equals = operand.rfind('=');
    double value = 0;
    if (equals == std::string::npos || !absl::SimpleAtod(operand.substr(equals + 1), &value)) {
      return ReportUsage(
          absl::StrCat("report: ", QuoteValue(operand),
                       " is not accepted; accepted: NAME=NUMBER, such as return=210"),
          session);
    }
    (*request.mutable_values())[operand.substr(0, equals)] = value;
  }
  return Ask(request, arguments, session, &Service::ReportMetrics);
}

ExitCode RunDelete(const Arguments& arguments, Session& session) {
  training::v1::DeleteJobRequest request;
  request.set_job_id(arguments.operands.front());
  request.set_delete_checkpoints(arguments.Has("checkpoints"));
  const std::string fault = JobIdFault(request.job_id());
  if (!fault.empty()) return ReportUsage(fault, session);
  training::v1::DeleteJobResponse response;
  const grpc::Status status = Call(&Service::DeleteJob, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) {
    session.out << "job " << request.job_id() << " deleted, "
                << (request.delete_checkpoints()
                        ? absl::StrCat("with ", response.deleted_checkpoints(), " checkpoints")
                        : "its checkpoints stay")
                << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace genesis::cli
