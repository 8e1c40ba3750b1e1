#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/holdout.h"
#include "trainer/data/portable_math.h"
#include "trainer/data/splitmix.h"
#include "trainer/data/synthetic.h"

namespace genesis {
namespace {

// Attenuation per power of two of 1 + (32 x distance)^2, at most 1.6 in all, and by one wall.
constexpr double kDistanceLoss = 1.6 / 11;
constexpr double kWallLoss = 0.2;

struct Point {
  double x = 0, y = 0;
};

// A wall at `at` on one axis, from `begin` to `end` on the other.
struct Wall {
  bool horizontal = false;
  double at = 0, begin = 0, end = 0;

  bool Between(Point a, Point b) const {
    const double across_a = horizontal ? a.y : a.x;
    const double across_b = horizontal ? b.y : b.x;
    if ((across_a < at) == (across_b < at)) return false;
    const double part = (at - across_a) / (across_b - across_a);
    const double along = horizontal ? a.x + part * (b.x - a.x) : a.y + part * (b.y - a.y);
    return along >= begin && along <= end;
  }
};

class SyntheticMaps final : public Dataset {
 public:
  SyntheticMaps(const training::v1::SyntheticMaps& spec, uint64_t seed, double holdout_fraction,
                int64_t memory_limit_bytes)
      : maps_(spec.maps()),
        side_(spec.size()),
        seed_(seed),
        training_size_(maps_ - HeldOut(maps_, holdout_fraction)),
        fields_({{.name = "condition", .shape = {2, side_, side_}},
                 {.name = "image", .shape = {1, side_, side_}}}) {
    const int64_t numbers = 3 * side_ * side_;
    if (maps_ > memory_limit_bytes / (numbers * static_cast<int64_t>(sizeof(float)))) return;
    kept_.resize(static_cast<size_t>(maps_ * numbers));
    for (int64_t map = 0; map < maps_; ++map) {
      float* const condition = kept_.data() + map * numbers;
      Draw(map, condition, condition + 2 * side_ * side_);
    }
  }

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return maps_; }
  int64_t training_size() const override { return training_size_; }
  const std::map<std::string, ColumnStatistics>& statistics() const override { return none_; }
  const std::vector<float>& priorities() const override { return no_priorities_; }

  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override {
    const auto pixels = static_cast<size_t>(side_ * side_);
    std::vector<float> drawn(kept_.empty() ? 3 * pixels : 0);
    for (size_t i = 0; i < examples.size(); ++i) {
      const float* map = kept_.data() + static_cast<size_t>(examples[i]) * 3 * pixels;
      if (kept_.empty()) {
        Draw(examples[i], drawn.data(), drawn.data() + 2 * pixels);
        map = drawn.data();
      }
      const size_t bytes = pixels * sizeof(float);
      std::memcpy(out[0] + i * 2 * bytes, map, 2 * bytes);
      std::memcpy(out[1] + i * bytes, map + 2 * pixels, bytes);
    }
    return absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrCat(training_size_, " maps of ", side_, " x ", side_, " to train on, ",
                        maps_ - training_size_, " held out");
  }

 private:
  void Draw(int64_t map, float* condition, float* image) const {
    SplitMix64 random(seed_, static_cast<uint64_t>(map));
    const auto side = static_cast<double>(side_);
    std::vector<Wall> walls(2 + random.Below(5));
    for (Wall& wall : walls) {
      wall.horizontal = random.Below(2) == 1;
      wall.at = side * random.Uniform();
      wall.begin = side * random.Uniform();
      wall.end = wall.begin + (side - wall.begin) * random.Uniform();
    }
    std::vector<Point> transmitters(1 + random.Below(3));
    for (Point& point : transmitters) point = {side * random.Uniform(), side * random.Uniform()};

    std::fill_n(condition, 2 * side_ * side_, 0.0f);
    for (const Wall& wall : walls) {
      for (int64_t at = static_cast<int64_t>(wall.begin); at < static_cast<int64_t>(wall.end);
           ++at) {
        const auto across = static_cast<int64_t>(wall.at);
        condition[wall.horizontal ? across * side_ + at : at * side_ + across] = 1.0f;
      }
    }
    for (const Point& point : transmitters) {
      condition[(side_ + static_cast<int64_t>(point.y)) * side_ + static_cast<int64_t>(point.x)] =
          1.0f;
    }
    for (int64_t y = 0; y < side_; ++y) {
      for (int64_t x = 0; x < side_; ++x) {
        const Point here{static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5};
        image[y * side_ + x] = static_cast<float>(Power(here, transmitters, walls));
      }
    }
  }

  double Power(Point here, const std::vector<Point>& transmitters,
               const std::vector<Wall>& walls) const {
    double best = -1;
    for (const Point& point : transmitters) {
      const double dx = (point.x - here.x) / static_cast<double>(side_);
      const double dy = (point.y - here.y) / static_cast<double>(side_);
      double power = 1 - kDistanceLoss * PortableLog2(1 + 1024 * (dx * dx + dy * dy));
      for (const Wall& wall : walls) power -= wall.Between(here, point) ? kWallLoss : 0;
      best = std::max(best, power);
    }
    return best;
  }

  const int64_t maps_, side_;
  const uint64_t seed_;
  const int64_t training_size_;
  const std::vector<Field> fields_;
  std::vector<float> kept_;  // condition and image of every map, or empty.
  const std::map<std::string, ColumnStatistics> none_;
  const std::vector<float> no_priorities_;
};

}  // namespace

std::unique_ptr<Dataset> MakeMaps(const training::v1::SyntheticMaps& spec, uint64_t seed,
                                  double holdout_fraction, int64_t memory_limit_bytes) {
  return std::make_unique<SyntheticMaps>(spec, seed, holdout_fraction, memory_limit_bytes);
}

}  // namespace genesis
