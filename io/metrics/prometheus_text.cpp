#include "io/metrics/prometheus_text.hpp"

#include <charconv>
#include <cmath>

namespace pagoda::metrics {
namespace {

template <class T>
void append_digits(std::string& out, T value) {
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void append(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    append_digits(out, value);
  }
}

/// Escapes backslashes and line ends, and with `in_quotes` (the value of a label) also quotation marks.
void append_escaped(std::string& out, std::string_view text, bool in_quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || (c == '"' && in_quotes)) out += '\\';
      out += c;
    }
  }
}

}  // namespace

std::string labels(std::initializer_list<std::pair<std::string_view, std::string_view>> pairs) {
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out += ',';
    out += name;
    out += "=\"";
    append_escaped(out, value, true);
    out += '"';
  }
  return out;
}

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  out_ += "# HELP ";
  out_ += name;
  out_ += ' ';
  append_escaped(out_, help, false);
  out_ += "\n# TYPE ";
  out_ += name;
  out_ += ' ';
  out_ += type;
  out_ += '\n';
}

void PrometheusText::begin_sample(std::string_view suffix, std::string_view labels, std::string_view le) {
  out_ += name_;
  out_ += suffix;
  if (!labels.empty() || !le.empty()) {
    out_ += '{';
    out_ += labels;
    if (!le.empty()) {
      if (!labels.empty()) out_ += ',';
      out_ += "le=\"";
      out_ += le;
      out_ += '"';
    }
    out_ += '}';
  }
  out_ += ' ';
}

void PrometheusText::end_sample(std::int64_t value) {
  append_digits(out_, value);
  out_ += '\n';
}

void PrometheusText::end_sample(double value) {
  append(out_, value);
  out_ += '\n';
}

void PrometheusText::sample(const Histogram& histogram, std::string_view labels, double largest_value) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    count += static_cast<std::int64_t>(histogram.counts()[i]);
    const bool is_last = i == histogram.bounds().size();
    if (!is_last && histogram.bounds()[i] > largest_value) continue;
    std::string bound;
    append(bound, is_last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i]);
    begin_sample("_bucket", labels, bound);
    end_sample(count);
  }
  begin_sample("_sum", labels);
  end_sample(histogram.sum());
  begin_sample("_count", labels);
  end_sample(count);
}

}  // namespace pagoda::metrics
