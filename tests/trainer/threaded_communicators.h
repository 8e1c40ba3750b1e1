#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/cuda/communicator.h"

namespace genesis {

// Implements NCCL's contract for ranks that are threads on a CPU: sums run in the order in which
// they were started. A sum that misses a rank ends after 2 s without a result. The ranks of a test
// share one object.
class ThreadedCommunicators : public CommunicatorFactory {
 public:
  std::string NewId() override { return "the ranks of a test"; }
  std::unique_ptr<Communicator> Make(const Options& options) override;

  // Returns the number of collectives that all ranks have joined.
  int made() const {
    const absl::MutexLock lock(&mutex_);
    return made_;
  }

 private:
  class Rank;
  struct Meeting {
    std::vector<at::Tensor> tensors;  // From the ranks that joined, unordered.
    int left = 0;
  };

  mutable absl::Mutex mutex_;
  std::map<int, Meeting> meetings_;  // Keyed by the collective's number.
  int made_ = 0;
};

class ThreadedCommunicators::Rank : public Communicator {
 public:
  Rank(ThreadedCommunicators& all, const Options& options) : all_(all), size_(options.size) {}

  void AllReduce(const at::Tensor& tensor) override { begun_.push_back(tensor); }
  void Broadcast(const at::Tensor& /*tensor*/, int /*root*/) override {
    ADD_FAILURE() << "what is on a CPU goes through Gloo";
  }
  void Join() override {
    for (const at::Tensor& tensor : begun_) Meet(tensor);
    begun_.clear();
  }
  std::string Fault() override { return aborted_ ? "aborted" : ""; }
  void Abort() override { aborted_ = true; }

 private:
  void Meet(const at::Tensor& tensor) {
    const absl::MutexLock lock(&all_.mutex_);
    Meeting& meeting = all_.meetings_[next_++];
    meeting.tensors.push_back(tensor.clone());
    const auto all_came = [&] { return static_cast<int>(meeting.tensors.size()) == size_; };
    if (!all_.mutex_.AwaitWithTimeout(absl::Condition(&all_came), absl::Seconds(2))) return;
    // All ranks must get the same bits.
    at::Tensor sum = meeting.tensors.front().clone();
    for (int i = 1; i < size_; ++i) sum += meeting.tensors[static_cast<size_t>(i)];
    tensor.copy_(sum);
    if (++meeting.left < size_) return;
    ++all_.made_;
    all_.meetings_.erase(next_ - 1);
  }

  ThreadedCommunicators& all_;
  const int size_;
  int next_ = 0;
  std::vector<at::Tensor> begun_;
  bool aborted_ = false;
};

inline std::unique_ptr<Communicator> ThreadedCommunicators::Make(const Options& options) {
  EXPECT_EQ(options.id, NewId());
  return std::make_unique<Rank>(*this, options);
}

}  // namespace genesis
