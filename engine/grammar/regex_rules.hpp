#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Where the text of a regex stands.
enum class RegexPlace {
  whole_text,     ///< as it is; the regex matches all of it
  json_string,    ///< between the quotes of a JSON string, escaped where JSON wants it; `^` without `$` leaves its end
                  ///< open, `$` without `^` its beginning, a regex with neither matches the whole string
  string,         ///< the same as characters, not escaped
  any_part,       ///< likewise, but a regex with neither `^` nor `$` matches any part of the string
  possible_part,  ///< likewise, and what only some readers of regexes match is matched too: what is not of this
                  ///< certainly does not match
};

/// Literals, `.`, classes, \d \w \s (of ASCII) and their like, groups, alternatives and quantifiers; `^` and `$` around
/// the whole. Error: invalid_request that names what is not supported (look-around, back references, \b, \p, flags) and
/// where.
Result<Expr> regex_expression(std::string_view regex, RegexPlace place);

/// A character of a JSON string, escaped where JSON wants it.
Expr json_character(const CharacterRanges& ranges);

}  // namespace pagoda::grammar
