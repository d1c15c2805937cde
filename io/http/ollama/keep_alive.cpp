#include "io/http/ollama/keep_alive.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "engine/model_pool/model_pool_core.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::http::ollama {
namespace {

constexpr double kUsPerS = 1e6;
constexpr double kMaxSeconds = 10.0 * 365 * 86400;  // longer times mean forever

TimeUs of_seconds(double seconds) {
  if (seconds < 0 || seconds > kMaxSeconds) return model_pool::kForever;
  return std::llround(seconds * kUsPerS);
}

/// Parses a duration such as "1h30m", without a sign. Returns nullopt if it is invalid.
std::optional<double> seconds_of(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
      {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};
  if (text == "0") return 0;
  if (text.empty()) return {};
  double seconds = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const auto unit = text.substr(0, text.find_first_not_of("nusmh"));
    const double* factor = nullptr;
    for (const auto& [name, value] : kUnits) {
      if (unit == name) factor = &value;
    }
    if (factor == nullptr) return {};
    seconds += number * *factor;
    text.remove_prefix(unit.size());
  }
  return seconds;
}

}  // namespace

tl::expected<std::optional<TimeUs>, ErrorAnswer> read_keep_alive(const wire::Json& body) {
  const auto field = body.find("keep_alive");
  if (field == body.end() || field->is_null()) return std::optional<TimeUs>();
  if (const auto seconds = wire::to_double(*field)) return of_seconds(*seconds);
  if (field->is_string()) {
    std::string_view text = field->get_ref<const std::string&>();
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    if (const auto seconds = seconds_of(text)) return of_seconds(is_negative && *seconds > 0 ? -1 : *seconds);
  }
  return tl::unexpected(invalid_request(
      "keep_alive must be seconds, or a duration like \"5m\"; a negative value means forever", "keep_alive"));
}

}  // namespace pagoda::http::ollama
