// The `webhooks` command.
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "cli/commands/commands.h"
#include "cli/commands/pages.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {

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
                                           : table.ToString());
  return ExitCode::kOk;
}

}  // namespace genesis::cli
