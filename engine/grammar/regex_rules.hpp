#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// What \s and `.` are to a regex's readers, who differ.
enum class CharacterClasses : std::uint8_t {
  certain,   ///< what each of them takes for one
  possible,  ///< what some of them take for one
};

struct RegexFlags {
  bool ignores_case = false;  ///< of letters of ASCII
  bool dot_is_any = false;    ///< a line end, too
};

/// Literals, `.`, classes, \d \w \s (of ASCII) and their like, groups, alternatives and quantifiers; `^`, `$`, (?=...)
/// and (?!...) become assertions; (?i) and (?s) at the begin, (?i:...) and (?s:...). Error: invalid_request that names
/// what is not supported (look-behind, back references, \b, \p, other flags) and where.
Result<Expr> parse_regex(std::string_view regex, CharacterClasses classes, RegexFlags flags = {});

/// A regex that matches whole texts, without assertions. Error: as above, or what takes too many states.
Result<Expr> regex_expression(std::string_view regex, RegexFlags flags = {});

/// An alternative of a regex without the `^` at its begin and the `$` at its end.
struct Unanchored {
  Expr expression;
  bool begins = false;  ///< it had a `^`
  bool ends = false;
};
/// The alternatives of the whole. Nothing where there are assertions elsewhere.
std::optional<std::vector<Unanchored>> without_anchors(const Expr& expression);

/// The same between the quotes of a JSON string, escaped where JSON wants it; without assertions.
Expr in_json_string(const Expr& expression);

}  // namespace pagoda::grammar
