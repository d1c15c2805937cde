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

/// What JSON texts are made of, as rules of one grammar that are added when they are first asked for. Between tokens of
/// JSON stand nothing, a space, or a line end and at most 20 spaces or tabs, so that white space ends.
class JsonRules {
 public:
  explicit JsonRules(Rules& rules, JsonStyle style = JsonStyle::json) : rules_(rules), style_(style) {}

  Expr space();
  Expr value();   ///< of any type
  Expr object();  ///< any
  Expr array();   ///< any
  Expr string();  ///< any
  Expr boolean() const;
  Expr null() const;
  /// How a value is written.
  std::string constant(const nlohmann::ordered_json& value) const;
  /// A string of so many characters.
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
  std::optional<RuleId> space_;
  std::optional<RuleId> value_;
  std::optional<RuleId> object_;
  std::optional<RuleId> array_;
  std::map<std::pair<std::int32_t, std::int32_t>, RuleId> counted_strings_;
  std::optional<RuleId> string_;
};

/// A text as JSON writes it, with its quotes; `text` is UTF-8.
std::string json_string(std::string_view text);

}  // namespace pagoda::grammar
