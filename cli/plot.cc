#include "cli/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

constexpr char kNothing[] = "no finite value to draw\n";

// The range of an axis. `At` maps a value to its position in the range, 0 to 1.
struct Axis {
  double first = std::numeric_limits<double>::infinity();
  double last = -std::numeric_limits<double>::infinity();
  bool logarithmic = false;

  double Scaled(double value) const { return logarithmic ? std::log10(value) : value; }
  bool Shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  void Include(double value) {
    if (!Shows(value)) return;
    first = std::min(first, value);
    last = std::max(last, value);
  }
  bool empty() const { return first > last; }
  double At(double value) const {
    const double span = Scaled(last) - Scaled(first);
    return span > 0 ? (Scaled(value) - Scaled(first)) / span : 0.5;
  }
};

struct Axes {
  Axis x;
  Axis y;
};

Axes AxesOf(const PlotCurve& curve, bool logarithmic) {
  Axes axes;
  axes.y.logarithmic = logarithmic;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    if (!axes.y.Shows(curve.mean[i])) continue;
    axes.x.Include(curve.steps[i]);
    axes.y.Include(curve.low[i]);
    axes.y.Include(curve.high[i]);
  }
  return axes;
}

// A grid of dots, drawn as braille characters.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows), 0) {}

  int width() const { return 2 * columns_; }
  int height() const { return 4 * (static_cast<int>(cells_.size()) / columns_); }

  // (0, 0) is at the top left.
  void Dot(int x, int y) {
    constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[static_cast<size_t>((y / 4) * columns_ + x / 2)] |= kBits[y % 4][x % 2];
  }
  void Line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      Dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
    }
  }
  // Returns a row of characters, U+2800 to U+28FF in UTF-8.
  std::string Row(int row) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      const uint8_t dots = cells_[static_cast<size_t>(row * columns_ + column)];
      text += {static_cast<char>(0xE2), static_cast<char>(0xA0 | (dots >> 6U)),
               static_cast<char>(0x80 | (dots & 0x3FU))};
    }
    return text;
  }

 private:
  const int columns_;
  std::vector<uint8_t> cells_;
};

void Draw(const PlotCurve& curve, const Axes& axes, Canvas& canvas) {
  const auto x_of = [&](double step) {
    return static_cast<int>(std::lround(axes.x.At(step) * (canvas.width() - 1)));
  };
  const auto y_of = [&](double value) {
    return static_cast<int>(std::lround((1 - axes.y.At(value)) * (canvas.height() - 1)));
  };
  int last_x = -1, last_y = -1;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    if (!axes.y.Shows(curve.mean[i])) {
      last_x = -1;
      continue;
    }
    const int x = x_of(curve.steps[i]);
    const int y = y_of(curve.mean[i]);
    if (axes.y.Shows(curve.low[i])) canvas.Line(x, y_of(curve.low[i]), x, y_of(curve.high[i]));
    if (last_x >= 0) canvas.Line(last_x, last_y, x, y);
    canvas.Dot(x, y);
    last_x = x;
    last_y = y;
  }
}

std::string StepText(double step) { return absl::StrCat(static_cast<int64_t>(step)); }

std::string XmlText(const std::string& text) {
  return absl::StrReplaceAll(Printable(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

}  // namespace

std::string TextPlot(const PlotCurve& curve, const PlotOptions& options) {
  const Axes axes = AxesOf(curve, options.logarithmic);
  if (axes.y.empty()) return kNothing;
  const std::string top = FormatFigure(axes.y.last);
  const std::string bottom = FormatFigure(axes.y.first);
  const int label = static_cast<int>(std::max(top.size(), bottom.size()));
  Canvas canvas(std::max(options.width - label - 2, 10), options.height);
  Draw(curve, axes, canvas);
  std::string text =
      options.title.empty()
          ? ""
          : absl::StrCat(CutToWidth(Printable(options.title), static_cast<size_t>(options.width)),
                         "\n");
  for (int row = 0; row < options.height; ++row) {
    const std::string& name = row == 0 ? top : row == options.height - 1 ? bottom : std::string();
    absl::StrAppendFormat(&text, "%*s  %s\n", label, name, canvas.Row(row));
  }
  const std::string first = StepText(axes.x.first);
  const int room = canvas.width() / 2 - static_cast<int>(first.size());
  absl::StrAppendFormat(&text, "%*s  %s%*s\n", label, "", first, room, StepText(axes.x.last));
  return text;
}

std::string SvgPlot(const PlotCurve& curve, const PlotOptions& options) {
  constexpr int kWidth = 800, kHeight = 400, kLeft = 110, kRight = 20, kTop = 40, kBottom = 40;
  const Axes axes = AxesOf(curve, options.logarithmic);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n",
      kWidth, kHeight, kWidth, kHeight, kLeft, XmlText(options.title));
  if (axes.y.empty()) return svg + "</svg>\n";
  const auto point = [&](double step, double value) {
    return absl::StrFormat("%.1f,%.1f ", kLeft + axes.x.At(step) * (kWidth - kLeft - kRight),
                           kHeight - kBottom - axes.y.At(value) * (kHeight - kTop - kBottom));
  };
  std::string line, upper, lower;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    if (!axes.y.Shows(curve.mean[i])) continue;
    line += point(curve.steps[i], curve.mean[i]);
    if (!axes.y.Shows(curve.low[i])) continue;
    upper += point(curve.steps[i], curve.high[i]);
    lower.insert(0, point(curve.steps[i], curve.low[i]));
  }
  absl::StrAppendFormat(&svg,
                        "<polygon points=\"%s%s\" fill=\"#0072b2\" fill-opacity=\"0.2\"/>\n"
                        "<polyline points=\"%s\" fill=\"none\" stroke=\"#0072b2\" "
                        "stroke-width=\"1.5\"/>\n",
                        upper, lower, line);
  const auto label = [&svg](int x, int y, const char* anchor, const std::string& text) {
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y,
                          anchor, text);
  };
  label(kLeft - 8, kTop + 5, "end", FormatFigure(axes.y.last));
  label(kLeft - 8, kHeight - kBottom + 5, "end", FormatFigure(axes.y.first));
  label(kLeft, kHeight - kBottom + 24, "start", StepText(axes.x.first));
  label(kWidth - kRight, kHeight - kBottom + 24, "end", StepText(axes.x.last));
  return svg + "</svg>\n";
}

std::string Sparkline(const std::vector<double>& values) {
  Axis axis;
  for (const double value : values) axis.Include(value);
  constexpr int kHeights = 8;
  std::string text;
  for (const double value : values) {
    if (!axis.Shows(value)) continue;
    const auto height = std::lround(axis.At(value) * (kHeights - 1));
    text += {static_cast<char>(0xE2), static_cast<char>(0x96), static_cast<char>(0x81 + height)};
  }
  return text;
}

}  // namespace genesis::cli
