// Tests of the gate, the effective precision, and the printed form of errors.
#include <fstream>
#include <map>
#include <string>
#include <tuple>

#include "base/environment.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/precision/gate.h"
#include "config/precision/precision.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using training::v1::DeviceInfo;
using training::v1::EffectivePrecision;
using training::v1::PrecisionMode;

Environment FromMap(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

PrecisionGate Gate(std::map<std::string, std::string> variables, bool yaml_allows = true) {
  return ReadPrecisionGate(FromMap(std::move(variables)), yaml_allows);
}

TEST(GateTest, IsClosedWhenNothingIsSet) {
  const PrecisionGate gate = Gate({});
  EXPECT_FALSE(gate.enabled);
  EXPECT_EQ(gate.reason, "disabled by default (ENABLE_FP16_TRAINING is not set)");
  EXPECT_THAT(gate.errors, IsEmpty());
}

TEST(GateTest, OpensForTheExactWordTrue) {
  const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", "true"}});
  EXPECT_TRUE(gate.enabled);
  EXPECT_EQ(gate.reason, "enabled by ENABLE_FP16_TRAINING=true");
  EXPECT_THAT(gate.errors, IsEmpty());
}

TEST(GateTest, IsClosedByFalseWithoutAnError) {
  const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", "false"}});
  EXPECT_FALSE(gate.enabled);
  EXPECT_EQ(gate.reason, "disabled by ENABLE_FP16_TRAINING=false");
  EXPECT_THAT(gate.errors, IsEmpty());
}

TEST(GateTest, IsClosedByAnyOtherWordWithAnErrorThatNamesIt) {
  for (const char* word : {"True", "TRUE", "1", "yes", "on", " true", "true ", "", "False", "0"}) {
    const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", word}});
    EXPECT_FALSE(gate.enabled) << word;
    EXPECT_THAT(gate.errors,
                ElementsAre("ENABLE_FP16_TRAINING is \"" + std::string(word) +
                            "\"; accepted: exactly true or false; reduced precision is disabled"));
    EXPECT_EQ(gate.reason,
              "disabled by ENABLE_FP16_TRAINING=\"" + std::string(word) + "\" (unreadable)");
  }
}

TEST(GateTest, StaysOpenForFeatureFlagsThatAllowItOrAreNotOurs) {
  for (const char* flags :
       {"", "fp16_training:true", " fp16_training:true , other:false", "other:false", "other",
        "my_fp16_training:false", "fp16_training_v2:false", ",,", "a:maybe,fp16_training:true"}) {
    const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", "true"}, {"FEATURE_FLAGS", flags}});
    EXPECT_TRUE(gate.enabled) << flags << ": " << gate.reason;
    EXPECT_THAT(gate.errors, IsEmpty()) << flags;
  }
}

TEST(GateTest, IsClosedByTheFeatureFlag) {
  for (const char* flags : {"fp16_training:false", "x:true, fp16_training:false ,y:true",
                            "fp16_training:true,fp16_training:false"}) {
    const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", "true"}, {"FEATURE_FLAGS", flags}});
    EXPECT_FALSE(gate.enabled) << flags;
    EXPECT_EQ(gate.reason, "disabled by FEATURE_FLAGS=fp16_training:false");
    EXPECT_THAT(gate.errors, IsEmpty()) << flags;
  }
}

TEST(GateTest, IsClosedByAnUnreadableItemThatNamesTheFlag) {
  for (const char* item :
       {"fp16_training:False", "fp16_training:1", "fp16_training", "fp16_training=false",
        "fp16_training: false", "fp16_training:true:x", "FP16_TRAINING:true", "fp16_training:"}) {
    const PrecisionGate gate =
        Gate({{"ENABLE_FP16_TRAINING", "true"}, {"FEATURE_FLAGS", std::string("a:true, ") + item}});
    EXPECT_FALSE(gate.enabled) << item;
    EXPECT_THAT(gate.errors,
                ElementsAre("FEATURE_FLAGS has \"" + std::string(item) +
                            "\"; accepted: fp16_training:true or fp16_training:false; reduced "
                            "precision is disabled"));
  }
}

TEST(GateTest, IsClosedByYaml) {
  const PrecisionGate gate = Gate({{"ENABLE_FP16_TRAINING", "true"}}, false);
  EXPECT_FALSE(gate.enabled);
  EXPECT_EQ(gate.reason, "disabled by precision.reduced_precision=false");
}

TEST(GateTest, NamesEverySourceThatSaysNo) {
  const PrecisionGate gate =
      Gate({{"ENABLE_FP16_TRAINING", "0"}, {"FEATURE_FLAGS", "fp16_training:false"}}, false);
  EXPECT_EQ(gate.reason,
            "disabled by ENABLE_FP16_TRAINING=\"0\" (unreadable) and "
            "FEATURE_FLAGS=fp16_training:false and precision.reduced_precision=false");
}

TEST(EnvironmentTest, TellsUnsetFromEmpty) {
  ASSERT_EQ(setenv("GENESIS_ENVIRONMENT_TEST", "", 1), 0);
  EXPECT_EQ(ProcessEnvironment("GENESIS_ENVIRONMENT_TEST"), "");
  ASSERT_EQ(unsetenv("GENESIS_ENVIRONMENT_TEST"), 0);
  EXPECT_EQ(ProcessEnvironment("GENESIS_ENVIRONMENT_TEST"), std::nullopt);
}

constexpr PrecisionMode kUnspecified = training::v1::PRECISION_MODE_UNSPECIFIED;
constexpr PrecisionMode kFp32 = training::v1::PRECISION_MODE_FP32;
constexpr PrecisionMode kFp16 = training::v1::PRECISION_MODE_FP16;
constexpr PrecisionMode kBf16 = training::v1::PRECISION_MODE_BF16;
constexpr PrecisionMode kMixedFp16 = training::v1::PRECISION_MODE_MIXED_FP16;
constexpr PrecisionMode kMixedBf16 = training::v1::PRECISION_MODE_MIXED_BF16;
constexpr PrecisionMode kAuto = training::v1::PRECISION_MODE_AUTO;

DeviceInfo Cpu(bool native_bf16) {
  DeviceInfo device;
  device.set_name("cpu");
  device.set_cpu_native_bf16(native_bf16);
  return device;
}

DeviceInfo Cuda(int capability) {
  DeviceInfo device;
  device.set_name("cuda:0");
  device.set_cuda(true);
  device.set_compute_capability(capability);
  return device;
}

EffectivePrecision Effective(PrecisionMode requested, bool gate_open, CpuFallback fallback,
                             const DeviceInfo& device) {
  PrecisionGate gate;
  gate.enabled = gate_open;
  gate.reason =
      gate_open ? "enabled by ENABLE_FP16_TRAINING=true" : "disabled by ENABLE_FP16_TRAINING=false";
  return ComputeEffectivePrecision(requested, gate, fallback, device);
}

// The expected mode of a requested mode on every kind of device, with the gate open.
struct Row {
  PrecisionMode requested;
  PrecisionMode plain_cpu, plain_cpu_fp32_policy, native_cpu, native_cpu_fp32_policy, emulating_cpu;
  PrecisionMode cuda_61, cuda_75, cuda_80, cuda_90;
};

// clang-format off
constexpr Row kTable[] = {
    {kUnspecified, kFp32, kFp32, kMixedBf16, kFp32, kMixedFp16, kFp32, kMixedFp16, kMixedFp16, kMixedFp16},
    {kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, kFp32},
    {kFp16, kFp32, kFp32, kMixedBf16, kFp32, kFp16, kFp32, kFp16, kFp16, kFp16},
    {kBf16, kBf16, kBf16, kBf16, kBf16, kBf16, kFp32, kFp32, kBf16, kBf16},
    {kMixedFp16, kFp32, kFp32, kMixedBf16, kFp32, kMixedFp16, kFp32, kMixedFp16, kMixedFp16, kMixedFp16},
    {kMixedBf16, kMixedBf16, kMixedBf16, kMixedBf16, kMixedBf16, kMixedBf16, kFp32, kFp32, kMixedBf16, kMixedBf16},
    {kAuto, kFp32, kFp32, kAuto, kAuto, kAuto, kFp32, kAuto, kAuto, kAuto},
};
// clang-format on

TEST(EffectivePrecisionTest, FollowsTheTruthTableOfModePolicyAndDevice) {
  static_assert(std::size(kTable) == training::v1::PrecisionMode_ARRAYSIZE);
  for (const Row& row : kTable) {
    const std::tuple<DeviceInfo, CpuFallback, PrecisionMode> cases[] = {
        {Cpu(false), CpuFallback::kBf16, row.plain_cpu},
        {Cpu(false), CpuFallback::kFp32, row.plain_cpu_fp32_policy},
        {Cpu(true), CpuFallback::kBf16, row.native_cpu},
        {Cpu(true), CpuFallback::kFp32, row.native_cpu_fp32_policy},
        {Cpu(false), CpuFallback::kEmulate, row.emulating_cpu},
        {Cuda(61), CpuFallback::kBf16, row.cuda_61},
        {Cuda(61), CpuFallback::kEmulate, row.cuda_61},
        {Cuda(75), CpuFallback::kBf16, row.cuda_75},
        {Cuda(75), CpuFallback::kFp32, row.cuda_75},
        {Cuda(80), CpuFallback::kBf16, row.cuda_80},
        {Cuda(80), CpuFallback::kFp32, row.cuda_80},
        {Cuda(90), CpuFallback::kBf16, row.cuda_90},
        {Cuda(90), CpuFallback::kFp32, row.cuda_90}};
    for (const auto& [device, fallback, expected] : cases) {
      const EffectivePrecision open = Effective(row.requested, true, fallback, device);
      const std::string what = ShortEnumName(row.requested) + " on " + device.ShortDebugString();
      EXPECT_EQ(open.mode(), expected) << what << ": " << open.reason();
      EXPECT_EQ(open.requested(), row.requested) << what;
      EXPECT_EQ(open.device(), device.name()) << what;
      EXPECT_THAT(open.reason(), testing::StartsWith(ShortEnumName(expected) + ": ")) << what;
      const PrecisionMode wanted = row.requested == kUnspecified ? kMixedFp16 : row.requested;
      if (expected == wanted) {
        EXPECT_EQ(open.refused_size(), 0) << what;
      } else {
        ASSERT_EQ(open.refused_size(), 1) << what;
        EXPECT_THAT(open.refused(0), testing::StartsWith(ShortEnumName(wanted) + ": ")) << what;
      }
      const EffectivePrecision closed = Effective(row.requested, false, fallback, device);
      EXPECT_EQ(closed.mode(), kFp32) << what;
    }
  }
}

TEST(AllowedModesTest, AreWhatRunsInHardwareOrWasNamed) {
  PrecisionGate open;
  open.enabled = true;
  training::v1::PrecisionSpec spec;
  const auto allowed = [&](const DeviceInfo& device) {
    return AllowedModes(spec, open, CpuFallback::kBf16, device);
  };
  EXPECT_THAT(allowed(Cpu(false)), ElementsAre(kFp32));
  EXPECT_THAT(allowed(Cpu(true)), ElementsAre(kFp32, kBf16, kMixedBf16));
  EXPECT_THAT(allowed(Cuda(75)), ElementsAre(kFp32, kFp16, kMixedFp16));
  EXPECT_THAT(allowed(Cuda(90)), ElementsAre(kFp32, kFp16, kBf16, kMixedFp16, kMixedBf16));
  EXPECT_THAT(AllowedModes(spec, PrecisionGate(), CpuFallback::kBf16, Cuda(90)),
              ElementsAre(kFp32));
  spec.add_fallbacks(kMixedBf16);
  EXPECT_THAT(allowed(Cpu(false)), ElementsAre(kFp32, kMixedBf16));
  spec.set_mode(kAuto);
  EXPECT_THAT(allowed(Cuda(90)), ElementsAre(kMixedBf16, kMixedFp16, kFp32));
}

TEST(EffectivePrecisionTest, GivesTheReason) {
  const auto reason = [](PrecisionMode mode, bool open, CpuFallback fallback, DeviceInfo device) {
    return Effective(mode, open, fallback, device).reason();
  };
  EXPECT_EQ(reason(kMixedFp16, false, CpuFallback::kBf16, Cuda(90)),
            "FP32: reduced precision is disabled by ENABLE_FP16_TRAINING=false");
  EXPECT_EQ(reason(kFp32, false, CpuFallback::kBf16, Cuda(90)), "FP32: asked for by the job");
  EXPECT_EQ(reason(kMixedFp16, true, CpuFallback::kBf16, Cuda(70)),
            "MIXED_FP16: asked for by the job");
  EXPECT_EQ(reason(kUnspecified, true, CpuFallback::kBf16, Cuda(70)),
            "MIXED_FP16: the default while reduced precision is enabled");
  EXPECT_EQ(reason(kUnspecified, true, CpuFallback::kBf16, Cpu(true)),
            "MIXED_BF16: FP16 is emulated on a CPU (20 to 140 times slower than FP32); this "
            "processor multiplies BF16 natively");
  EXPECT_EQ(reason(kMixedFp16, true, CpuFallback::kBf16, Cpu(false)),
            "FP32: FP16 is emulated on a CPU (20 to 140 times slower than FP32) and this processor "
            "has no native BF16 (avx512_bf16 or amx_bf16)");
  EXPECT_EQ(reason(kMixedFp16, true, CpuFallback::kFp32, Cpu(true)),
            "FP32: FP16 is emulated on a CPU (20 to 140 times slower than FP32) and "
            "precision.cpu_fallback is fp32");
  EXPECT_EQ(reason(kMixedBf16, true, CpuFallback::kBf16, Cuda(75)),
            "FP32: BF16 needs compute capability 8.0; cuda:0 has 7.5");
  EXPECT_EQ(reason(kMixedBf16, true, CpuFallback::kFp32, Cpu(false)),
            "MIXED_BF16: asked for by the job; warning: this processor has no native BF16 "
            "(avx512_bf16 or amx_bf16), so it is emulated and slower than FP32");
  EXPECT_EQ(reason(kAuto, true, CpuFallback::kBf16, Cpu(true)),
            "AUTO: the worker measures and chooses");
  EXPECT_EQ(reason(kAuto, true, CpuFallback::kBf16, Cpu(false)),
            "FP32: nothing to choose from: cpu multiplies neither FP16 nor BF16 in hardware");
  EXPECT_EQ(reason(kFp16, true, CpuFallback::kBf16, Cuda(61)),
            "FP32: FP16 training needs compute capability 7.0; cuda:0 has 6.1");
  EXPECT_EQ(reason(kMixedFp16, true, CpuFallback::kEmulate, Cpu(false)),
            "MIXED_FP16: asked for by the job; warning: FP16 is emulated on a CPU (20 to 140 times "
            "slower than FP32), as precision.cpu_fallback emulate asks");
}

TEST(PrecisionNamesTest, AreFrozen) {
  const std::tuple<PrecisionMode, const char*, const char*, bool> rows[] = {
      {kFp32, "FP32", "fp32", false},
      {kFp16, "FP16", "fp16", true},
      {kBf16, "BF16", "bf16", true},
      {kMixedFp16, "MIXED_FP16", "fp16", true},
      {kMixedBf16, "MIXED_BF16", "bf16", true}};
  for (const auto& [mode, name, label, reduced] : rows) {
    EXPECT_EQ(ShortEnumName(mode), name);
    EXPECT_EQ(PrecisionLabel(mode), label);
    EXPECT_EQ(IsReducedPrecision(mode), reduced);
  }
  EXPECT_EQ(ShortEnumName(static_cast<PrecisionMode>(17)), "17");
}

TEST(EffectivePrecisionTest, IsFp32WhereTheWorkersHostSaysNo) {
  const PrecisionGate open = Gate({{"ENABLE_FP16_TRAINING", "true"}});
  DeviceInfo device;
  device.set_name("gpu-7/cuda:0");
  device.set_cuda(true);
  device.set_compute_capability(90);
  EXPECT_EQ(ComputeEffectivePrecision(kMixedBf16, open, CpuFallback::kBf16, device).mode(),
            kMixedBf16);
  device.set_reduced_precision_disabled("disabled by ENABLE_FP16_TRAINING=false on gpu-7");
  const EffectivePrecision effective =
      ComputeEffectivePrecision(kMixedBf16, open, CpuFallback::kBf16, device);
  EXPECT_EQ(effective.mode(), kFp32);
  EXPECT_THAT(effective.reason(),
              HasSubstr("reduced precision is disabled by ENABLE_FP16_TRAINING=false on gpu-7"));
  EXPECT_THAT(AutoCandidates(open, CpuFallback::kBf16, device), IsEmpty());
}

// Linux lists a CPU flag only if it has also enabled the registers.
TEST(CpuTest, FindsNativeBf16WhereTheKernelShowsIt) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  for (std::string line; flags.empty() && std::getline(file, line);) {
    if (line.starts_with("flags")) flags = line + " ";
  }
  ASSERT_FALSE(flags.empty());
  const auto has = [&](const char* flag) {
    return flags.find(" " + std::string(flag) + " ") != std::string::npos;
  };
  EXPECT_EQ(CpuHasNativeBf16(), has("avx512_bf16") || has("amx_bf16"));
  const std::string isa = CpuIsa();
  EXPECT_EQ(isa == "avx512_bf16" || isa == "amx_bf16", CpuHasNativeBf16());
  EXPECT_TRUE(isa != "avx512" || has("avx512f"));
  EXPECT_TRUE(isa != "baseline" || !has("avx2"));
}

TEST(FieldErrorTest, PrintsPlaceValueAndWhatIsAccepted) {
  FieldError error{.path = "training.batch_size", .value = "-4", .accepted = "1 to 1048576"};
  EXPECT_EQ(error.ToString(), "training.batch_size is -4; accepted: 1 to 1048576");
  error.line = 3;
  error.column = 15;
  EXPECT_EQ(error.ToString(), "line 3:15: training.batch_size is -4; accepted: 1 to 1048576");
  EXPECT_EQ(error.ToString("job.yaml"),
            "job.yaml:3:15: training.batch_size is -4; accepted: 1 to 1048576");
  error.file = "own.yaml";
  EXPECT_THAT(error.ToString("job.yaml"), HasSubstr("own.yaml:3:15: "));
}

TEST(FieldErrorTest, PrintsASentenceWhenThereIsNoValue) {
  EXPECT_EQ((FieldError{.path = "model", .value = "", .accepted = "required"}).ToString("j.yaml"),
            "j.yaml: model: required");
  EXPECT_EQ((FieldError{.path = "", .value = "", .accepted = "empty"}).ToString("j.yaml"),
            "j.yaml: empty");
}

TEST(FieldErrorTest, JoinsFaultsLineByLine) {
  const absl::Status status = ToStatus(
      {{.path = "a", .value = "1", .accepted = "2"}, {.path = "b", .value = "3", .accepted = "4"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a is 1; accepted: 2\nb is 3; accepted: 4");
}

TEST(FieldErrorTest, QuotesValuesSafelyAndShortly) {
  EXPECT_EQ(QuoteValue("many"), "\"many\"");
  EXPECT_EQ(QuoteValue("a\nb\x1b[31m"), "\"a\\nb\\x1b[31m\"");
  EXPECT_EQ(QuoteValue("größe"), "\"größe\"");
  EXPECT_EQ(QuoteValue(std::string(200, 'x')), "\"" + std::string(120, 'x') + "...\" (200 bytes)");
  EXPECT_EQ(QuoteValue(std::string(119, 'x') + "ö" + std::string(9, 'x')),
            "\"" + std::string(119, 'x') + "...\" (130 bytes)");
}

TEST(FieldErrorTest, WritesNumbersShortly) {
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(-4), "-4");
  EXPECT_EQ(FormatNumber(1e-8), "1e-08");
  EXPECT_EQ(FormatNumber(65536), "65536");
}

}  // namespace
}  // namespace genesis
