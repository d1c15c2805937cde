#pragma once

/// Reading and showing of flag values: decimal numbers in a range, words of a list, switches. A wrong value ends the
/// parse with CLI::ConversionError, whose message has the flag, the allowed values and the given value.

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "io/config_fields.hpp"

namespace pagoda::apps {

/// Throws "FLAG must be EXPECTED, not GIVEN". `flag` may hold several spellings, as CLI11 takes them; the last is
/// shown.
[[noreturn]] void refuse_value(const std::string& flag, const std::string& expected, const std::string& given);

/// Returns the number as a user would write it.
std::string shown(double value);
template <class T>
requires std::is_integral_v<T> std::string shown(T value) {
  return std::to_string(value);
}

template <class T>
inline constexpr T kMinOf = std::numeric_limits<T>::lowest();
template <class T>
inline constexpr T kMaxOf = std::numeric_limits<T>::max();

/// Reads an integer from `least` to `most`. Refuses hexadecimal and octal numbers, and negative numbers that would wrap
/// around.
template <class T>
requires std::is_integral_v<T> T read_number(const std::string& flag, const std::string& text, T least, T most) {
  const bool negative = text.starts_with('-');
  const std::string_view digits = std::string_view(text).substr(negative ? 1 : 0);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (digits.empty() || !std::ranges::all_of(digits, is_digit)) refuse_value(flag, "an integer", text);
  T value{};
  const bool fits = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
  if (fits ? value < least : negative) refuse_value(flag, "at least " + shown(least), text);
  if (!fits || value > most) refuse_value(flag, "at most " + shown(most), text);
  return value;
}

/// Reads a finite number from `least` to `most`.
double read_number(const std::string& flag, const std::string& text, double least, double most);

/// Adds a flag with a number that sets `field`. The current value is shown as the default.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& flag, T& field, const std::string& help, T least = kMinOf<T>,
                        T most = kMaxOf<T>) {
  const auto set = [=, &field](const CLI::results_t& given) {
    field = read_number(flag, given.back(), least, most);
    return true;
  };
  return app.add_option(flag, set, help)->type_name(CLI::detail::type_name<T>())->default_str(shown(field));
}

/// Adds a flag with a number that sets a field that may be absent.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& flag, std::optional<T>& field, const std::string& help) {
  const auto set = [=, &field](const CLI::results_t& given) {
    field = read_number(flag, given.back(), kMinOf<T>, kMaxOf<T>);
    return true;
  };
  return app.add_option(flag, set, help)->type_name(CLI::detail::type_name<T>());
}

/// Adds a flag that takes one of `words`. `set` is called with the index of the given word.
CLI::Option* add_words(CLI::App& app, const std::string& flag, std::vector<std::string> words,
                       std::function<void(std::size_t)> set, const std::string& help);

/// Adds a flag with a word of an enum that has EnumWords.
template <class E>
requires std::is_enum_v<E> CLI::Option* add_choice(CLI::App& app, const std::string& flag, E& field,
                                                   const std::string& help) {
  constexpr auto& kChoices = io::EnumWords<E>::kWords;
  std::vector<std::string> words;
  std::string now;
  for (const auto& [word, value] : kChoices) {
    words.emplace_back(word);
    if (value == field) now = word;
  }
  const auto set = [&field](std::size_t place) { field = io::EnumWords<E>::kWords[place].second; };
  return add_words(app, flag, std::move(words), set, help)->default_str(now);
}

/// Adds a flag with one of `words`, stored unchanged.
CLI::Option* add_choice(CLI::App& app, const std::string& flag, std::string& field, std::vector<std::string> words,
                        const std::string& help);

/// Adds a flag with a text that may be given several times. `field` gets all of them, separated by commas.
CLI::Option* add_list(CLI::App& app, const std::string& flag, std::string& field, const std::string& help);

/// Adds --NAME and --no-NAME.
CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& field, const std::string& help);

/// Returns a formatter that shows switches as --[no-]NAME with their defaults, and everything else as CLI11 does.
std::shared_ptr<CLI::FormatterBase> help_format();

}  // namespace pagoda::apps
