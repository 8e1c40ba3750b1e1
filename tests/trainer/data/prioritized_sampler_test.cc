#include "trainer/data/prioritized_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace genesis {
namespace {

using testing::ElementsAre;

PrioritizedSampler Sampler(std::vector<float> priorities, int64_t batch_size = 4, double alpha = 1,
                           double beta = 1) {
  return PrioritizedSampler(std::move(priorities), {.batch_size = batch_size,
                                                    .seed = 7,
                                                    .priority_exponent = alpha,
                                                    .importance_exponent = beta});
}

TEST(PrioritizedSamplerTest, DrawsInProportionToThePriorities) {
  for (const double alpha : {1.0, 0.6}) {
    const std::vector<float> priorities = {1, 4, 0.25, 16, 2};
    PrioritizedSampler sampler = Sampler(priorities, 10, alpha);
    double sum = 0;
    for (const float p : priorities) sum += std::pow(p, alpha);
    std::map<int64_t, int> counts;
    constexpr int kBatches = 20000;
    for (int i = 0; i < kBatches; ++i, sampler.Advance()) {
      for (const int64_t example : sampler.Draw().examples) ++counts[example];
    }
    for (int64_t i = 0; i < 5; ++i) {
      const double expected = std::pow(priorities[static_cast<size_t>(i)], alpha) / sum;
      EXPECT_NEAR(sampler.Probability(i), expected, 1e-12);
      // Four standard deviations of independent draws. Stratification only reduces the deviation.
      const double tolerance = 4 * std::sqrt(expected * (1 - expected) / (10.0 * kBatches));
      EXPECT_NEAR(counts[i] / (10.0 * kBatches), expected, tolerance) << i;
    }
  }
}

TEST(PrioritizedSamplerTest, WeighsByImportance) {
  const std::vector<float> priorities = {1, 4, 2};
  PrioritizedSampler sampler = Sampler(priorities, 8, 1, 0.5);
  for (int i = 0; i < 20; ++i, sampler.Advance()) {
    const PrioritizedBatch batch = sampler.Draw();
    for (size_t k = 0; k < batch.examples.size(); ++k) {
      const auto example = batch.examples[k];
      // (N P(i))^-beta divided by its maximum, which is that of the least likely example.
      const double weight = std::pow(3 * sampler.Probability(example), -0.5);
      const double largest = std::pow(3 * sampler.Probability(0), -0.5);
      EXPECT_FLOAT_EQ(batch.weights[k], static_cast<float>(weight / largest));
    }
  }
}

TEST(PrioritizedSamplerTest, TheWeightsTakeTheBiasBackWithBetaOne) {
  // With beta = 1, the weighted mean of any value is proportional to its plain mean.
  PrioritizedSampler sampler = Sampler({1, 2, 4, 8}, 4, 1, 1);
  const double values[] = {3, -1, 5, 10};
  double weighted = 0, weights = 0;
  for (int i = 0; i < 50000; ++i, sampler.Advance()) {
    const PrioritizedBatch batch = sampler.Draw();
    for (size_t k = 0; k < 4; ++k) {
      weighted += double{batch.weights[k]} * values[batch.examples[k]];
      weights += double{batch.weights[k]};
    }
  }
  EXPECT_NEAR(weighted / weights, (3 - 1 + 5 + 10) / 4.0, 0.05);
}

TEST(PrioritizedSamplerTest, AnUpdateMovesTheProbabilities) {
  PrioritizedSampler sampler = Sampler({1, 1, 1, 1}, 100);
  sampler.Update({2, 0, 2}, {5.0f, 0.5f, 97.0f});
  EXPECT_THAT(sampler.priorities(), ElementsAre(0.5f, 1, 97, 1));
  EXPECT_NEAR(sampler.Probability(2), 97 / 99.5, 1e-12);
  const auto examples = sampler.Draw().examples;
  EXPECT_GE(std::count(examples.begin(), examples.end(), 2), 95);
}

TEST(PrioritizedSamplerTest, SurvivesPrioritiesThatAreNoNumbers) {
  PrioritizedSampler sampler = Sampler({1, 1, 1});
  sampler.Update({0, 1, 2}, {std::nanf(""), INFINITY, 0.0f});
  for (const float priority : sampler.priorities()) {
    EXPECT_TRUE(std::isfinite(priority));
    EXPECT_GT(priority, 0);
  }
  for (const float weight : sampler.Draw().weights) {
    EXPECT_GT(weight, 0);
    EXPECT_LE(weight, 1);
  }
}

TEST(PrioritizedSamplerTest, ALossThatIsNotFiniteLeavesThePriority) {
  PrioritizedSampler sampler = Sampler({3, 1, 2, 5});
  sampler.Update({0, 1, 2, 3}, {std::nanf(""), INFINITY, -INFINITY, 7.0f});
  EXPECT_THAT(sampler.priorities(), ElementsAre(3, 1, 2, 7));
}

TEST(PrioritizedSamplerTest, DrawsAlikeInEveryUnitOfTheLoss) {
  const float losses[] = {4, 0, 1, 0.5f};
  for (const int exponent : {-60, -30, 0, 30, 60}) {
    std::vector<float> scaled;
    for (const float loss : losses) scaled.push_back(std::ldexp(loss, exponent));
    PrioritizedSampler sampler = Sampler({1, 1, 1, 1});
    sampler.Update({0, 1, 2, 3}, scaled);
    EXPECT_NEAR(sampler.Probability(0), 4 / 5.5, 1e-5) << exponent;
    EXPECT_NEAR(sampler.Probability(3), 0.5 / 5.5, 1e-5) << exponent;
    EXPECT_GT(sampler.Probability(1), 0) << exponent;
    PrioritizedSampler resumed = Sampler({1, 1, 1, 1});
    resumed.Restore(sampler.priorities());
    EXPECT_EQ(resumed.priorities(), sampler.priorities()) << exponent;
  }
}

TEST(PrioritizedSamplerTest, ContinuesToTheBitFromACheckpoint) {
  std::vector<float> priorities(1000);
  for (size_t i = 0; i < priorities.size(); ++i) {
    priorities[i] = 0.1f + static_cast<float>(i % 17);
  }
  PrioritizedSampler straight = Sampler(priorities, 32, 0.6, 0.4);
  const auto step = [](PrioritizedSampler& sampler) {
    const PrioritizedBatch batch = sampler.Draw();
    std::vector<float> losses;
    for (const int64_t example : batch.examples) {
      losses.push_back(static_cast<float>((example * 37 + 11) % 101) / 7);
    }
    sampler.Update(batch.examples, losses);
    sampler.Advance();
    return batch;
  };
  for (int i = 0; i < 100; ++i) step(straight);
  PrioritizedSampler resumed = Sampler(std::vector<float>(1000, 1.0f), 32, 0.6, 0.4);
  resumed.Restore(straight.priorities());
  resumed.Seek(straight.position());
  for (int i = 0; i < 100; ++i) {
    const PrioritizedBatch expected = step(straight);
    const PrioritizedBatch batch = step(resumed);
    ASSERT_EQ(batch.examples, expected.examples) << i;
    ASSERT_EQ(batch.weights, expected.weights) << i;
  }
}

TEST(PrioritizedSamplerTest, SlidesToWhatAFreshOneWouldBe) {
  std::mt19937 random(3);
  PrioritizedSampler sliding({}, {.batch_size = 8, .seed = 7, .endless = true});
  std::vector<float> expected;
  for (int i = 0; i < 300; ++i, sliding.Advance()) {
    std::vector<float> added(expected.empty() ? 1 : random() % 20);
    for (float& each : added) each = random() % 2 == 0 ? 0 : static_cast<float>(1 + random() % 50);
    const size_t most = added.empty() ? expected.size() - 1 : expected.size();
    const size_t dropped = std::min(most, size_t{random() % 20});
    sliding.Slide(static_cast<int64_t>(dropped), added);
    expected.erase(expected.begin(), expected.begin() + static_cast<int64_t>(dropped));
    float highest = 0;
    for (const float each : expected) highest = std::max(highest, each);
    for (const float each : added) highest = std::max(highest, each);
    for (const float each : added) {
      expected.push_back(each > 0 ? each : (highest > 0 ? highest : 1));
    }
    ASSERT_EQ(sliding.priorities(), expected) << i;
    PrioritizedSampler fresh(expected, {.batch_size = 8, .seed = 7, .endless = true});
    fresh.Seek(sliding.position());
    const PrioritizedBatch batch = sliding.Draw();
    ASSERT_EQ(batch.examples, fresh.Draw().examples) << i;
    ASSERT_EQ(batch.weights, fresh.Draw().weights) << i;
    EXPECT_EQ(sliding.position().batch, i) << "it has one epoch";
  }
  EXPECT_GT(expected.size(), 20u);
}

TEST(PrioritizedSamplerTest, DrawsOnlyExamplesThatAreThere) {
  for (size_t size = 1; size <= 40; ++size) {
    PrioritizedSampler sampler = Sampler(std::vector<float>(size, 1e-6f), 16);
    sampler.Update({static_cast<int64_t>(size) - 1}, {1e12f});
    for (int i = 0; i < 50; ++i, sampler.Advance()) {
      for (const int64_t example : sampler.Draw().examples) {
        EXPECT_GE(example, 0);
        EXPECT_LT(example, static_cast<int64_t>(size));
      }
    }
  }
}

}  // namespace
}  // namespace genesis
