#include "apps/bench_serve/svg_plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace pagoda::bench_serve {
namespace {

// Sizes in pixels.
constexpr double kPanelWidth = 420;
constexpr double kPanelHeight = 340;
constexpr double kHead = 40;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 28;
constexpr double kBottom = 48;
constexpr double kLegendLine = 16;

constexpr std::array kColours{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

/// The range of one axis, and the positions of values on it.
class Axis {
 public:
  Axis(double least, double most, bool is_log, double begin, double end) : is_log_(is_log), begin_(begin), end_(end) {
    if (is_log_) {
      low_ = std::floor(std::log10(least));
      high_ = std::max(std::ceil(std::log10(most)), low_ + 1);
    } else {
      step_ = nice_step(most > 0 ? most : 1);
      high_ = std::ceil((most > 0 ? most : 1) / step_) * step_;
    }
  }

  double place(double value) const {
    const double at = is_log_ ? std::log10(std::max(value, std::pow(10, low_))) : value;
    return begin_ + (std::min(at, high_) - low_) / (high_ - low_) * (end_ - begin_);
  }

  std::vector<double> ticks() const {
    std::vector<double> ticks;
    const double step = is_log_ ? 1 : step_;
    const auto count = static_cast<int>(std::lround((high_ - low_) / step));
    for (int i = 0; i <= count; ++i) ticks.push_back(is_log_ ? std::pow(10, low_ + i) : i * step);
    return ticks;
  }

 private:
  /// Returns 1, 2 or 5 times a power of ten, so that there are about five steps.
  static double nice_step(double most) {
    constexpr double kSteps = 5;
    const double rough = most / kSteps;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (rough <= factor * power) return factor * power;
    }
    return 10 * power;
  }

  bool is_log_;
  double begin_;
  double end_;
  double low_ = 0;  ///< on a logarithmic axis, the exponent
  double high_ = 1;
  double step_ = 1;
};

class PanelWriter {
 public:
  PanelWriter(const Panel& panel, double left, std::string& out)
      : panel_(panel),
        out_(out),
        left_(left + kLeft),
        right_(left + kPanelWidth - kRight),
        top_(kHead + kTop),
        bottom_(kHead + kPanelHeight - kBottom),
        x_(least_x(), most(0), panel.is_log_x, left_, right_),
        y_(0, most(1), false, bottom_, top_) {}

  void write() {
    grid();
    for (std::size_t i = 0; i < panel_.series.size(); ++i) series(panel_.series[i], i);
    text((left_ + right_) / 2, top_ - 10, panel_.title, "middle", "bold");
    text((left_ + right_) / 2, bottom_ + 38, panel_.x_label, "middle");
    fmt::format_to(std::back_inserter(out_),
                   "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 {0:.1f} "
                   "{1:.1f})\">{2}</text>\n",
                   left_ - 48, (top_ + bottom_) / 2, escaped(panel_.y_label));
  }

 private:
  template <class Visit>
  void each_point(Visit visit) const {
    for (const auto& series : panel_.series) {
      for (const auto& point : series.points) visit(point);
    }
  }

  double most(int which) const {
    double most = 0;
    each_point([&](const auto& point) { most = std::max(most, which == 0 ? point.first : point.second); });
    return most;
  }

  double least_x() const {
    constexpr double kLeast = 0.01;
    double least = most(0);
    each_point([&](const auto& point) { least = std::min(least, point.first); });
    return std::max(least, kLeast);
  }

  void line(double x1, double y1, double x2, double y2, const char* colour) {
    fmt::format_to(std::back_inserter(out_),
                   "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                   colour);
  }

  void text(double x, double y, const std::string& words, const char* anchor, const char* weight = "normal") {
    fmt::format_to(std::back_inserter(out_),
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-weight=\"{}\">{}</text>\n", x, y, anchor,
                   weight, escaped(words));
  }

  void grid() {
    for (const double tick : x_.ticks()) {
      line(x_.place(tick), top_, x_.place(tick), bottom_, "#e0e0e0");
      text(x_.place(tick), bottom_ + 16, fmt::format("{:g}", tick), "middle");
    }
    for (const double tick : y_.ticks()) {
      line(left_, y_.place(tick), right_, y_.place(tick), "#e0e0e0");
      text(left_ - 6, y_.place(tick) + 4, fmt::format("{:g}", tick), "end");
    }
    line(left_, bottom_, right_, bottom_, "#404040");
    line(left_, top_, left_, bottom_, "#404040");
  }

  void series(const Series& series, std::size_t index) {
    const char* colour = kColours[index % kColours.size()];
    std::string places;
    for (const auto& [x, y] : series.points) {
      fmt::format_to(std::back_inserter(places), "{:.1f},{:.1f} ", x_.place(x), y_.place(y));
    }
    fmt::format_to(std::back_inserter(out_),
                   "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n", places, colour);
    for (const auto& [x, y] : series.points) {
      if (!series.has_marks) break;
      fmt::format_to(std::back_inserter(out_), "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                     x_.place(x), y_.place(y), colour);
    }
    const double y = bottom_ - 10 - kLegendLine * static_cast<double>(index);
    line(right_ - 26, y - 4, right_ - 6, y - 4, colour);
    text(right_ - 32, y, series.name, "end");
  }

  const Panel& panel_;
  std::string& out_;
  double left_;
  double right_;
  double top_;
  double bottom_;
  Axis x_;
  Axis y_;
};

}  // namespace

std::string svg_of(const std::string& title, std::span<const Panel> panels) {
  const double width = kPanelWidth * static_cast<double>(panels.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} {1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#202020\">\n<rect width=\"{0:g}\" height=\"{1:g}\" "
      "fill=\"white\"/>\n<text x=\"{2:g}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{3}</text>\n",
      width, kHead + kPanelHeight, width / 2, escaped(title));
  for (std::size_t i = 0; i < panels.size(); ++i) {
    PanelWriter(panels[i], kPanelWidth * static_cast<double>(i), out).write();
  }
  return out + "</svg>\n";
}

}  // namespace pagoda::bench_serve
