#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// The characters of \s and `.`, in which the readers of regexes differ.
enum class CharacterClasses : std::uint8_t {
  certain,   ///< characters that all readers take
  possible,  ///< characters that some readers take
};

struct RegexFlags {
  bool ignores_case = false;  ///< whether the case of ASCII letters does not count
  bool dot_is_any = false;    ///< whether `.` takes a line end, too
};

/// Parses literals, `.`, classes, \d \w \s (of ASCII) and the like, groups, alternatives and quantifiers. `^`, `$`,
/// (?=...) and (?!...) become assertions. Reads (?i) and (?s) at the begin, (?i:...) and (?s:...). Error:
/// invalid_request that names what is not supported (look-behind, back references, \b, \p, other flags) and where it
/// is.
Result<Expr> parse_regex(std::string_view regex, CharacterClasses classes, RegexFlags flags = {});

/// Returns a regex that matches whole texts, without assertions. Errors: as parse_regex; a regex that takes too many
/// states.
Result<Expr> regex_expression(std::string_view regex, RegexFlags flags = {});

/// An alternative of a regex without the `^` at its begin and the `$` at its end.
struct Unanchored {
  Expr expression;
  bool begins = false;  ///< whether it had a `^`
  bool ends = false;
};
/// Returns the alternatives of the whole expression. Nothing if there are assertions elsewhere.
std::optional<std::vector<Unanchored>> without_anchors(const Expr& expression);

/// Returns the expression between the quotes of a JSON string, escaped where JSON requires it. It must have no
/// assertions.
Expr in_json_string(const Expr& expression);

}  // namespace pagoda::grammar
