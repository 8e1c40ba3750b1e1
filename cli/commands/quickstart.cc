// The `quickstart` command.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/commands/example_files.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

struct Workload {
  const char* name;
  const char* file;
  const char* summary;
};

constexpr Workload kWorkloads[] = {
    {"world_model", "pendulum.yaml", "A world model, trained on recorded trajectories"},
    {"transformer", "transformer.yaml", "A language model, on synthetic tokens"},
    {"radio_unet", "radio_unet.yaml", "A diffusion model of radio maps, on synthetic maps"},
    {"module", "module.yaml", "An nn.Module of your own"},
    {"ranks", "distributed.yaml", "One job in several processes"}};

std::string WorkloadsText() {
  Table table({"WORKLOAD", "WHAT IT TRAINS"});
  for (const Workload& workload : kWorkloads) table.AddRow({workload.name, workload.summary});
  return absl::StrCat(table.ToString(),
                      "\nWrite one: genesisctl quickstart transformer -f job.yaml\n");
}

std::string TextOf(const Workload& workload) {
  const std::vector<EmbeddedFile>& files = ExampleFiles();
  const auto file = std::find_if(files.begin(), files.end(), [&workload](const EmbeddedFile& each) {
    return each.name == workload.file;
  });
  return std::string(file->content);
}

}  // namespace

ExitCode RunQuickstart(const Arguments& arguments, Session& session) {
  if (arguments.operands.empty()) {
    session.out << WorkloadsText();
    return ExitCode::kOk;
  }
  const std::string& name = arguments.operands.front();
  const Workload* workload =
      std::find_if(std::begin(kWorkloads), std::end(kWorkloads),
                   [&name](const Workload& each) { return name == each.name; });
  if (workload == std::end(kWorkloads)) {
    const std::string accepted = absl::StrJoin(
        kWorkloads, ", ",
        [](std::string* out, const Workload& each) { absl::StrAppend(out, each.name); });
    return ReportUsage(absl::StrCat(QuoteValue(name), ": unknown workload; accepted: ", accepted),
                       session);
  }
  const std::string file = arguments.Value("file");
  if (file.empty()) {
    session.out << TextOf(*workload);
    return ExitCode::kOk;
  }
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    return ReportFault(absl::StrCat(Printable(file), ": exists; give another name"), session);
  }
  std::ofstream out(file, std::ios::binary);
  out << TextOf(*workload);
  if (!out.flush()) {
    return ReportFault(absl::StrCat(Printable(file), ": cannot be written"), session);
  }
  session.out << "wrote " << Printable(file) << "; train it: genesisctl train -f "
              << Printable(file) << " --upload --watch\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
