#include "config/job/field_rules.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "genesis/training/v1/job.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::FieldRule;
using training::v1::JobSpec;

// Calls `visit` for every field with a rule in any message of a job file.
void ForEachRule(const Descriptor& type, std::set<const Descriptor*>& seen,
                 const std::function<void(const FieldDescriptor&, const FieldRule&)>& visit) {
  if (!seen.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (const FieldRule* rule = RuleOf(field)) visit(field, *rule);
    if (field.message_type() != nullptr) ForEachRule(*field.message_type(), seen, visit);
  }
}

void ForEachRule(const std::function<void(const FieldDescriptor&, const FieldRule&)>& visit) {
  std::set<const Descriptor*> seen;
  ForEachRule(*JobSpec::descriptor(), seen, visit);
}

void Set(Message& message, const FieldDescriptor& field, double value) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return message.GetReflection()->SetInt32(&message, &field, static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return message.GetReflection()->SetInt64(&message, &field, static_cast<int64_t>(value));
    default:
      return message.GetReflection()->SetDouble(&message, &field, value);
  }
}

size_t FaultsOf(const FieldDescriptor& field, double value) {
  const std::unique_ptr<Message> message(google::protobuf::MessageFactory::generated_factory()
                                             ->GetPrototype(field.containing_type())
                                             ->New());
  Set(*message, field, value);
  Faults faults;
  CheckRanges("it", *message, faults);
  return faults.Take().size();
}

double JustBeyond(const FieldDescriptor& field, double value, double direction) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE
             ? std::nextafter(value, direction * HUGE_VAL)
             : value + direction;
}

TEST(FieldRulesTest, EndsOfEveryRangeAreWhereTheySay) {
  int ranges = 0;
  ForEachRule([&](const FieldDescriptor& field, const FieldRule& rule) {
    SCOPED_TRACE(field.full_name());
    const auto expect = [&](double value, size_t faults) {
      // 0 means that the field is not set, and `besides` is accepted outside the range.
      if (value == 0 || (rule.has_besides() && value == rule.besides())) return;
      EXPECT_EQ(FaultsOf(field, value), faults) << value;
      ++ranges;
    };
    if (rule.has_least()) expect(rule.least(), 0);
    if (rule.has_least()) expect(JustBeyond(field, rule.least(), -1), 1);
    if (rule.has_most()) expect(rule.most(), 0);
    if (rule.has_most()) expect(JustBeyond(field, rule.most(), 1), 1);
    if (rule.has_above()) expect(rule.above(), 1);
    if (rule.has_above()) expect(JustBeyond(field, rule.above(), 1), 0);
    if (rule.has_below()) expect(rule.below(), 1);
    if (rule.has_besides()) {
      EXPECT_EQ(FaultsOf(field, rule.besides()), 0u);
    }
  });
  EXPECT_GT(ranges, 100);
}

TEST(FieldRulesTest, NoRangeTakesWhatIsNotANumber) {
  ForEachRule([](const FieldDescriptor& field, const FieldRule& rule) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) return;
    ASSERT_TRUE(rule.has_least() || rule.has_above()) << field.full_name();
    EXPECT_EQ(FaultsOf(field, std::nan("")), 1u) << field.full_name();
    EXPECT_EQ(FaultsOf(field, HUGE_VAL), 1u) << field.full_name();
    EXPECT_EQ(FaultsOf(field, -0.0), 0u) << field.full_name();
  });
}

TEST(FieldRulesTest, EveryDefaultIsAccepted) {
  ForEachRule([](const FieldDescriptor& field, const FieldRule& rule) {
    SCOPED_TRACE(field.full_name());
    if (rule.has_default_value()) {
      EXPECT_EQ(FaultsOf(field, rule.default_value()), 0u);
    }
    if (!rule.default_name().empty()) {
      ASSERT_NE(field.enum_type(), nullptr);
      EXPECT_NE(field.enum_type()->FindValueByName(rule.default_name()), nullptr);
    }
    // A bound must not be both inclusive and exclusive.
    EXPECT_FALSE(rule.has_least() && rule.has_above());
    EXPECT_FALSE(rule.has_most() && rule.has_below());
    EXPECT_EQ(rule.has_besides(), !rule.besides_means().empty());
  });
}

TEST(FieldRulesTest, EverySectionFillsTheDefaultsOfItsFields) {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories();
  spec = WithDefaults(spec, LossScaleSettings());
  const auto expect_filled = [](const Message& message) {
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *message.GetDescriptor()->field(i);
      if (DefaultText(field).empty()) continue;
      EXPECT_TRUE(message.GetReflection()->HasField(message, &field)) << field.full_name();
    }
  };
  expect_filled(spec);
  expect_filled(spec.model().world_model());
  expect_filled(spec.dataset());
  expect_filled(spec.dataset().sampling());
  expect_filled(spec.dataset().synthetic());
  expect_filled(spec.dataset().synthetic().trajectories());
  expect_filled(spec.training());
  expect_filled(spec.optimizer());
  expect_filled(spec.optimizer().schedule());
  expect_filled(spec.checkpoint());
  expect_filled(spec.precision());
  expect_filled(spec.precision().watchdog());
  expect_filled(spec.scheduling());
}

TEST(FieldRulesTest, AFaultShowsTheNumberAsItWasWritten) {
  training::v1::TrainingSpec training;
  training.set_max_steps(std::numeric_limits<int64_t>::max());
  training.set_ema_decay(1);
  Faults faults;
  CheckRanges("training", training, faults);
  std::vector<std::string> texts;
  for (const FieldError& error : faults.Take()) {
    texts.push_back(absl::StrCat(error.path, "=", error.value, ": ", error.accepted));
  }
  EXPECT_THAT(texts, ElementsAre("training.max_steps=9223372036854775807: 1 to 1000000000000",
                                 "training.ema_decay=1: above 0 and below 1, or 0 for no average"));
}

TEST(FieldRulesTest, TheTextOfARuleHasDefaultRangeAndUnit) {
  const auto text = [](const Descriptor& type, const char* field) {
    return RuleText(*type.FindFieldByName(field));
  };
  EXPECT_EQ(text(*training::v1::SchedulingSpec::descriptor(), "stop_grace_seconds"),
            "Default 60. Accepted: 1 to 86400. Unit: seconds.");
  EXPECT_EQ(text(*training::v1::OptimizerSpec::descriptor(), "kind"), "Default ADAMW.");
  EXPECT_EQ(text(*training::v1::OptimizerSpec::descriptor(), "nesterov"), "");
}

}  // namespace
}  // namespace genesis
