#pragma once

#include "io/jinja/callable.hpp"

namespace pagoda::jinja {

/// Returns format % values: `values` is a tuple, a dict, or a single value.
Value format_percent(Heap& heap, const Text& format, const Value& values);

/// Returns format.format(...), in the sandbox: fields may name attributes and items.
Value format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments);

/// Format of a number by C's rules, which Python's `%` and format() follow too: flags, width and precision as digits,
/// and one of eEfFgGdxXo. `grouping` is the separator of thousands, 0 for none.
struct NumberFormat {
  char type = 'd';
  char sign = '-';  ///< '+': always a sign, ' ': a space instead of a plus
  bool is_alternate = false;
  int precision = -1;
  char grouping = 0;
};
/// Returns the digits of a number in this format, and sets `sign_and_prefix`. Throws Failure for a number of the wrong
/// kind.
std::string number_digits(const Value& number, const NumberFormat& format, std::string& sign_and_prefix);

/// Inserts the separator between thousands before the point.
void group_thousands(std::string& digits, char separator);

/// Reads a width or precision: digits at `at`, which moves past them; -1 for none. Throws Failure when it is too large.
int read_size(std::string_view format, std::size_t& at);

}  // namespace pagoda::jinja
