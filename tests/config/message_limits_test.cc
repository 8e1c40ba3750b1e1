#include "base/text/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "config/job/job_spec.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using training::v1::JobSpec;

TEST(MessageLimits, AHugeListCostsNoMoreToRefuseThanALongOne) {
  JobSpec spec;
  for (int i = 0; i < 2'000'000; ++i) {
    spec.mutable_precision()->add_fallbacks(training::v1::PRECISION_MODE_AUTO);
  }
  for (int i = 0; i < 200'000; ++i) spec.add_rehearsals();
  const absl::Time begin = absl::Now();
  const std::vector<FieldError> faults = ValidateJobSpec(spec);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
  ASSERT_THAT(faults, SizeIs(2)) << "nothing else is looked at";
  EXPECT_EQ(faults[0].ToString(), "precision.fallbacks: has 2000000 values; accepted: at most 64");
  EXPECT_EQ(faults[1].ToString(), "rehearsals: has 200000 values; accepted: at most 64");
}

TEST(MessageLimits, AListMayHaveALimitOfItsOwn) {
  JobSpec spec;
  for (int i = 0; i < 1024; ++i) {
    spec.mutable_optimizer()->add_parameter_groups()->add_parameters(absl::StrCat("w", i));
  }
  EXPECT_THAT(CheckSizes(spec), SizeIs(0));
  for (int i = 0; i < 70; ++i) {
    spec.mutable_optimizer()->mutable_parameter_groups(3)->add_parameters("a");
  }
  EXPECT_THAT(CheckSizes(spec), SizeIs(0));
  spec.mutable_optimizer()->add_parameter_groups();
  const std::vector<FieldError> faults = CheckSizes(spec);
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0].ToString(),
            "optimizer.parameter_groups: has 1025 values; accepted: at most 1024");
}

TEST(MessageLimits, ListsNoMoreFaultsThanAPersonReads) {
  std::vector<FieldError> faults;
  for (int i = 0; i < 1000; ++i) faults.push_back({absl::StrCat("f", i), "1", "2"});
  const absl::Status status = ToStatus(faults);
  EXPECT_THAT(std::string(status.message()), HasSubstr("f19 is 1; accepted: 2\nand 980 more"));
  EXPECT_LT(status.GetPayload(kBadRequestType)->size(), 2000U);
}

TEST(MessageLimits, UnknownEnumsAreFoundWithTheOtherFaults) {
  JobSpec spec;
  spec.mutable_precision()->set_tf32(static_cast<training::v1::Tf32>(8));
  spec.mutable_precision()->add_fallbacks(static_cast<training::v1::PrecisionMode>(70));
  spec.mutable_optimizer()->set_kind(static_cast<training::v1::OptimizerKind>(-3));
  spec.mutable_precision()->mutable_watchdog()->mutable_overflow()->set_action(
      static_cast<training::v1::WatchdogAction>(44));
  std::string all;
  for (const FieldError& fault : ValidateJobSpec(spec))
    absl::StrAppend(&all, fault.ToString(), "\n");
  for (const char* text :
       {"precision.tf32 is 8; accepted: OFF, ON\n",
        "precision.fallbacks[0] is 70; accepted: FP32, FP16, BF16, MIXED_FP16, MIXED_BF16, AUTO\n",
        "optimizer.kind is -3; accepted: ", "precision.watchdog.overflow.action is 44; accepted: ",
        "model: required"}) {
    EXPECT_THAT(all, HasSubstr(text));
  }
}

TEST(MessageLimits, AReplayBufferHasOnePath) {
  JobSpec spec;
  const auto fault = [&](const std::string& path) {
    spec.mutable_dataset()->mutable_replay()->set_path(path);
    for (const FieldError& each : ValidateJobSpec(spec)) {
      if (each.path == "dataset.replay.path") return each.ToString();
    }
    return std::string();
  };
  for (const char* good : {"buffer", "a/b", "/srv/datasets/a", ".hidden", "a.b"}) {
    EXPECT_EQ(fault(good), "") << good;
  }
  for (const char* bad :
       {"", ".", "./", "a/", "a//b", "a/.", "./a", "/", "/.", "a/./b", "..", "//a"}) {
    EXPECT_NE(fault(bad), "") << bad;
  }
}

}  // namespace
}  // namespace genesis
