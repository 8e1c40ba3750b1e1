#include "server/sweeps/search_space.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text/text.h"
#include "config/job/faults.h"
#include "config/job/field_rules.h"
#include "config/job/job_spec.h"
#include "config/job/yaml_to_message.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"

namespace genesis {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using training::v1::JobSpec;
using training::v1::SweepParameter;
using training::v1::SweepRange;
using training::v1::SweepSpec;

constexpr char kLabel[] = "sweep";
// Both become labels of the trial's job. The limits also keep 1000 trials within one response.
constexpr size_t kMaxFieldBytes = 63;
constexpr size_t kMaxValueBytes = 63;
// Each trial costs a copy and a check of the job.
constexpr size_t kMaxJobBytes = size_t{1} << 16U;

// Returns the field of a job at the path; null if there is none.
const FieldDescriptor* FindField(const std::string& path) {
  const FieldDescriptor* field = nullptr;
  const google::protobuf::Descriptor* type = JobSpec::descriptor();
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    field = type == nullptr ? nullptr : type->FindFieldByName(name);
    if (field == nullptr) return nullptr;
    type = field->is_repeated() ? nullptr : field->message_type();
  }
  return field;
}

bool IsWhole(const std::string& path) {
  const FieldDescriptor* field = FindField(path);
  return field != nullptr && field->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
}

// Returns the message with the last field of the path; null if a message on the way is not set.
// Creates none, because that could clear another member of a oneof.
Message* ParentOf(const std::string& path, JobSpec& job) {
  std::vector<std::string> names = absl::StrSplit(path, '.');
  names.pop_back();
  Message* message = &job;
  for (const std::string& name : names) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (!reflection.HasField(*message, field)) return nullptr;
    message = reflection.MutableMessage(message, field);
  }
  return message;
}

std::string TextAt(const std::string& path, const FieldDescriptor* field, JobSpec job) {
  std::string text;
  const Message* const parent = ParentOf(path, job);
  if (parent == nullptr) return text;
  google::protobuf::TextFormat::PrintFieldValueToString(*parent, field, -1, &text);
  return text;
}

// Clears the fields beside an enum, such as optimizer.kind, that have their defaults, because the
// defaults of another value may differ. The specification that a job shows has all defaults.
void ClearDefaultsBeside(const std::string& path, JobSpec& job) {
  const FieldDescriptor* const swept = FindField(path);
  if (swept == nullptr || swept->enum_type() == nullptr || ParentOf(path, job) == nullptr) return;
  for (int i = 0; i < swept->containing_type()->field_count(); ++i) {
    const FieldDescriptor* const field = swept->containing_type()->field(i);
    if (field == swept || field->is_repeated()) continue;
    JobSpec open = job;
    Message* const parent = ParentOf(path, open);
    parent->GetReflection()->ClearField(parent, field);
    const JobSpec filled = WithDefaults(open, LossScaleSettings());
    if (TextAt(path, field, filled) == TextAt(path, field, job)) job = std::move(open);
  }
}

// Returns {a: {b: value}} for "a.b".
YAML::Node Nest(const std::string& path, const YAML::Node& value) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  YAML::Node nested = value;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    YAML::Node group;
    group[*name] = nested;
    nested = group;
  }
  return nested;
}

// Sets a field as a job file with this value would.
std::vector<FieldError> SetField(const std::string& path, const std::string& value, JobSpec& job) {
  YAML::Node parsed;
  try {
    parsed = YAML::Load(value);
  } catch (const YAML::Exception& error) {
    return {{path, QuoteValue(value), absl::StrCat("a YAML value; ", error.msg)}};
  }
  JobSpec changed = job;
  // A list of the trial replaces that of the job.
  const FieldDescriptor* field = FindField(path);
  Message* const parent = field == nullptr ? nullptr : ParentOf(path, changed);
  if (parent != nullptr && field->is_repeated()) parent->GetReflection()->ClearField(parent, field);
  std::vector<FieldError> errors = ReadYamlMessage(Nest(path, parsed), changed).errors;
  for (FieldError& each : errors) each.line = each.column = 0;
  if (errors.empty()) job = std::move(changed);
  return errors;
}

// A generator of its own for each trial, so that a trial's values do not depend on other trials.
// The standard defines every bit of engine and seed sequence, but no distribution.
class Draws {
 public:
  Draws(uint64_t seed, int trial) {
    std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U),
                        static_cast<uint32_t>(trial)};
    engine_.seed(seeds);
  }
  // Returns a number in [0, 1).
  double Uniform() { return static_cast<double>(engine_() >> 11U) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

std::string Draw(const SweepParameter& parameter, Draws& draws) {
  const double u = draws.Uniform();
  if (!parameter.has_range()) {
    return parameter.values(static_cast<int>(u * parameter.values_size()));
  }
  const SweepRange& range = parameter.range();
  const auto drawn_between = [&range, u](double low, double high) {
    return range.log() ? std::exp(std::lerp(std::log(low), std::log(high), u))
                       : std::lerp(low, high, u);
  };
  if (IsWhole(parameter.field())) {
    // Extend the range by 0.5 at both ends, which would otherwise be half as likely as the others.
    const double low = std::ceil(range.low());
    const double high = std::max(low, std::floor(range.high()));
    return absl::StrFormat("%.0f",
                           std::clamp(std::round(drawn_between(low - 0.5, high + 0.5)), low, high));
  }
  const double drawn = drawn_between(range.low(), range.high());
  // The job gets the number as shown. Rounding must not leave the range.
  const std::string text = absl::StrFormat("%.6g", drawn);
  return FormatNumber(std::clamp(std::stod(text), range.low(), range.high()));
}

void CheckParameter(const std::string& path, const SweepParameter& parameter, bool random,
                    Faults& faults) {
  if (parameter.field().empty() || parameter.field().size() > kMaxFieldBytes) {
    faults.Add(path + ".field", QuoteValue(parameter.field()),
               absl::StrCat("the path of a field of the job, 1 to ", kMaxFieldBytes,
                            " bytes, such as optimizer.learning_rate"));
  }
  if (parameter.has_range() == (parameter.values_size() > 0)) {
    faults.Add(path, "", "needs either values or a range");
  }
  for (int i = 0; i < parameter.values_size(); ++i) {
    if (parameter.values(i).size() <= kMaxValueBytes) continue;
    faults.Add(absl::StrCat(path, ".values[", i, "]"), QuoteValue(parameter.values(i)),
               absl::StrCat("at most ", kMaxValueBytes, " bytes"));
  }
  if (!parameter.has_range()) return;
  const SweepRange& range = parameter.range();
  if (!random) {
    faults.Add(path + ".range", "", "a grid has no ranges; give values, or set random_trials");
  }
  if (!std::isfinite(range.low()) || !std::isfinite(range.high()) || range.low() >= range.high()) {
    faults.Add(path + ".range",
               absl::StrCat(FormatNumber(range.low()), " to ", FormatNumber(range.high())),
               "two finite numbers, low < high");
  } else if (range.log() && range.low() <= 0) {
    faults.Add(path + ".range.low", FormatNumber(range.low()), "> 0, because log is set");
  }
}

void CheckParameters(const SweepSpec& spec, Faults& faults) {
  if (spec.parameters().empty()) {
    faults.Add("parameters", "", "required; name a field of the job and the values to try");
  }
  std::set<std::string> fields;
  for (int i = 0; i < spec.parameters_size(); ++i) {
    const std::string path = absl::StrCat("parameters[", i, "]");
    CheckParameter(path, spec.parameters(i), spec.random_trials() > 0, faults);
    if (!fields.insert(spec.parameters(i).field()).second) {
      faults.Add(path + ".field", QuoteValue(spec.parameters(i).field()),
                 "a field that no other parameter names");
    }
  }
  if (spec.random_trials() > 0) return;
  int64_t trials = 1;
  for (const SweepParameter& each : spec.parameters()) {
    trials = std::min<int64_t>(trials * std::max(each.values_size(), 1), kMaxTrials + 1);
  }
  if (trials > kMaxTrials) {
    faults.Add("parameters", "",
               absl::StrCat("the grid has more than ", kMaxTrials,
                            " combinations; give fewer values, or set random_trials"));
  }
}

// Returns "trial 3 (a=1, b=2)".
std::string DescribeTrial(int number, const std::map<std::string, std::string>& values) {
  return absl::StrCat("trial ", number, " (",
                      OneLine(absl::StrJoin(values, ", ", absl::PairFormatter("=")), 200), ")");
}

// Returns the job of the sweep without the defaults that a trial's values may change.
JobSpec BaseJob(const SweepSpec& spec) {
  JobSpec job = spec.job();
  for (const SweepParameter& each : spec.parameters()) ClearDefaultsBeside(each.field(), job);
  return job;
}

// Changes `job`, the BaseJob of the sweep, to the job of a trial with these values.
std::vector<FieldError> SetTrial(const std::string& sweep_id,
                                 const std::map<std::string, std::string>& values, JobSpec& job) {
  std::vector<FieldError> errors;
  for (const auto& [field, value] : values) {
    for (FieldError& each : SetField(field, value, job)) errors.push_back(std::move(each));
  }
  auto& labels = *job.mutable_scheduling()->mutable_labels();
  for (const auto& [field, value] : values) labels[field] = value;
  labels[kLabel] = sweep_id;
  return errors;
}

std::vector<FieldError> CheckTrial(const SweepSpec& spec, int number, JobSpec job) {
  const std::map<std::string, std::string> values = TrialParameters(spec, number);
  std::vector<FieldError> errors = SetTrial("", values, job);
  if (errors.empty()) errors = ValidateJobSpec(job);
  if (errors.empty() && spec.has_halving() && job.evaluation().every_steps() == 0) {
    errors.push_back({"evaluation.every_steps", "",
                      "required, because halving compares trials by their evaluations"});
  }
  for (FieldError& each : errors) each.file = DescribeTrial(number, values);
  return errors;
}

}  // namespace

SweepSpec WithSweepDefaults(SweepSpec spec) {
  FillDefaults(spec);
  if (spec.metric().empty()) spec.set_metric("loss");
  if (spec.has_halving()) FillDefaults(*spec.mutable_halving());
  if (spec.has_halving() && spec.halving().first_rung_steps() == 0) {
    spec.mutable_halving()->set_first_rung_steps(spec.job().evaluation().every_steps());
  }
  return spec;
}

std::vector<FieldError> ValidateSweep(const SweepSpec& spec) {
  Faults faults;
  if (!spec.has_job()) faults.Add("job", "", "required");
  if (const size_t bytes = spec.job().ByteSizeLong(); bytes > kMaxJobBytes) {
    faults.Add("job", "", absl::StrCat("has ", bytes, " bytes; accepted: at most ", kMaxJobBytes));
  }
  CheckRanges("", spec, faults);
  if (spec.has_halving()) CheckRanges("halving", spec.halving(), faults);
  CheckParameters(spec, faults);
  if (spec.has_halving() && WithSweepDefaults(spec).halving().first_rung_steps() == 0) {
    faults.Add("halving.first_rung_steps", "",
               "required, because job.evaluation.every_steps, its default, is not set");
  }
  if (spec.metric().size() > kMaxFieldBytes) {
    faults.Add("metric", QuoteValue(spec.metric()),
               absl::StrCat("loss or the name of a metric, at most ", kMaxFieldBytes, " bytes"));
  }
  if (spec.job().scheduling().labels().contains(kLabel)) {
    faults.Add("job.scheduling.labels", QuoteValue(kLabel),
               "no label of this name, which is set to the ID of the sweep");
  }
  std::vector<FieldError> errors = faults.Take();
  if (!errors.empty()) return errors;
  const JobSpec job = BaseJob(spec);
  for (int i = 0; i < CountTrials(spec) && errors.empty(); ++i) errors = CheckTrial(spec, i, job);
  return errors;
}

int CountTrials(const SweepSpec& spec) {
  if (spec.random_trials() > 0) return spec.random_trials();
  int trials = 1;
  for (const SweepParameter& each : spec.parameters()) trials *= each.values_size();
  return trials;
}

std::map<std::string, std::string> TrialParameters(const SweepSpec& spec, int number) {
  std::map<std::string, std::string> values;
  if (spec.random_trials() > 0) {
    Draws draws(spec.seed(), number);
    for (const SweepParameter& each : spec.parameters()) values[each.field()] = Draw(each, draws);
    return values;
  }
  int rest = number;
  for (int i = spec.parameters_size() - 1; i >= 0; --i) {
    const SweepParameter& each = spec.parameters(i);
    values[each.field()] = each.values(rest % each.values_size());
    rest /= each.values_size();
  }
  return values;
}

std::string TrialJobId(const std::string& sweep_id, int number) {
  return absl::StrFormat("%s-%03d", sweep_id, number);
}

JobSpec TrialJob(const training::v1::Sweep& sweep, int number) {
  JobSpec job = BaseJob(sweep.spec());
  // The sweep was accepted without errors.
  SetTrial(sweep.id(), TrialParameters(sweep.spec(), number), job);
  return job;
}

}  // namespace genesis
