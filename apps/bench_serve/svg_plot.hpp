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
  bool has_marks = false;  ///< a dot on each point
};

/// One diagram: the axes begin at 0, or at the least value where they are logarithmic (then above 0).
struct Panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  bool is_log_x = false;
};

/// An SVG image of the panels, one beside the other, that needs nothing else to be shown.
std::string svg_of(const std::string& title, std::span<const Panel> panels);

}  // namespace pagoda::bench_serve
