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
  python,  ///< with True, False and None
};

/// The separators and the white space between tokens of JSON.
struct JsonSpacing {
  /// True: nothing, a space, or a line end and at most 20 spaces or tabs, so that white space ends.
  bool is_free = true;
  // If is_free is false: these separators, with their white space, and no white space elsewhere.
  std::string item_separator = ",";
  std::string key_separator = ":";
};

/// The parts of JSON texts as rules of one grammar. A rule is added when it is first requested.
class JsonRules {
 public:
  explicit JsonRules(Rules& rules, JsonStyle style = JsonStyle::json, JsonSpacing spacing = {})
      : rules_(rules), style_(style), spacing_(std::move(spacing)) {}

  Expr space();
  Expr value();   ///< a value of any type
  Expr object();  ///< any object
  Expr array();   ///< any array
  Expr string();  ///< any string
  Expr boolean() const;
  Expr null() const;
  /// Returns how a value is written.
  std::string constant(const nlohmann::ordered_json& value) const;
  /// Returns the characters of `ranges` that stand for themselves in a string.
  static CharacterRanges plain(const CharacterRanges& ranges);
  /// Returns a rule for what follows a backslash in an escape of one of the characters; -1 if there is none. Printable
  /// ASCII characters have at most short escapes, unless `ranges` are all characters.
  RuleId escapes(const CharacterRanges& ranges);
  /// Returns a string of so many characters. Each escape counts as one.
  Expr string(std::int32_t min_length, std::int32_t max_length);
  /// Returns a string that is none of `names` and is not written with escapes.
  Expr string_but(const std::vector<std::string>& names);

  /// Returns `{`, `members`, `}`. `members` is empty, or members with commas between them.
  Expr braces(Expr members);
  /// Returns a name, a colon and a value.
  Expr member(Expr name, Expr value);
  /// Returns a comma with its white space.
  Expr comma();
  /// Returns `[`, items and `]`.
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

/// Returns a text as JSON writes it, with its quotes. `text` must be UTF-8.
std::string json_string(std::string_view text);

}  // namespace pagoda::grammar
