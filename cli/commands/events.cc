// The `events` command.
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/commands/filters.h"
#include "cli/event_line.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

using training::v1::EventFilter;

// Sets the filter. Returns "", or the error.
std::string SetFilter(const Arguments& arguments, EventFilter& filter) {
  filter.set_job_id(arguments.Value("job"));
  filter.set_owner(arguments.Value("owner"));
  for (const std::string& kind : arguments.Values("kind")) filter.add_kinds(kind);
  std::string fault = AddStates(arguments, *filter.mutable_states());
  return fault.empty() ? AddLabels(arguments, *filter.mutable_labels()) : fault;
}

void PrintEvents(const google::protobuf::RepeatedPtrField<training::v1::JobEvent>& events,
                 Session& session) {
  for (const training::v1::JobEvent& event : events) {
    if (session.output == OutputFormat::kTable) {
      session.out << absl::StrCat(event.sequence(), "  ", Printable(event.job_id()), "  ",
                                  EventLine(event), "\n");
      continue;
    }
    if (session.output == OutputFormat::kYaml) session.out << "---\n";
    PrintMessage(event, session, /*compact=*/true);
  }
  session.out << std::flush;
}

ExitCode Print(const EventFilter& filter, int64_t cursor, Session& session) {
  training::v1::ListEventsRequest request;
  *request.mutable_filter() = filter;
  request.set_page_size(1000);
  request.set_skip_dropped(cursor == 0);
  training::v1::ListEventsResponse page;
  request.set_cursor(cursor);
  do {
    const grpc::Status status = Call(&Service::ListEvents, request, page, session);
    if (!status.ok()) return ReportError(status, session);
    PrintEvents(page.events(), session);
    request.set_cursor(page.cursor());
  } while (page.more());
  return ExitCode::kOk;
}

ExitCode Follow(const EventFilter& filter, int64_t cursor, Session& session) {
  grpc::ClientContext context;
  session.interrupt.Set([&context] { context.TryCancel(); });
  training::v1::WatchJobsRequest request;
  *request.mutable_filter() = filter;
  request.set_cursor(cursor);
  const auto stream = session.service.WatchJobs(&context, request);
  training::v1::WatchJobsResponse response;
  while (stream->Read(&response)) {
    PrintEvents(response.events(), session);
    cursor = response.cursor();
  }
  const grpc::Status status = stream->Finish();
  session.interrupt.Clear();
  if (session.interrupt.fired()) return ExitCode::kOk;
  session.err << "genesisctl: the daemon ended the stream; continue with --cursor " << cursor
              << "\n";
  return status.ok() ? ExitCode::kUnavailable : ReportError(status, session);
}

}  // namespace

ExitCode RunEvents(const Arguments& arguments, Session& session) {
  EventFilter filter;
  if (const std::string fault = SetFilter(arguments, filter); !fault.empty()) {
    return ReportUsage(fault, session);
  }
  int64_t cursor = 0;
  const std::string text = arguments.Value("cursor");
  if (arguments.Has("cursor") && !absl::SimpleAtoi(text, &cursor)) {
    return ReportUsage(
        absl::StrCat("--cursor is ", QuoteValue(text), "; accepted: the number of an event, or 0"),
        session);
  }
  return arguments.Has("follow") ? Follow(filter, cursor, session) : Print(filter, cursor, session);
}

}  // namespace genesis::cli
