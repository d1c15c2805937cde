// isdigit() and the other methods of str that test the kind of its characters.

#include "io/jinja/text_predicates.hpp"

#include "engine/text/unicode.hpp"
#include "io/jinja/characters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/methods.hpp"

namespace pagoda::jinja {
namespace {

template <class Predicate>
bool all_characters(const Text& text, Predicate predicate) {
  for (std::size_t at = 0; at < text.size();) {
    if (!predicate(text::next_character(text.view(), at))) return false;
  }
  return true;
}

template <bool (*predicate)(char32_t)>
bool is_all(const Text& text) {
  return !text.empty() && all_characters(text, predicate);
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_decimal(c) || is_digit(c) || is_numeric(c);
}

// Returns whether all letters that have a case have the wanted one, and there is at least one such letter.
template <bool (*is_wanted)(char32_t), bool (*is_other)(char32_t)>
bool is_cased(const Text& text) {
  bool has_one = false;
  const bool fits = all_characters(text, [&](char32_t c) {
    has_one = has_one || is_wanted(c);
    return !is_other(c) && !is_title(c);
  });
  return fits && has_one;
}

bool is_title_text(const Text& text) {
  bool has_one = false;
  bool is_after_cased = false;
  const bool fits = all_characters(text, [&](char32_t c) {
    const bool is_capital = is_upper(c) || is_title(c);
    const bool is_small = is_lower(c);
    if (is_capital ? is_after_cased : (is_small && !is_after_cased)) return false;
    is_after_cased = is_capital || is_small;
    has_one = has_one || is_after_cased;
    return true;
  });
  return fits && has_one;
}

bool is_ascii(const Text& text) {
  return text.is_ascii() || all_characters(text, [](char32_t c) { return c < 0x80; });
}

bool is_printable_text(const Text& text) {
  return all_characters(text, is_printable);
}

bool is_identifier(const Text& text) {
  bool is_first = true;
  return !text.empty() && all_characters(text, [&](char32_t c) {
    const bool can_start = c == '_' || is_letter(c);
    return std::exchange(is_first, false) ? can_start : can_start || text::is_word(c);
  });
}

template <bool (*predicate)(const Text&)>
Value test(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("a method of str", arguments, {}, 0);
  interpreter.heap().look_at(4 * self.text.size());
  return Value::of(predicate(self.text));
}

constexpr std::pair<std::string_view, Method> kPredicates[] = {{"isalnum", test<is_all<is_alphanumeric>>},
                                                               {"isalpha", test<is_all<is_letter>>},
                                                               {"isascii", test<is_ascii>},
                                                               {"isdecimal", test<is_all<is_decimal>>},
                                                               {"isdigit", test<is_all<is_digit>>},
                                                               {"isidentifier", test<is_identifier>},
                                                               {"islower", test<is_lower_text>},
                                                               {"isnumeric", test<is_all<is_numeric>>},
                                                               {"isprintable", test<is_printable_text>},
                                                               {"isspace", test<is_all<is_space>>},
                                                               {"istitle", test<is_title_text>},
                                                               {"isupper", test<is_upper_text>}};

}  // namespace

bool is_lower_text(const Text& text) {
  return is_cased<is_lower, is_upper>(text);
}

bool is_upper_text(const Text& text) {
  return is_cased<is_upper, is_lower>(text);
}

Method find_text_predicate(std::string_view name) {
  for (const auto& [known, method] : kPredicates) {
    if (known == name) return method;
  }
  return nullptr;
}

}  // namespace pagoda::jinja
