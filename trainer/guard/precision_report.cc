#include "trainer/guard/precision_report.h"

#include <ATen/Context.h>

#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/precision/precision.h"
#include "trainer/guard/operator_watch.h"
#include "trainer/kernels/own_kernels.h"
#include "trainer/models/base/alignment.h"
#include "trainer/models/base/kept_state.h"

namespace genesis {
namespace {

// Returns whether an operator computes nothing, so that the format of its output means nothing.
bool IsBookkeeping(const std::string& name) {
  static const auto* const names = new std::set<std::string>{"aten::to",
                                                             "aten::_to_copy",
                                                             "aten::copy_",
                                                             "aten::empty",
                                                             "aten::view",
                                                             "aten::reshape",
                                                             "aten::t",
                                                             "aten::transpose",
                                                             "aten::detach",
                                                             "aten::expand",
                                                             "aten::select",
                                                             "aten::slice",
                                                             "aten::narrow",
                                                             "aten::as_strided",
                                                             "aten::unsqueeze",
                                                             "aten::squeeze",
                                                             "aten::permute",
                                                             "aten::chunk",
                                                             "aten::split",
                                                             "aten::clone",
                                                             "aten::contiguous",
                                                             "aten::empty_like",
                                                             "aten::zeros",
                                                             "aten::ones",
                                                             "aten::zero_",
                                                             "aten::fill_",
                                                             "aten::resize_",
                                                             "aten::empty_strided",
                                                             "aten::scalar_tensor",
                                                             "aten::expand_as",
                                                             "aten::flatten",
                                                             "aten::alias",
                                                             "aten::unflatten",
                                                             "aten::view_as",
                                                             "aten::index",
                                                             "aten::_unsafe_view",
                                                             "aten::arange",
                                                             "aten::lift_fresh",
                                                             "aten::split_with_sizes"};
  return names->contains(name) || !absl::StartsWith(name, "aten::");
}

// A listener that sorts operators by the format of their first tensor output.
struct Formats : public OperatorListener {
  void OnEnd(const at::RecordFunction& function, at::ObserverContext* /*context*/) override {
    const std::string name = function.name();
    if (IsBookkeeping(name)) return;
    for (const c10::IValue& value : function.outputs()) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const at::ScalarType type = value.toTensor().scalar_type();
      if (type == at::kHalf || type == at::kBFloat16) reduced.insert(name);
      if (type == at::kFloat) single.insert(name);
      return;
    }
  }

  std::set<std::string> reduced, single;
};

Formats ObserveForward(TrainingSession& session) {
  Formats formats;
  const KeptGenerators generators(session.device());
  const std::shared_ptr<const void> state = session.model().KeepState();
  // Use a whole batch, because batch norm needs several examples.
  std::vector<int64_t> examples(static_cast<size_t>(session.source().batch_size()));
  std::iota(examples.begin(), examples.end(), 0);
  Batch batch = session.source().Fetch(std::move(examples));
  session.model().Draw(batch);
  {
    const OperatorWatch watch(formats);
    const torch::NoGradGuard no_grad;
    session.model().Loss(batch, FormatOf(session.mode()).autocast);
  }
  return formats;
}

std::string Architecture(int capability) {
  const std::string sm = absl::StrCat(" (sm_", capability, ")");
  if (capability >= 100) return "Blackwell tensor cores" + sm;
  if (capability >= 90) return "Hopper tensor cores" + sm;
  if (capability >= 89) return "Ada Lovelace tensor cores" + sm;
  if (capability >= 80) return "Ampere tensor cores" + sm;
  if (capability >= 75) return "Turing tensor cores" + sm;
  if (capability >= 70) return "Volta tensor cores" + sm;
  return absl::StrCat("no tensor cores", sm);
}

}  // namespace

std::string HardwareOf(training::v1::PrecisionMode mode, const training::v1::DeviceInfo& device) {
  if (device.cuda()) return Architecture(device.compute_capability());
  const std::string label = PrecisionLabel(mode);
  if (label == "fp32") {
    return absl::StrCat(device.cpu_isa(), MultipliesByOneDnn() ? " (oneDNN)" : "");
  }
  if (label == "bf16" && device.cpu_native_bf16()) return device.cpu_isa();
  return absl::StrCat(device.cpu_isa(), " (emulates ", absl::AsciiStrToUpper(label), ")");
}

training::v1::PrecisionReport ReportPrecision(TrainingSession& session,
                                              const training::v1::DeviceInfo& device) {
  training::v1::PrecisionReport report;
  report.set_hardware(HardwareOf(session.mode(), device));
  report.set_tf32(!device.cuda() ? "none" : at::globalContext().allowTF32CuBLAS() ? "on" : "off");
  if (IsReducedPrecision(session.mode())) {
    const std::string warning = BatchWarning(session.source().batch_size());
    if (!warning.empty()) report.add_alignment_warnings(warning);
  }
  for (const std::string& warning : AlignmentWarnings(session.model())) {
    report.add_alignment_warnings(warning);
  }
  if (FormatOf(session.mode()).autocast) {
    const Formats formats = ObserveForward(session);
    for (const std::string& name : formats.reduced) report.add_autocast_reduced(name);
    for (const std::string& name : formats.single) report.add_autocast_fp32(name);
  }
  return report;
}

}  // namespace genesis
