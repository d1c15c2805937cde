#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

enum class JsonStyle : std::uint8_t {
  json,
  python,  ///< True, False and None
};

/// What stands between tokens of JSON.
struct JsonSpacing {
  bool is_free = true;  ///< nothing, a space, or a line end and at most 20 spaces or tabs, so that white space ends
  // Else these, with their white space, and none elsewhere:
  std::string item_separator = ",";
  std::string key_separator = ":";
};

/// What JSON texts are made of, as rules of one grammar that are added when they are first asked for.
class JsonRules {
 public:
  explicit JsonRules(Rules& rules, JsonStyle style = JsonStyle::json, JsonSpacing spacing = {})
      : rules_(rules), style_(style), spacing_(std::move(spacing)) {}

  Expr space();
  Expr value();   ///< of any type
  Expr object();  ///< any
  Expr array();   ///< any
  Expr string();  ///< any
  Expr boolean() const;
  Expr null() const;
  /// How a value is written.
  std::string constant(const nlohmann::ordered_json& value) const;
  /// The characters of `ranges` that stand for themselves in a string.
  static CharacterRanges plain(const CharacterRanges& ranges);
  /// A rule of what follows a backslash in an escape of one of the characters; -1: there is none. Printable characters
  /// of ASCII have short escapes at most, but where `ranges` are all characters.
  RuleId escapes(const CharacterRanges& ranges);
  /// A string of so many characters, of which each escape is one.
  Expr string(std::int32_t min_length, std::int32_t max_length);
  /// A string that is none of `names`, nor written with escapes.
  Expr string_but(const std::vector<std::string>& names);

  /// `{`, members between which commas stand, `}`. `members` is "" or what is between the braces.
  Expr braces(Expr members);
  /// A name, a colon, a value.
  Expr member(Expr name, Expr value);
  /// "," with its space.
  Expr comma();
  /// `[`, items, `]`.
  Expr brackets(Expr items);

 private:
  Expr once(std::optional<RuleId>& id, Expr (JsonRules::*make)());
  Expr make_space();
  Expr make_value();
  Expr make_object();
  Expr make_array();
  Expr make_string();

  Rules& rules_;
  JsonStyle style_;
  JsonSpacing spacing_;
  std::optional<RuleId> space_;
  std::optional<RuleId> value_;
  std::optional<RuleId> object_;
  std::optional<RuleId> array_;
  std::map<std::pair<std::int32_t, std::int32_t>, RuleId> counted_strings_;
  std::optional<RuleId> string_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, RuleId> escapes_;  ///< by ranges
};

/// A text as JSON writes it, with its quotes; `text` is UTF-8.
std::string json_string(std::string_view text);

}  // namespace pagoda::grammar
