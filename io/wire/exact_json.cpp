#include "io/wire/exact_json.hpp"

#include <cstdlib>
#include <utility>

namespace pagoda::wire {
namespace {

using nlohmann::ordered_json;

void append_exact(std::string& out, const ordered_json& value, JsonSpacing spacing) {
  const auto scalar = [](const ordered_json& one) {
    return one.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  if (const auto digits = big_integer_digits(value); !digits.empty()) {
    out += digits;
  } else if (!value.is_structured()) {
    out += scalar(value);
  } else {
    const bool is_object = value.is_object();
    bool is_first = true;
    out += is_object ? '{' : '[';
    for (auto member = value.begin(); member != value.end(); ++member) {
      if (!std::exchange(is_first, false)) out += spacing == JsonSpacing::python ? ", " : ",";
      if (is_object) out += scalar(member.key()) + (spacing == JsonSpacing::python ? ": " : ":");
      append_exact(out, *member, spacing);
    }
    out += is_object ? '}' : ']';
  }
}

}  // namespace

ordered_json big_integer(std::string_view digits) {
  return ordered_json::binary(ordered_json::binary_t::container_type(digits.begin(), digits.end()));
}

std::string_view big_integer_digits(const ordered_json& value) {
  if (!value.is_binary()) return {};
  const auto& bytes = value.get_binary();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<double> to_double(const ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  const auto digits = big_integer_digits(value);
  if (digits.empty()) return std::nullopt;
  return std::strtod(std::string(digits).c_str(), nullptr);
}

std::string json_text(const ordered_json& value, JsonSpacing spacing) {
  std::string text;
  append_exact(text, value, spacing);
  return text;
}

}  // namespace pagoda::wire
