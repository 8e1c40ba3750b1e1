// The `datasets`, `dataset-delete` commands.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/commands/pages.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {

using training::v1::DatasetInfo;

ExitCode RunDatasets(const Arguments&, Session& session) {
  training::v1::ListDatasetsResponse all;
  const grpc::Status status = ReadAllPages(
      training::v1::ListDatasetsRequest(),
      [&](auto* context, const auto& asked, auto* page) {
        return session.service.ListDatasets(context, asked, page);
      },
      &all);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(all, session)) return ExitCode::kOk;
  Table table({"NAME", "KIND", ">SIZE", ">TRANSITIONS", "CHANGED", "OWNERS"});
  for (const DatasetInfo& dataset : all.datasets()) {
    table.AddRow(
        {Printable(dataset.name()), Printable(dataset.kind()), FormatBytes(dataset.size_bytes()),
         dataset.kind() == "replay" ? absl::StrCat(dataset.transitions()) : "-",
         FormatTimestamp(dataset.update_time()), Printable(absl::StrJoin(dataset.owners(), ", "))});
  }
  session.out << (all.datasets().empty() ? "no datasets\n" : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

ExitCode RunDatasetDelete(const Arguments& arguments, Session& session) {
  training::v1::DeleteDatasetRequest request;
  request.set_name(arguments.operands.front());
  training::v1::DeleteDatasetResponse response;
  const grpc::Status status = Call(&Service::DeleteDataset, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) {
    session.out << "dataset " << Printable(request.name()) << " deleted\n";
  }
  return ExitCode::kOk;
}

}  // namespace genesis::cli
