#include "trainer/distributed/missing_ranks.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/text/text.h"

namespace genesis {
namespace {

constexpr absl::Duration kLookFor = absl::Milliseconds(700);
constexpr std::chrono::milliseconds kLookEvery{20};
// Room for an error with its cure.
constexpr size_t kMaxText = 600;
// Maximum number of names in a message.
constexpr size_t kMaxNamed = 16;

std::string Key(const char* what, int rank) { return absl::StrCat("rank/", rank, "/", what); }

struct Word {
  bool came = false;
  bool noticed = false;
  std::string end;  // The rank's own error message.
};

// Results shared with a detached thread, because a stopped server blocks its callers.
struct Findings {
  absl::Mutex mutex;
  std::vector<Word> words ABSL_GUARDED_BY(mutex);
  bool complete ABSL_GUARDED_BY(mutex) = false;
};

bool Accounted(const Word& word) { return word.noticed || !word.end.empty(); }

void Look(c10d::Store& store, int rank, int size, Findings& findings) {
  store.set(Key("noticed", rank), "1");
  const absl::Time deadline = absl::Now() + kLookFor;
  bool all = false;
  while (!all && absl::Now() < deadline) {
    all = true;
    for (int other = 0; other < size; ++other) {
      Word word;
      word.came = store.check({Key("came", other)});
      word.noticed = other == rank || store.check({Key("noticed", other)});
      if (store.check({Key("end", other)})) word.end = store.get_to_str(Key("end", other));
      all = all && Accounted(word);
      const absl::MutexLock lock(&findings.mutex);
      findings.words[static_cast<size_t>(other)] = word;
    }
    if (!all) std::this_thread::sleep_for(kLookEvery);
  }
}

std::string Names(const std::vector<int>& ranks) {
  const size_t shown = std::min(ranks.size(), kMaxNamed);
  const std::string names = absl::StrJoin(ranks.begin(), ranks.begin() + shown, ", ");
  const std::string more =
      shown < ranks.size() ? absl::StrCat(" and ", ranks.size() - shown, " more") : "";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", names, more);
}

}  // namespace

bool TellPresence(c10d::Store& store, int rank) { return store.add(Key("came", rank), 1) == 1; }

void AwaitPresence(c10d::Store& store, int size, std::chrono::milliseconds timeout,
                   std::chrono::milliseconds interval, const TellWaiting& tell) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto next = begin + interval;
  for (int rank = 0; rank < size; ++rank) {
    while (true) {
      const auto limit = std::min(next, begin + timeout) - Clock::now();
      const auto patience = std::chrono::ceil<std::chrono::milliseconds>(limit);
      try {
        store.wait({Key("came", rank)}, std::max(patience, std::chrono::milliseconds(1)));
        break;
      } catch (const std::exception&) {
        // An error before the deadline comes from the store itself.
        const auto now = Clock::now();
        if (now < next || now >= begin + timeout) throw;
      }
      std::vector<int> absent;
      for (int other = rank; other < size; ++other) {
        if (!store.check({Key("came", other)})) absent.push_back(other);
      }
      const double seconds = std::chrono::duration<double>(next - begin).count();
      if (!absent.empty()) {
        tell(absl::StrFormat("waiting for %s of %d for %.3g s; for %.3g s at most", Names(absent),
                             size, seconds, std::chrono::duration<double>(timeout).count()));
      }
      next += interval;
    }
  }
}

void TellEnd(c10d::Store& store, int rank, const std::string& why) {
  store.set(Key("end", rank), OneLine(why, kMaxText));
}

std::string FindMissingRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const auto findings = std::make_shared<Findings>();
  {
    const absl::MutexLock lock(&findings->mutex);
    findings->words.resize(static_cast<size_t>(size));
  }
  std::thread looker([store, rank, size, findings] {
    bool complete = true;
    try {
      Look(*store, rank, size, *findings);
    } catch (const std::exception&) {
      complete = false;
    }
    const absl::MutexLock lock(&findings->mutex);
    findings->complete = complete;
  });
  looker.detach();
  const absl::MutexLock lock(&findings->mutex);
  findings->mutex.AwaitWithTimeout(absl::Condition(&findings->complete),
                                   kLookFor + absl::Milliseconds(100));
  std::vector<int> silent, absent;
  for (int other = 0; other < size; ++other) {
    const Word& word = findings->words[static_cast<size_t>(other)];
    if (!word.end.empty() && other != rank) {
      return absl::StrCat("rank ", other, " failed: ", word.end);
    }
    if (other == rank || Accounted(word)) continue;
    (word.came ? silent : absent).push_back(other);
  }
  if (!findings->complete) {
    return "another rank has ended or cannot be reached, and neither can the ranks' store, which "
           "rank 0 serves where torchrun does not; the log of the rank that ended first says why";
  }
  if (!absent.empty()) return absl::StrCat(Names(absent), " never came; start WORLD_SIZE ranks");
  if (!silent.empty()) {
    return absl::StrCat(Names(silent), silent.size() == 1 ? " does" : " do",
                        " not answer: killed, stopped or cut off; the log there says why");
  }
  return "another rank has ended or cannot be reached; the log of the rank that ended first says "
         "why";
}

}  // namespace genesis
