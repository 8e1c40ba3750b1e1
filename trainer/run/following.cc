#include "trainer/run/following.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "replay/capacity.h"
#include "trainer/formats/data_file.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using std::chrono::steady_clock;

// Time between two reads of the folder while steps run.
constexpr std::chrono::milliseconds kLookPause{100};
constexpr std::chrono::milliseconds kWaitPause{20};
// Interval at which a wait is reported, first after one interval.
constexpr std::chrono::seconds kReportPause{1};
// Maximum time until a rank sees the transitions that rank 0 saw in a shared folder.
constexpr std::chrono::seconds kMaxDelay{60};

void RequireData(const absl::Status& status) {
  Require(FitFileFault(status), training::v1::FAILURE_CAUSE_DATA);
}

double SecondsSince(steady_clock::time_point since) {
  return std::chrono::duration<double>(steady_clock::now() - since).count();
}

}  // namespace

std::unique_ptr<FollowedReplay> OpenFollowed(const training::v1::StartJob& start) {
  const training::v1::JobSpec& spec = start.spec();
  const training::v1::ReplaySpec& replay = spec.dataset().replay();
  absl::StatusOr<std::unique_ptr<FollowedReplay>> data = FollowedReplay::Open(spec);
  RequireData(data.status());
  const absl::StatusOr<std::optional<int64_t>> capacity = ReadReplayCapacity(replay.path());
  RequireData(capacity.status());
  // A resumed job is exempt: the capacity may have been lowered since the job began.
  if (start.resume_from().empty() && *capacity && replay.min_size() > **capacity) {
    throw RunFailure{training::v1::FAILURE_CAUSE_CONFIG,
                     absl::StrCat("dataset.replay.min_size is ", replay.min_size(),
                                  "; accepted for this buffer: at most ", **capacity,
                                  ", its capacity; append with a larger capacity first")};
  }
  return *std::move(data);
}

Following::Following(const training::v1::JobSpec& spec, FollowedReplay& data, RunControl& control,
                     RunObserver& observer, RankGroup& ranks)
    : spec_(spec.dataset().replay()),
      batch_(int64_t{spec.training().batch_size()} * ranks.size()),
      data_(data),
      control_(control),
      observer_(observer),
      ranks_(ranks),
      grew_(steady_clock::now()) {}

bool Following::AwaitEnough() {
  for (;;) {
    News news;
    if (ranks_.first()) {
      data_.Take(Look());
      news = {.range = data_.range(),
              .stop = control_.stop_requested(),
              .wait = Lacking(),
              .end = IdleReason()};
    }
    news = FromFirst(news);
    if (news.stop) return false;
    if (news.wait.empty()) {
      Take(news.range);
      break;
    }
    if (!news.end.empty()) {
      throw RunFailure{training::v1::FAILURE_CAUSE_DATA,
                       absl::StrCat(news.wait, ", and there were ", news.end)};
    }
    Wait(news.wait);
  }
  EndWait();
  RequireData(data_.FixStatistics());
  seen_ = data_.range();
  grew_ = steady_clock::now();
  return true;
}

void Following::Resume(const training::v1::Progress& progress) {
  if (!progress.has_first_transition()) return;
  seen_.first = std::min(seen_.first, static_cast<uint64_t>(progress.first_transition()));
}

ReplayRange Following::Look() {
  absl::StatusOr<ReplayRange> found = data_.Look();
  RequireData(found.status());
  looked_ = steady_clock::now();
  if (found->next > found_.next) grew_ = looked_;
  return found_ = *found;
}

// Reads the folder until this rank sees the transitions that rank 0 saw.
void Following::LookAgain(const ReplayRange& range) {
  const auto begin = steady_clock::now();
  while (Look().next < range.next) {
    if (steady_clock::now() - begin > kMaxDelay) {
      throw RunFailure{
          training::v1::FAILURE_CAUSE_WORKER_EXIT,
          absl::StrCat("rank ", ranks_.rank(), " sees the transitions of the replay buffer up to ",
                       found_.next, ", rank 0 up to ", range.next,
                       "; give all ranks the same folder")};
    }
    std::this_thread::sleep_for(kWaitPause);
  }
}

Following::News Following::FromFirst(const News& own) {
  if (ranks_.alone()) return own;
  const std::vector<std::string> parts = absl::StrSplit(
      ranks_.FromFirst(absl::StrCat(own.range.first, "\n", own.range.next, "\n", own.stop ? 1 : 0,
                                    "\n", own.wait, "\n", own.end)),
      '\n');
  News news{.range = {}, .stop = parts[2] == "1", .wait = parts[3], .end = parts[4]};
  if (!absl::SimpleAtoi(parts[0], &news.range.first) ||
      !absl::SimpleAtoi(parts[1], &news.range.next)) {
    throw RunFailure{training::v1::FAILURE_CAUSE_INTERNAL, "rank 0 sent no range of transitions"};
  }
  return news;
}

void Following::Take(const ReplayRange& range) {
  if (!ranks_.first()) LookAgain(range);
  data_.Take(range);
  seen_.next = std::max(seen_.next, range.next);
}

// Fails if the ranks' examples differ, because a rank read too late. A new attempt may succeed.
void Following::RequireSame() {
  if (ranks_.alone()) return;
  const std::string own = absl::StrCat(data_.training_size(), " to train on, ",
                                       data_.size() - data_.training_size(), " held out");
  const std::string first = ranks_.FromFirst(own);
  const std::string fault = ranks_.FirstFault(
      own == first ? ""
                   : absl::StrCat("rank ", ranks_.rank(), " has other examples than rank 0 (", own,
                                  "; rank 0: ", first, ")"));
  if (!fault.empty()) throw RunFailure{training::v1::FAILURE_CAUSE_WORKER_EXIT, fault};
}

// Returns what is missing for the first step, or "".
std::string Following::Lacking() const {
  const auto appended = static_cast<int64_t>(data_.range().next);
  if (appended < spec_.min_size()) {
    return absl::StrCat("waits for data: ", appended,
                        " transitions were appended; dataset.replay.min_size is ",
                        spec_.min_size());
  }
  if (data_.training_size() < batch_) {
    return absl::StrCat("waits for data: there are ", data_.training_size(),
                        " examples to train on; a batch takes ", batch_);
  }
  return "";
}

// Returns why a step of `examples` has to wait, or "".
std::string Following::Limited(const BatchSource& source, int64_t examples) const {
  if (data_.training_size() == 0) return "waits for data: every example was evicted";
  if (spec_.samples_per_insert() == 0) return "";
  const int64_t drawn = source.position().batch * source.batch_examples();
  const auto inserted = static_cast<double>(seen_.next - seen_.first);
  const double allowed = spec_.samples_per_insert() * inserted +
                         static_cast<double>(spec_.samples_per_insert_tolerance());
  if (static_cast<double>(drawn + examples) <= allowed) return "";
  return absl::StrFormat(
      "waits for data: it has drawn %d examples and seen %.0f transitions; "
      "dataset.replay.samples_per_insert is %g, samples_per_insert_tolerance %d",
      drawn, inserted, spec_.samples_per_insert(), spec_.samples_per_insert_tolerance());
}

std::string Following::IdleReason() const {
  if (spec_.idle_seconds() == 0 || SecondsSince(grew_) < spec_.idle_seconds()) return "";
  return absl::StrFormat("no new transitions for %g s; dataset.replay.idle_seconds is %g",
                         spec_.idle_seconds(), spec_.idle_seconds());
}

bool Following::NewsDue(const BatchSource& source, int64_t examples) {
  if (!ranks_.first()) return false;
  if (steady_clock::now() - looked_ >= kLookPause) Look();
  return found_ != data_.range() || !Limited(source, 2 * examples).empty() || !IdleReason().empty();
}

bool Following::MayStep(BatchSource& source, int64_t examples, bool news,
                        const std::function<void()>& settle) {
  if (!ranks_.alone() && talked_ && !waiting_ && !news) return true;
  talked_ = true;
  News now;
  if (ranks_.first()) {
    if (waiting_ || steady_clock::now() - looked_ >= kLookPause) Look();
    now = {.range = found_, .wait = "", .end = IdleReason()};
  }
  now = FromFirst(now);
  end_reason_ = now.end;
  if (now.range != data_.range()) {
    settle();
    source.ChangeExamples([&] { Take(now.range); });
    RequireSame();
  }
  // All ranks get the same reason, because they have the same examples and position.
  const std::string reason = Limited(source, examples);
  if (reason.empty()) {
    EndWait();
    return true;
  }
  if (!waiting_) settle();
  Wait(reason);
  return false;
}

void Following::Wait(const std::string& reason) {
  const auto now = steady_clock::now();
  if (!std::exchange(waiting_, true)) wait_began_ = wait_reported_ = now;
  if (now - wait_reported_ >= kReportPause) {
    wait_reported_ = now;
    if (!std::exchange(logged_, true)) observer_.OnLog(reason);
    observer_.OnWaiting(reason);
  }
  std::this_thread::sleep_for(kWaitPause);
}

void Following::EndWait() {
  if (!std::exchange(waiting_, false) || wait_reported_ == wait_began_) return;
  observer_.OnWaiting("");
  observer_.OnLog(absl::StrFormat("waited %.1f s for data", SecondsSince(wait_began_)));
}

}  // namespace genesis
