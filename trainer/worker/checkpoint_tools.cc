#include "trainer/worker/checkpoint_tools.h"

#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/worker/error_line.h"

namespace genesis {
namespace {

// Resolves links in `path`, because a caller of a tool may pass a link.
std::string Followed(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

}  // namespace

int RunVerify(const std::string& named) {
  const std::string path = Followed(named);
  const absl::StatusOr<std::string> verified = VerifyCheckpoint(path);
  absl::Status status = verified.status();
  // Even an intact file may hold no usable weights: a module, code that would have to run, nothing.
  if (status.ok()) {
    const absl::StatusOr<NamedTensors> weights = ReadWeights(path);
    status = weights.status();
    if (weights.ok() && weights->empty()) {
      status = absl::InvalidArgumentError(
          absl::StrCat(path, ": holds no tensor; accepted: a dict of tensors"));
    }
  }
  if (!status.ok()) {
    PrintErrorLine(status.message());
    return ToInt(ExitCode::kFailure);
  }
  std::cout << path << ": whole" << (verified->empty() ? "" : "; " + *verified) << std::endl;
  return ToInt(ExitCode::kOk);
}

int RunExport(const std::string& from, const std::string& to, bool average) {
  if (!absl::EndsWith(to, ".safetensors")) {
    PrintErrorLine("--to is \"", to, "\"; accepted: a path that ends in .safetensors");
    return ToInt(ExitCode::kUsage);
  }
  const absl::Status exported =
      ExportSafetensors(Followed(from), to, average ? WeightsKind::kAverage : WeightsKind::kModel);
  if (!exported.ok()) {
    PrintErrorLine(exported.message());
    return ToInt(ExitCode::kUsage);
  }
  std::cout << to << ": written" << std::endl;
  return ToInt(ExitCode::kOk);
}

}  // namespace genesis
