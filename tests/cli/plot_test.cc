// Tests of curves drawn as text and as SVG.
#include "cli/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_split.h"

namespace genesis::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PlotCurve Line(const std::vector<double>& values) {
  PlotCurve curve;
  for (size_t i = 0; i < values.size(); ++i) curve.steps.push_back(static_cast<double>(i + 1));
  curve.low = curve.high = curve.mean = values;
  return curve;
}

std::vector<std::string> Rows(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(TextPlotTest, ARisingLineGoesFromBottomLeftToTopRight) {
  // 10 columns beside the labels, 2 rows: 20 by 8 dots.
  const std::string text =
      TextPlot(Line({0, 1, 2, 3, 4, 5, 6, 7}), {.title = "loss of a", .width = 13, .height = 2});
  EXPECT_THAT(Rows(text),
              ElementsAre("loss of a", "7  ⠀⠀⠀⠀⠀⢀⣀⠤⠒⠊", "0  ⣀⡠⠔⠒⠉⠁⠀⠀⠀⠀", "   1        8"));
}

TEST(TextPlotTest, ValuesThatAreNotFiniteAreGaps) {
  const std::string text =
      TextPlot(Line({1, std::nan(""), 2, INFINITY, 3}), {.width = 13, .height = 2});
  EXPECT_THAT(Rows(text), testing::SizeIs(3));
  EXPECT_EQ(TextPlot(Line({std::nan("")}), {}), "no finite value to draw\n");
  EXPECT_EQ(TextPlot(Line({}), {}), "no finite value to draw\n");
  EXPECT_EQ(TextPlot(Line({-1, 0}), {.logarithmic = true}), "no finite value to draw\n");
}

TEST(TextPlotTest, AConstantIsALine) {
  const std::string text = TextPlot(Line({2, 2, 2}), {.width = 13, .height = 2});
  EXPECT_THAT(text, HasSubstr("⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉"));
}

TEST(SparklineTest, IsARowOfBlocksFromTheLowestToTheHighest) {
  EXPECT_EQ(Sparkline({8, 1, 4.5}), "█▁▅");
  EXPECT_EQ(Sparkline({3, std::nan(""), 3}), "▅▅");
  EXPECT_EQ(Sparkline({}), "");
}

TEST(SvgPlotTest, HasTheLineTheBandAndNoMarkupOfTheTitle) {
  PlotCurve curve = Line({4, 2, 1});
  curve.low = {3, 1, 0.5};
  curve.high = {5, 3, 1.5};
  const std::string svg = SvgPlot(curve, {.title = "loss of <img onerror=alert(1)> & co"});
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"110.0,"));
  EXPECT_THAT(svg, HasSubstr("<polygon points=\""));
  EXPECT_THAT(svg, HasSubstr("&lt;img onerror"));
  EXPECT_THAT(svg, Not(HasSubstr("<img")));
  EXPECT_THAT(svg, HasSubstr(">5</text>"));
}

}  // namespace
}  // namespace genesis::cli
