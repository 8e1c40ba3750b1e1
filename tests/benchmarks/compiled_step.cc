// The compiled step beside the eager one: compiled_step JOB.json COMPILED_DIR MODE ROUNDS
// Both train the same job in one process, on the same batches; in every round each makes some
// steps, in turn, the one that begins changes. Prints a line of JSON: medians over the rounds of
// the milliseconds of a step, the median of the rounds' ratios with its 95 % interval, and how far
// the losses came apart. Refuses to compare where no package fits or the losses are not the same.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "config/job_file.h"
#include "config/job_spec.h"
#include "config/precision.h"
#include "trainer/run/threads.h"
#include "trainer/run/trainee.h"

namespace genesis {
namespace {

using Clock = std::chrono::steady_clock;
using training::v1::StartJob;

constexpr double kRoundSeconds = 0.25;  // Of each of the two.
constexpr double kSameLoss = 0.05;

// One of the two, with random numbers of its own.
class Contestant {
 public:
  Contestant(const StartJob& start, const Dataset& dataset) : trainee_(start, dataset, at::kCPU) {
    trainee_.SetMode(start.precision().mode());
    random_ = Generator().get_state();
  }

  // Milliseconds of each step.
  std::vector<double> Run(int64_t steps) {
    Generator().set_state(random_);
    std::vector<double> times;
    for (int64_t i = 0; i < steps; ++i) {
      const auto begin = Clock::now();
      trainee_.step().Run(++step_);
      losses_.push_back(trainee_.step().Read().loss);
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    random_ = Generator().get_state();
    return times;
  }

  Trainee& trainee() { return trainee_; }
  const std::vector<double>& losses() const { return losses_; }

 private:
  static at::Generator Generator() { return at::detail::getDefaultCPUGenerator(); }

  Trainee trainee_;
  at::Tensor random_;
  int64_t step_ = 0;
  std::vector<double> losses_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The order statistics between which the median lies in 95 of 100 cases.
std::pair<double, double> Interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double low = std::floor(n / 2 - 0.98 * std::sqrt(n));
  const double high = std::ceil(n / 2 + 0.98 * std::sqrt(n));
  return {values[static_cast<size_t>(std::max(low, 0.0))],
          values[static_cast<size_t>(std::min(high, n - 1))]};
}

StartJob Start(const std::string& job, const std::string& mode) {
  const auto spec = ReadJobFile(job);
  if (!spec.ok()) throw std::runtime_error(std::string(spec.status().message()));
  StartJob start;
  *start.mutable_spec() = WithDefaults(*spec, LossScaleSettings());
  start.mutable_spec()->mutable_training()->set_max_steps(1 << 30);
  start.mutable_precision()->set_device("cpu");
  start.mutable_precision()->set_mode(mode == "FP32" ? training::v1::PRECISION_MODE_FP32
                                                     : training::v1::PRECISION_MODE_MIXED_BF16);
  return start;
}

int Main(const std::string& job, const std::string& folder, const std::string& mode, int rounds) {
  const StartJob plain = Start(job, mode);
  StartJob compiled_start = plain;
  compiled_start.set_compiled_dir(folder);
  const auto dataset = OpenDataset(plain.spec());
  if (!dataset.ok()) throw std::runtime_error(std::string(dataset.status().message()));
  Contestant eager(plain, **dataset);
  Contestant compiled(compiled_start, **dataset);
  const std::string& execution = compiled.trainee().execution();
  if (!absl::StartsWith(execution, "compiled")) throw std::runtime_error(execution);
  const ThreadLimit threads(eager.trainee().OperationsPerPass());

  constexpr int64_t kWarmUp = 5;
  compiled.Run(kWarmUp);
  const double step = Median(eager.Run(kWarmUp));
  const auto steps = std::clamp<int64_t>(static_cast<int64_t>(kRoundSeconds * 1e3 / step), 1, 200);
  std::vector<double> eager_ms;
  std::vector<double> compiled_ms;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const bool eager_first = round % 2 == 0;
    if (eager_first) eager_ms.push_back(Median(eager.Run(steps)));
    compiled_ms.push_back(Median(compiled.Run(steps)));
    if (!eager_first) eager_ms.push_back(Median(eager.Run(steps)));
    ratios.push_back(eager_ms.back() / compiled_ms.back());
  }
  double apart = 0;
  for (size_t i = 0; i < eager.losses().size(); ++i) {
    const double one = eager.losses()[i];
    apart = std::max(apart, std::abs(one - compiled.losses()[i]) / std::max(std::abs(one), 1e-12));
  }
  if (!(apart <= kSameLoss)) {
    std::fprintf(stderr, "compiled_step: the losses differ by %.3g, more than %g: not compared\n",
                 apart, kSameLoss);
    return 1;
  }
  const auto [low, high] = Interval(ratios);
  std::printf(
      "{\"threads\": %d, \"steps\": %zu, \"eager_ms\": %.4f, \"compiled_ms\": %.4f, \"ratio\": "
      "%.4f, \"low\": %.4f, \"high\": %.4f, \"loss_difference\": %.3g}\n",
      at::get_num_threads(), eager.losses().size(), Median(eager_ms), Median(compiled_ms),
      Median(ratios), low, high, apart);
  return 0;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: compiled_step JOB.json COMPILED_DIR MODE ROUNDS\n");
    return 2;
  }
  try {
    return genesis::Main(argv[1], argv[2], argv[3], std::max(3, std::atoi(argv[4])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compiled_step: %s\n", error.what());
    return 1;
  }
}
