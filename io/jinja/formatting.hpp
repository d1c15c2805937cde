#pragma once

#include "io/jinja/callable.hpp"

namespace pagoda::jinja {

/// format % values: `values` is a tuple, a dict, or a single value.
Value format_percent(Heap& heap, const Text& format, const Value& values);

/// format.format(...), in the sandbox: fields may name attributes and items.
Value format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments);

/// A number by C's rules, as Python's `%` and format() have them too: flags, width and precision as digits, and one of
/// eEfFgGdxXo. `grouping` is put between thousands, 0 for none.
struct NumberFormat {
  char type = 'd';
  char sign = '-';  ///< '+': always a sign, ' ': a space instead of a plus
  bool is_alternate = false;
  int precision = -1;
  char grouping = 0;
};
/// The sign, the prefix and the digits of a number in that form. Fails when the number is of no fitting kind.
std::string number_digits(const Value& number, const NumberFormat& format, std::string& sign_and_prefix);

/// Puts the separator between thousands before the point.
void group_thousands(std::string& digits, char separator);

/// A width or precision of a format: digits at `at`, which moves behind them; -1 for none. Fails when too large.
int read_size(std::string_view format, std::size_t& at);

}  // namespace pagoda::jinja
