#include "trainer/data/followed_replay.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/data/holdout.h"
#include "trainer/data/replay_transitions.h"
#include "trainer/data/transition_fields.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

// Rows are read in pieces of about this size.
constexpr uint64_t kReadBytes = 1 << 20;

}  // namespace

FollowedReplay::FollowedReplay(const training::v1::JobSpec& spec)
    : name_(ReplayName(spec.dataset().replay().path())),
      holdout_fraction_(spec.dataset().replay().holdout_fraction()),
      steps_(std::max(1, spec.model().world_model().rollout_steps())),
      newest_transitions_(spec.dataset().replay().newest_transitions()),
      prioritized_(spec.dataset().sampling().kind() == training::v1::SAMPLING_KIND_PRIORITIZED) {}

absl::StatusOr<std::unique_ptr<FollowedReplay>> FollowedReplay::Open(
    const training::v1::JobSpec& spec) {
  std::unique_ptr<FollowedReplay> dataset(new FollowedReplay(spec));
  absl::StatusOr<ReplaySnapshot> snapshot = ReplaySnapshot::Open(
      spec.dataset().replay().path(),
      [&dataset](uint64_t number, const ReplayRowEnd& end) { dataset->NoteRow(number, end); });
  if (!snapshot.ok()) return snapshot.status();
  absl::Status status = dataset->SetColumns(snapshot->layout(), spec.model().has_exported());
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(dataset->name_, ": ", status.message()));
  }
  dataset->range_ = {.first = snapshot->first(), .next = snapshot->first()};
  dataset->skipping_ = snapshot->first() > 0;
  dataset->snapshot_ = std::make_unique<ReplaySnapshot>(*std::move(snapshot));
  return dataset;
}

absl::Status FollowedReplay::SetColumns(const ReplayLayout& layout, bool is_exported) {
  if (TakesColumns(layout, is_exported)) {
    absl::StatusOr<ReplayColumns> columns = ReplayColumns::Create(layout);
    if (!columns.ok()) return columns.status();
    fields_ = columns->fields();
    columns_ = *std::move(columns);
    return absl::OkStatus();
  }
  absl::StatusOr<VectorColumns> vectors = VectorColumns::Create(layout);
  if (!vectors.ok()) return vectors.status();
  vectors_ = *std::move(vectors);
  fields_ = TransitionFields(vectors_->observation_size(), vectors_->action_size(), steps_);
  return absl::OkStatus();
}

absl::StatusOr<ReplayRange> FollowedReplay::Look() {
  const absl::MutexLock lock(&mutex_);
  absl::Status status = snapshot_->ReadNew(
      [this](uint64_t number, const ReplayRowEnd& end) { NoteRow(number, end); });
  if (!status.ok()) return status;
  return ReplayRange{.first = std::max(range_.first, snapshot_->FirstInFolder()),
                     .next = snapshot_->next()};
}

void FollowedReplay::NoteRow(uint64_t number, const ReplayRowEnd& end) {
  new_rows_.push_back({.number = number, .ends_episode = end.flags != 0, .priority = end.priority});
}

void FollowedReplay::Take(const ReplayRange& range) {
  const int64_t oldest = training_.begin;
  while (!new_rows_.empty() && new_rows_.front().number < range.next) {
    AddRow(new_rows_.front());
    range_.next = new_rows_.front().number + 1;
    new_rows_.pop_front();
  }
  if (range_.next < range.next) BeginGap(range.next);
  if (range.first > range_.first) {
    range_.first = range.first;
    if (open_part_ != nullptr && open_part_->episodes.back().first <= range.first) {
      open_part_ = nullptr;
      skipping_ = true;
    }
    Evict(training_);
    Evict(held_out_);
    const absl::MutexLock lock(&mutex_);
    snapshot_->Forget(range.first);
  }
  LimitAge();
  if (!prioritized_) return;
  const auto gone =
      std::min<int64_t>(training_.begin - oldest, static_cast<int64_t>(priorities_.size()));
  priorities_.erase(priorities_.begin(), priorities_.begin() + gone);
}

int64_t FollowedReplay::SizeBefore(uint64_t next) const {
  // Windows that begin at this row or later were not complete yet.
  const uint64_t limit = next - std::min(next, static_cast<uint64_t>(steps_ - 1));
  int64_t before = training_.begin;
  for (auto episode = training_.episodes.begin(); episode != training_.episodes.end(); ++episode) {
    if (episode->first >= limit) break;
    before = std::min(training_.EndOf(episode),
                      episode->first_window + static_cast<int64_t>(limit - episode->first));
  }
  return std::clamp<int64_t>(before - training_.begin, 0, training_.size());
}

// Notes that transitions up to `next` were evicted before they could be read.
void FollowedReplay::BeginGap(uint64_t next) {
  range_.next = next;
  open_part_ = nullptr;
  skipping_ = true;
}

void FollowedReplay::AddRow(const NewRow& row) {
  if (row.number != range_.next) BeginGap(row.number);
  if (!skipping_) {
    if (open_part_ == nullptr) {
      open_part_ = IsHeldOut(row.number, holdout_fraction_) ? &held_out_ : &training_;
      open_part_->episodes.push_back(
          {.first = row.number, .next = row.number, .first_window = open_part_->end});
    }
    Episode& episode = open_part_->episodes.back();
    episode.next = row.number + 1;
    if (prioritized_) {
      if (episode.first == row.number) recent_.clear();
      recent_.push_back(row.priority);
    }
    if (episode.next - episode.first >= static_cast<uint64_t>(steps_)) AddWindow();
  }
  if (!row.ends_episode) return;
  open_part_ = nullptr;
  skipping_ = false;
}

// Adds the window whose last transition has arrived.
void FollowedReplay::AddWindow() {
  ++open_part_->end;
  if (!prioritized_) return;
  // A window has the priority of its step with the highest priority.
  const float highest = *std::max_element(recent_.begin(), recent_.end());
  recent_.pop_front();
  if (open_part_ == &training_) priorities_.push_back(highest);
}

void FollowedReplay::Evict(Part& part) const {
  while (!part.episodes.empty() && part.episodes.front().first <= range_.first) {
    part.episodes.pop_front();
  }
  part.begin = part.episodes.empty() ? part.end : part.episodes.front().first_window;
}

void FollowedReplay::LimitAge() {
  const auto newest = static_cast<uint64_t>(newest_transitions_);
  if (newest == 0 || range_.next <= newest) return;
  const uint64_t oldest = range_.next - newest;
  const auto episode =
      std::partition_point(training_.episodes.begin(), training_.episodes.end(),
                           [oldest](const Episode& each) { return each.next <= oldest; });
  if (episode == training_.episodes.end()) {
    training_.begin = training_.end;
    return;
  }
  const uint64_t skipped = oldest - std::min(oldest, episode->first);
  const int64_t first = episode->first_window + static_cast<int64_t>(skipped);
  training_.begin = std::max(training_.begin, std::min(first, training_.EndOf(episode)));
}

int64_t FollowedReplay::Part::EndOf(std::deque<Episode>::const_iterator episode) const {
  const auto after = std::next(episode);
  return after == episodes.end() ? end : after->first_window;
}

uint64_t FollowedReplay::Part::FirstRow(int64_t example) const {
  const int64_t window = begin + example;
  auto episode = std::upper_bound(
      episodes.begin(), episodes.end(), window,
      [](int64_t number, const Episode& each) { return number < each.first_window; });
  --episode;
  return episode->first + static_cast<uint64_t>(window - episode->first_window);
}

absl::Status FollowedReplay::Gather(absl::Span<const int64_t> examples,
                                    absl::Span<std::byte* const> out) const {
  const absl::ReaderMutexLock lock(&mutex_);
  for (size_t i = 0; i < examples.size(); ++i) {
    const int64_t trained = training_.size();
    const uint64_t first = examples[i] < trained ? training_.FirstRow(examples[i])
                                                 : held_out_.FirstRow(examples[i] - trained);
    const auto place = static_cast<int64_t>(i);
    absl::Status status = columns_ ? columns_->Gather(*snapshot_, first, place, out)
                                   : GatherVectors(first, place, out);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FollowedReplay::GatherVectors(uint64_t first, int64_t place,
                                           absl::Span<std::byte* const> out) const {
  std::vector<float> rows(static_cast<size_t>(steps_ * vectors_->width()));
  absl::Status status = vectors_->Read(*snapshot_, first, steps_, rows.data());
  for (int64_t step = 0; status.ok() && step < steps_; ++step) {
    const float* const row = rows.data() + step * vectors_->width();
    status = CheckChanges(row, first + static_cast<uint64_t>(step));
    PutTransition(row, vectors_->observation_size(), vectors_->action_size(), place * steps_ + step,
                  out);
  }
  return status;
}

// Checks only the differences, because the writer of the buffer has checked the values.
absl::Status FollowedReplay::CheckChanges(const float* row, uint64_t number) const {
  const int64_t size = vectors_->observation_size();
  const float* const next = row + size + vectors_->action_size();
  for (int64_t i = 0; i < size; ++i) {
    if (std::isfinite(next[i] - row[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": transition ", number, ": observation[", i, "] is ",
                     NumberText(row[i]), " and next_observation[", i, "] is ", NumberText(next[i]),
                     "; their difference must be a finite float32; scale the observations down"));
  }
  return absl::OkStatus();
}

template <typename Visit>
absl::Status FollowedReplay::VisitTrainingRows(const Visit& visit) const {
  const int64_t width = vectors_->width();
  std::vector<float> rows;
  const absl::ReaderMutexLock lock(&mutex_);
  const uint64_t piece = std::max<uint64_t>(1, kReadBytes / snapshot_->layout().row_bytes());
  for (const Episode& episode : training_.episodes) {
    for (uint64_t first = episode.first; first < episode.next; first += piece) {
      const auto count = static_cast<int64_t>(std::min(piece, episode.next - first));
      rows.resize(static_cast<size_t>(count * width));
      absl::Status status = vectors_->Read(*snapshot_, first, count, rows.data());
      for (int64_t i = 0; status.ok() && i < count; ++i) {
        const float* const row = rows.data() + i * width;
        status = CheckChanges(row, first + static_cast<uint64_t>(i));
        visit(row);
      }
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status FollowedReplay::FixStatistics() {
  if (columns_) return absl::OkStatus();  // Models of such buffers do not normalise.
  TransitionStatistics statistics(vectors_->observation_size(), vectors_->action_size());
  absl::Status status =
      VisitTrainingRows([&statistics](const float* row) { statistics.AddToMean(row); });
  if (!status.ok()) return status;
  status = VisitTrainingRows([&statistics](const float* row) { statistics.AddToDeviation(row); });
  if (status.ok()) statistics_ = statistics.Finish();
  return status;
}

std::string FollowedReplay::Describe() const {
  const std::string unit =
      steps_ == 1 ? " transitions of " : absl::StrCat(" windows of ", steps_, " steps of ");
  return absl::StrCat(training_.size(), unit, training_.episodes.size(), " episodes to train on, ",
                      held_out_.size(), " of ", held_out_.episodes.size(),
                      " held out; transitions ", range_.first, " to ",
                      std::max(range_.next, range_.first + 1) - 1, ", and those that arrive",
                      statistics_.empty() ? "" : ConstantColumns(statistics_));
}

}  // namespace genesis
