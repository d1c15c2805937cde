#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pagoda::bench_serve {

/// A line through points, from left to right.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool has_marks = false;  ///< whether each point has a dot
};

/// One diagram. Axes begin at 0. A logarithmic axis begins at the least value, which must be above 0.
struct Panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool is_log_x = false;
};

/// Returns a self-contained SVG image of the panels side by side.
std::string svg_of(const std::string& title, std::span<const Panel> panels);

}  // namespace pagoda::bench_serve
