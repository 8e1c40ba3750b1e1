#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// A curve to draw. The vectors have one entry for each point; a point whose mean is NaN is a gap.
struct PlotCurve {
  std::vector<double> steps;
  std::vector<double> low;  // Minimum, maximum and mean of each point.
  std::vector<double> high;
  std::vector<double> mean;
};

struct PlotOptions {
  std::string title = {};
  bool logarithmic = false;  // Logarithmic y axis. Values <= 0 are gaps.
  int width = 80;            // Columns of text, labels included; at least 20.
  int height = 16;           // Rows of text above the labels.
};

// Draws the curve in braille characters, 2 by 4 dots each. Returns a sentence if no point can be
// drawn.
std::string TextPlot(const PlotCurve& curve, const PlotOptions& options);

// Draws the curve as an SVG image of 800 by 400 pixels: the mean as a line over the band from
// minimum to maximum.
std::string SvgPlot(const PlotCurve& curve, const PlotOptions& options);

// Returns the finite values as one row of block characters from the lowest to the highest.
std::string Sparkline(const std::vector<double>& values);

}  // namespace genesis::cli
