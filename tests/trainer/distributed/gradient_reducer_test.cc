#include "trainer/distributed/gradient_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "tests/trainer/threaded_communicators.h"
#include "tests/trainer/threaded_ranks.h"
#include "trainer/optim/part_of.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using training::v1::DistributedSpec;

enum class Way { kSharedMemory, kGloo, kDevices };

class GradientReducerTest : public ::testing::TestWithParam<Way> {
 protected:
  RankOptions Options() {
    RankOptions options;
    options.shared_memory = GetParam() == Way::kSharedMemory;
    if (GetParam() == Way::kDevices) {
      factories_.push_back(std::make_unique<ThreadedCommunicators>());
      options.communicators = factories_.back().get();
    }
    return options;
  }
  // Returns the argument that belongs to the tested transport.
  const char* Choose(const char* shared_memory, const char* gloo, const char* devices) const {
    return GetParam() == Way::kSharedMemory ? shared_memory
           : GetParam() == Way::kGloo       ? gloo
                                            : devices;
  }

 private:
  std::vector<std::unique_ptr<ThreadedCommunicators>> factories_;
};

INSTANTIATE_TEST_SUITE_P(Ways, GradientReducerTest,
                         ::testing::Values(Way::kSharedMemory, Way::kGloo, Way::kDevices));

// Sized for three buckets; DistributedDataParallel's bucket sizes are 1 and 25 MiB.
std::vector<torch::Tensor> LargeMasters() {
  return {torch::zeros({500, 500}),
          torch::zeros({3, 5}),
          torch::zeros({2600, 2600}),
          torch::zeros({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast),
          torch::zeros({600, 600}),
          torch::zeros({}),
          torch::zeros({7})};
}

// Runs one step in which this rank's `gradients` become ready in reverse order.
torch::Tensor Exchange(GradientReducer& reducer, const std::vector<torch::Tensor>& gradients,
                       const torch::Tensor& loss, torch::Tensor arrived = {}) {
  for (size_t i = gradients.size(); i-- > 0;) reducer.Put(i, gradients[i]);
  if (!arrived.defined()) arrived = torch::ones({static_cast<int64_t>(gradients.size())});
  return reducer.Finish(loss, arrived);
}

TEST_P(GradientReducerTest, MakesMeansOfGradientsAndLoss) {
  for (const int size : {2, 3, 5}) {
    WithRanks(size, Options(), [this, size](RankGroup& ranks) {
      const std::vector<torch::Tensor> masters = LargeMasters();
      GradientReducer reducer(ranks, masters, DistributedSpec());
      EXPECT_THAT(reducer.description(), HasSubstr("3 buckets, 28.1 MiB, by "));
      EXPECT_THAT(reducer.description(), HasSubstr(Choose("shared memory", "Gloo", "NCCL")));
      for (int step = 0; step < 3; ++step) {
        std::vector<torch::Tensor> own, wanted;
        for (size_t i = 0; i < masters.size(); ++i) {
          // Same random numbers in each rank, times the rank's number plus 1.
          torch::Generator random = at::make_generator<at::CPUGeneratorImpl>(10 * step + i);
          const torch::Tensor base = torch::empty_like(masters[i]).normal_(0, 1, random);
          own.push_back(base * (ranks.rank() + 1));
          wanted.push_back(base * ((size + 1) / 2.0));
        }
        const torch::Tensor loss = Exchange(reducer, own, torch::full({}, ranks.rank() + 1.0));
        EXPECT_FLOAT_EQ(loss.item<float>(), (size + 1) / 2.0F);
        EXPECT_EQ(loss.dim(), 0);
        for (size_t i = 0; i < masters.size(); ++i) {
          const torch::Tensor& mean = reducer.memory()[i];
          EXPECT_TRUE(torch::allclose(mean, wanted[i], 1e-5, 1e-6)) << "gradient " << i;
          EXPECT_EQ(mean.strides(), masters[i].strides());
        }
      }
    });
  }
}

TEST_P(GradientReducerTest, AllRanksGetTheSameBits) {
  const auto sums = std::make_shared<std::vector<torch::Tensor>>(3);
  WithRanks(3, Options(), [&](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({1000, 37})}, DistributedSpec());
    torch::Generator random = at::make_generator<at::CPUGeneratorImpl>(ranks.rank());
    Exchange(reducer, {torch::empty({1000, 37}).normal_(0, 1, random)}, torch::zeros({}));
    (*sums)[static_cast<size_t>(ranks.rank())] = reducer.memory().front().clone();
  });
  EXPECT_TRUE(torch::equal((*sums)[0], (*sums)[1]));
  EXPECT_TRUE(torch::equal((*sums)[0], (*sums)[2]));
  EXPECT_GT((*sums)[0].abs().max().item<float>(), 0);
}

TEST_P(GradientReducerTest, GradientsMayBeReadyInAnyOrder) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    const std::vector<torch::Tensor> masters = LargeMasters();
    GradientReducer reducer(ranks, masters, DistributedSpec());
    const std::vector<size_t> order = ranks.first() ? std::vector<size_t>{3, 0, 6, 1, 5, 2, 4}
                                                    : std::vector<size_t>{6, 5, 4, 3, 2, 1, 0};
    for (const size_t i : order) {
      reducer.Put(i, torch::full_like(masters[i], ranks.rank() + 1.0 + static_cast<double>(i)));
    }
    reducer.Finish(torch::zeros({}), torch::ones({7}));
    for (size_t i = 0; i < masters.size(); ++i) {
      EXPECT_TRUE(reducer.memory()[i].eq(1.5 + static_cast<double>(i)).all().item<bool>());
    }
  });
}

TEST_P(GradientReducerTest, AnInfinityOfOneRankIsEverybodys) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({3})}, DistributedSpec());
    torch::Tensor own = torch::ones({3});
    if (ranks.rank() == 1) own[2] = INFINITY;
    EXPECT_EQ(Exchange(reducer, {own}, torch::ones({})).item<float>(), 1);
    EXPECT_EQ(reducer.memory().front()[1].item<float>(), 1);
    EXPECT_TRUE(std::isinf(reducer.memory().front()[2].item<float>()));
  });
}

TEST_P(GradientReducerTest, AGradientOfOneRankHasArrivedForAll) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({2}), torch::zeros({2})}, DistributedSpec());
    const torch::Tensor arrived = torch::tensor({ranks.first() ? 1.0F : 0.0F, 0.0F});
    Exchange(reducer, {torch::full({2}, ranks.first() ? 4.0 : 0.0), torch::zeros({2})},
             torch::ones({}), arrived);
    EXPECT_GT(arrived[0].item<float>(), 0);
    EXPECT_EQ(arrived[1].item<float>(), 0);
    EXPECT_EQ(reducer.memory().front()[0].item<float>(), 2);
  });
}

TEST_P(GradientReducerTest, AFlagOfOneRankIsSeenByAll) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
    ranks.SetFlags({.stop = ranks.rank() == 1, .seconds = ranks.rank() + 1.0});
    EXPECT_FALSE(ranks.agreed().stop);
    Exchange(reducer, {torch::ones({2})}, torch::ones({}));
    EXPECT_TRUE(ranks.agreed().stop);
    EXPECT_FALSE(ranks.agreed().checkpoint || ranks.agreed().time_is_up);
    EXPECT_FALSE(ranks.agreed().complete || ranks.agreed().news);
    EXPECT_EQ(ranks.agreed().seconds, 1.5);
    ranks.SetFlags({.checkpoint = ranks.rank() == 0,
                    .complete = ranks.rank() == 1,
                    .news = ranks.rank() == 0});
    Exchange(reducer, {torch::ones({2})}, torch::ones({}));
    EXPECT_FALSE(ranks.agreed().stop);
    EXPECT_TRUE(ranks.agreed().checkpoint && ranks.agreed().complete && ranks.agreed().news);
  });
}

DistributedSpec Compressed(training::v1::GradientCompression kind, bool feedback) {
  DistributedSpec spec;
  spec.set_gradient_compression(kind);
  spec.set_use_error_feedback(feedback);
  return spec;
}

TEST_P(GradientReducerTest, CompressionRoundsAsPyTorchsHooks) {
  for (const auto kind :
       {training::v1::GRADIENT_COMPRESSION_FP16, training::v1::GRADIENT_COMPRESSION_BF16}) {
    const auto type = kind == training::v1::GRADIENT_COMPRESSION_FP16 ? at::kHalf : at::kBFloat16;
    WithRanks(2, Options(), [&](RankGroup& ranks) {
      GradientReducer reducer(ranks, {torch::zeros({1000})}, Compressed(kind, false));
      EXPECT_THAT(reducer.description(), HasSubstr("MiB compressed, by "));
      torch::Generator random = at::make_generator<at::CPUGeneratorImpl>(5);
      const torch::Tensor a = torch::empty({1000}).normal_(0, 1, random);
      const torch::Tensor b = torch::empty({1000}).normal_(0, 1, random);
      Exchange(reducer, {ranks.first() ? a : b}, torch::full({}, 0.1 + ranks.rank()));
      // As in fp16_compress_hook: converted to 16 bits, divided by the ranks, summed in 16 bits.
      const torch::Tensor wanted = (a / 2).to(type) + (b / 2).to(type);
      EXPECT_TRUE(torch::equal(reducer.memory().front(), wanted.to(torch::kFloat)));
    });
  }
}

TEST_P(GradientReducerTest, ErrorFeedbackKeepsTheSumOverStepsRight) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    // 1 + 2^-10 is 1 in BF16, so without error feedback the rest is lost in each step.
    const torch::Tensor own = torch::full({8}, 2 + std::ldexp(1.0, -9));
    for (const bool feedback : {false, true}) {
      GradientReducer reducer(ranks, {torch::zeros({8})},
                              Compressed(training::v1::GRADIENT_COMPRESSION_BF16, feedback));
      torch::Tensor total = torch::zeros({8});
      for (int step = 0; step < 64; ++step) {
        Exchange(reducer, {own}, torch::zeros({}));
        total += reducer.memory().front();
      }
      const float error = (total - 64 * own).abs().max().item<float>();
      if (feedback) {
        EXPECT_LT(error, 0.02);
      } else {
        EXPECT_NEAR(error, 0.125, 1e-3);
      }
    }
  });
}

TEST_P(GradientReducerTest, ErrorFeedbackForgetsAnOverflow) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({4})},
                            Compressed(training::v1::GRADIENT_COMPRESSION_FP16, true));
    Exchange(reducer, {torch::full({4}, 1e6)}, torch::zeros({}));
    EXPECT_TRUE(reducer.memory().front().isinf().all().item<bool>());
    Exchange(reducer, {torch::ones({4})}, torch::zeros({}));
    EXPECT_TRUE(reducer.memory().front().eq(1).all().item<bool>());
    // A skipped step must leave no residual, or its rounding error would be added to the next step.
    Exchange(reducer, {torch::full({4}, 10001.5)}, torch::zeros({}));
    reducer.DropResidualsWhere(torch::ones({}));
    Exchange(reducer, {torch::ones({4})}, torch::zeros({}));
    EXPECT_TRUE(reducer.memory().front().eq(1).all().item<bool>());
  });
}

TEST_P(GradientReducerTest, ARankThatEndsIsAFailureOfTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const RankOptions options = Options();
  const auto step = [](GradientReducer& reducer) {
    Exchange(reducer, {torch::ones({2})}, torch::ones({}));
  };
  std::thread other([&] {
    RankGroup ranks(PlaceOf(1, 2), store, options);
    GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
    step(reducer);
  });
  RankGroup ranks(PlaceOf(0, 2), store, options);
  GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
  step(reducer);
  other.join();
  EXPECT_THAT(
      FailureOf([&] { step(reducer); }),
      HasSubstr(Choose("rank 0 of 2 cannot add up gradients: rank 1 has ended; its log says why",
                       "rank 0 of 2 cannot add up gradients: rank 1 does not answer",
                       "rank 0 of 2 cannot agree with the others: rank 1 does not answer")));
}

TEST_P(GradientReducerTest, ASilentRankIsNoticedAndNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  RankOptions options = Options();
  options.timeout = std::chrono::seconds(1);
  std::latch noticed(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      RankGroup ranks(PlaceOf(rank, 3), store, options);
      GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
      const auto step = [&] { Exchange(reducer, {torch::ones({2})}, torch::ones({})); };
      step();
      if (rank == 1) {
        noticed.wait();
        return;
      }
      EXPECT_THAT(FailureOf(step),
                  HasSubstr(Choose("rank 1 has been silent for 1 s", "rank 1 does not answer",
                                   "rank 1 does not answer")));
      noticed.count_down();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(GradientReducerTest, ASlowRankIsWaitedFor) {
  WithRanks(2, Options(), [](RankGroup& ranks) {
    GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
    for (int step = 0; step < 5; ++step) {
      if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      Exchange(reducer, {torch::full({2}, 2.0 * ranks.rank())}, torch::ones({}));
      EXPECT_TRUE(reducer.memory().front().eq(1).all().item<bool>());
    }
  });
}

TEST(GradientReducerWayTest, OneRankWithoutSharedMemoryIsGlooForAll) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto rank = [&](int number) {
    RankOptions options;
    options.shared_memory = number != 1;
    RankGroup ranks(PlaceOf(number, 3), store, options);
    GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
    EXPECT_THAT(reducer.description(), HasSubstr("Gloo, because GENESIS_SHARED_MEMORY is false"));
    Exchange(reducer, {torch::full({2}, 1.0 * number)}, torch::ones({}));
    EXPECT_TRUE(reducer.memory().front().eq(1).all().item<bool>());
    ranks.Await();
  };
  std::thread first(rank, 0), second(rank, 1);
  rank(2);
  first.join();
  second.join();
}

// If the ranks share memory for the update, each gets only its part of the mean gradients. Norms,
// loss and flags must be bitwise equal to those of ranks that have all gradients.
TEST(GradientReducerWayTest, APartOfTheMeansGoesWithTheNormsOfTheWhole) {
  for (const int size : {2, 3, 5}) {
    WithRanks(size, [size](RankGroup& ranks) {
      const std::vector<torch::Tensor> masters = LargeMasters();
      GradientReducer whole(ranks, masters, DistributedSpec());
      GradientReducer parts(ranks, masters, DistributedSpec(), /*common=*/4096);
      for (int step = 0; step < 3; ++step) {
        std::vector<torch::Tensor> own;
        for (const torch::Tensor& master : masters) {
          torch::Generator random =
              at::make_generator<at::CPUGeneratorImpl>(10 * step + ranks.rank());
          own.push_back(torch::empty_like(master).normal_(0, 1, random));
        }
        if (step == 2 && ranks.rank() == 1) own[2].view({-1})[7] = INFINITY;
        const torch::Tensor wanted_arrived = torch::ones({7});
        const torch::Tensor arrived = torch::ones({7});
        const torch::Tensor loss = torch::full({}, 0.1 + ranks.rank());
        const torch::Tensor wanted = Exchange(whole, own, loss, wanted_arrived);
        ranks.SetFlags({.stop = step == 1 && ranks.first()});
        EXPECT_TRUE(torch::equal(Exchange(parts, own, loss, arrived), wanted));
        EXPECT_EQ(ranks.agreed().stop, step == 1);
        EXPECT_TRUE(torch::equal(arrived, wanted_arrived));
        EXPECT_TRUE(torch::equal(parts.Norms(), whole.Norms()));
        EXPECT_EQ(std::isinf(parts.Norms()[2].item<float>()), step == 2);
        for (size_t i = 0; i < masters.size(); ++i) {
          const IndexRange part = PartOf(masters[i].numel(), ranks.rank(), size);
          const auto in_memory = [&](const GradientReducer& reducer) {
            return reducer.memory()[i]
                .as_strided({masters[i].numel()}, {1})
                .slice(0, part.begin, part.end);
          };
          EXPECT_TRUE(torch::equal(in_memory(parts), in_memory(whole)));
        }
        // All ranks meet between an update and the gradients of the next step.
        parts.Meet();
      }
    });
  }
}

TEST(GradientReducerWayTest, ARankThatIsLostWhileWeightsAreUpdatedIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const RankOptions options;
  const auto step = [](GradientReducer& reducer) {
    reducer.Put(0, torch::ones({2}));
    reducer.Finish(torch::ones({}), torch::ones({1}));
  };
  std::thread other([&] {
    RankGroup ranks(PlaceOf(1, 2), store, options);
    GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec(), /*common=*/4096);
    step(reducer);
  });
  RankGroup ranks(PlaceOf(0, 2), store, options);
  GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec(), /*common=*/4096);
  step(reducer);
  other.join();
  EXPECT_THAT(FailureOf([&] { reducer.Meet(); }),
              HasSubstr("rank 0 of 2 cannot update weights: rank 1 has ended; its log says why"));
}

// A large gradient is read in place once all ranks have it, so later writes to it are visible.
TEST(GradientReducerWayTest, ALargeGradientIsReadWhereItIs) {
  WithRanks(3, [](RankGroup& ranks) {
    const std::vector<torch::Tensor> masters = {torch::zeros({700, 500}), torch::zeros({10})};
    GradientReducer reducer(ranks, masters, DistributedSpec(), /*common=*/4096);
    EXPECT_THAT(reducer.description(), Not(HasSubstr("copied")));
    const auto mean = [&] {
      reducer.Finish(torch::zeros({}), torch::ones({2}));
      const IndexRange part = PartOf(masters[0].numel(), ranks.rank(), ranks.size());
      return reducer.memory()[0].flatten().slice(0, part.begin, part.end).clone();
    };
    const torch::Tensor own = torch::full_like(masters[0], ranks.rank());
    reducer.Put(0, own);
    own.add_(1);
    reducer.Put(1, masters[1]);
    EXPECT_TRUE(torch::allclose(mean(), torch::full({}, 2.0F)));
    reducer.Meet();
    // An undefined gradient, different strides, and another number format.
    reducer.Put(1, {});
    const torch::Tensor columns = torch::full({500, 700}, 4.0F).t();
    reducer.Put(0, ranks.rank() == 0   ? torch::Tensor()
                   : ranks.rank() == 1 ? columns
                                       : torch::full({700, 500}, 2.0F).to(torch::kBFloat16));
    EXPECT_TRUE(torch::allclose(mean(), torch::full({}, 2.0F)));
  });
}

// If one rank has no GPU, or NCCL cannot connect, all ranks use the host.
TEST(GradientReducerWayTest, OneRankWithoutNcclIsTheHostForAll) {
  class Broken : public ThreadedCommunicators {
   public:
    std::unique_ptr<Communicator> Make(const Options& /*options*/) override {
      TORCH_CHECK(false, "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0");
    }
  };
  for (const bool missing : {true, false}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    ThreadedCommunicators whole;
    Broken broken;
    const auto rank = [&](int number) {
      RankOptions options;
      options.communicators = number == 0 ? &whole : missing ? nullptr : &broken;
      RankGroup ranks(PlaceOf(number, 2), store, options);
      GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
      EXPECT_FALSE(reducer.on_device());
      EXPECT_THAT(reducer.description(), HasSubstr("by shared memory"));
      std::string way;
      ranks.MakeTransport({{.elements = 2}}, 0, at::Device(at::kCUDA, 0), &way);
      EXPECT_THAT(way, HasSubstr("shared memory and memory of the host, because rank 1 "));
      EXPECT_THAT(way, HasSubstr(missing ? "has no NCCL: it computes on the CPU"
                                         : "cannot use NCCL: Duplicate GPU detected"));
      Exchange(reducer, {torch::full({2}, 1.0 * number)}, torch::ones({}));
      EXPECT_TRUE(reducer.memory().front().eq(0.5).all().item<bool>());
      ranks.Await();
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    EXPECT_EQ(whole.made(), 0);
  }
}

// In a captured step, the device part is replayed while the host part runs separately.
TEST(GradientReducerWayTest, TheHalvesOfAStepAgreeAsTheWhole) {
  ThreadedCommunicators communicators;
  RankOptions options;
  options.communicators = &communicators;
  WithRanks(2, options, [](RankGroup& ranks) {
    const std::vector<torch::Tensor> masters = {torch::zeros({2}), torch::zeros({3})};
    GradientReducer reducer(ranks, masters, DistributedSpec());
    ASSERT_TRUE(reducer.on_device());
    const auto put = [&] {
      for (const size_t i : {1, 0}) reducer.Put(i, torch::full_like(masters[i], ranks.rank()));
    };
    put();
    torch::Tensor arrived = torch::tensor({ranks.first() ? 1.0F : 0.0F, 0.0F});
    reducer.Finish(torch::ones({}), arrived);
    // The capture is aborted after the first gradient, as if it had failed.
    reducer.Put(1, masters[1]);
    reducer.Restart();
    for (int step = 0; step < 3; ++step) {
      put();
      arrived.fill_(1);
      ranks.SetFlags({.checkpoint = step == 1 && !ranks.first()});
      const torch::Tensor loss = reducer.Reduce(torch::full({}, ranks.rank() + step), arrived);
      reducer.Agree();
      EXPECT_EQ(loss.item<float>(), 0.5F + static_cast<float>(step));
      EXPECT_TRUE(reducer.memory()[0].eq(0.5).all().item<bool>());
      EXPECT_TRUE(torch::equal(arrived, torch::tensor({1.0F, 0.0F})));
      EXPECT_EQ(ranks.agreed().checkpoint, step == 1);
    }
  });
}

// A GPU's collective waits for another rank until that rank has ended or the timeout has passed.
TEST(GradientReducerWayTest, ARankThatWaitsForItsGpuNoticesWhoIsMissing) {
  for (const bool ends : {true, false}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    ThreadedCommunicators communicators;
    RankOptions options;
    options.communicators = &communicators;
    options.timeout = std::chrono::seconds(ends ? 600 : 1);
    std::latch noticed(1);
    std::thread other([&] {
      RankGroup ranks(PlaceOf(1, 2), store, options);
      const GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
      if (!ends) noticed.wait();
    });
    RankGroup ranks(PlaceOf(0, 2), store, options);
    const GradientReducer reducer(ranks, {torch::zeros({2})}, DistributedSpec());
    int looks = 0;
    ranks.AwaitDevice([&looks] { return ++looks == 3; });
    EXPECT_EQ(looks, 3);
    const std::string failure = FailureOf([&] { ranks.AwaitDevice([] { return false; }); });
    EXPECT_THAT(failure, HasSubstr("rank 0 of 2 cannot add up gradients: rank 1 does not answer"));
    EXPECT_THAT(failure, HasSubstr(ends ? "(its connection has ended)"
                                        : "(its GPU waits for theirs since 1 s)"));
    noticed.count_down();
    other.join();
  }
}

}  // namespace
}  // namespace genesis
