// The `logs` command.
#include <deque>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "cli/commands/commands.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

// Maximum time until a logged line is stored. The stream, opened before this wait, has later lines.
constexpr absl::Duration kStored = absl::Milliseconds(1500);

// Reads the stored log: at most 1000 lines, each with its time.
grpc::Status ReadLog(const std::string& job_id, Session& session, std::deque<std::string>& lines) {
  training::v1::ReadArtifactRequest request;
  request.set_job_id(job_id);
  request.set_name("log.txt");
  std::string text;
  training::v1::ReadArtifactResponse response;
  do {
    request.set_offset(static_cast<int64_t>(text.size()));
    const grpc::Status status = Call(&Service::ReadArtifact, request, response, session);
    if (!status.ok()) return status;
    text += response.piece();
  } while (!response.piece().empty() && static_cast<int64_t>(text.size()) < response.size_bytes());
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.emplace_back(line);
  }
  return grpc::Status::OK;
}

void Print(const std::string& line, Session& session) { session.out << Printable(line) << "\n"; }

std::string LineOf(const training::v1::JobEvent& event) {
  return absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", FromTimestamp(event.time()), absl::UTCTimeZone()),
      event.log_line());
}

// Prints the stored lines that are not in `printed`, then those of the stream.
ExitCode Follow(const std::string& job_id, std::set<std::string> printed, Session& session) {
  grpc::ClientContext context;
  session.interrupt.Set([&context] { context.TryCancel(); });
  training::v1::WatchJobRequest request;
  request.set_job_id(job_id);
  request.set_cursor(-1);
  const auto stream = session.service.WatchJob(&context, request);
  training::v1::WatchJobResponse response;
  bool open = stream->Read(&response);
  absl::SleepFor(kStored);
  std::deque<std::string> stored;
  const grpc::Status read = ReadLog(job_id, session, stored);
  if (read.ok()) {
    for (const std::string& line : stored) {
      if (printed.insert(line).second) Print(line, session);
    }
  }
  for (; open; open = stream->Read(&response)) {
    for (const training::v1::JobEvent& event : response.events()) {
      if (event.has_log_line() && !printed.contains(LineOf(event))) Print(LineOf(event), session);
    }
    session.out << std::flush;
  }
  const grpc::Status status = stream->Finish();
  session.interrupt.Clear();
  if (status.ok() || session.interrupt.fired()) return ExitCode::kOk;
  session.err << "genesisctl: the daemon ended the stream; repeat genesisctl logs " << job_id
              << " -f\n";
  return ReportError(status, session);
}

}  // namespace

ExitCode RunLogs(const Arguments& arguments, Session& session) {
  int64_t tail = 0;
  const std::string text = arguments.Value("tail");
  if (arguments.Has("tail") && (!absl::SimpleAtoi(text, &tail) || tail < 1)) {
    return ReportUsage(absl::StrCat("--tail is ", QuoteValue(text), "; accepted: 1 or more"),
                       session);
  }
  std::deque<std::string> lines;
  const std::string& job_id = arguments.operands.front();
  const grpc::Status status = ReadLog(job_id, session, lines);
  if (!status.ok()) return ReportError(status, session);
  const std::set<std::string> printed(lines.begin(), lines.end());
  while (tail > 0 && lines.size() > static_cast<size_t>(tail)) lines.pop_front();
  for (const std::string& line : lines) Print(line, session);
  session.out << std::flush;
  return arguments.Has("follow") ? Follow(job_id, printed, session) : ExitCode::kOk;
}

}  // namespace genesis::cli
