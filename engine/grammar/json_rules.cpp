#include "engine/grammar/json_rules.hpp"

#include <map>
#include <utility>

#include "engine/grammar/number_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::int32_t kMostIndent = 20;

const CharacterRanges& plain_characters() {
  static const CharacterRanges ranges = complement({{1, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return ranges;
}

Expr hex_digit() {
  return characters({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
}

/// An escape of one character, which is no half of a pair.
Expr escape() {
  const Expr hex = hex_digit();
  const Expr first_three =
      choice({sequence({characters({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}), hex}),
              sequence({one_of("dD"), characters({{'0', '7'}})})});
  return sequence({literal("\\"), choice({one_of("\"\\/bfnrt"), sequence({literal("u"), first_three, hex, hex})})});
}

Expr surrogates() {
  const Expr hex = hex_digit();
  return sequence({literal("\\u"), one_of("dD"), one_of("89abAB"), hex, hex, literal("\\u"), one_of("dD"),
                   characters({{'c', 'f'}, {'C', 'F'}}), hex, hex});
}

/// Names as a tree of their characters.
struct NameTree {
  std::map<char32_t, NameTree> children;
  bool is_name = false;
};

/// What may follow here in a string that is none of the names, with the closing quote.
Expr tail_but(Rules& rules, const NameTree& node) {
  CharacterRanges known;
  std::vector<Expr> parts;
  if (rules.are_too_many()) return nothing();  // which is refused later
  for (const auto& [character, child] : node.children) {
    known.push_back({character, character});
    // Names with what JSON escapes are not written with escapes here.
    if (intersection({{character, character}}, plain_characters()).empty()) continue;
    if (child.children.empty() && child.is_name) {
      parts.push_back(sequence({characters({{character, character}}), characters(plain_characters()),
                                repeat(characters(plain_characters()), 0, kUnbounded), literal("\"")}));
    } else {
      const RuleId id = rules.add();
      rules.set(id, tail_but(rules, child));
      parts.push_back(sequence({characters({{character, character}}), rule(id)}));
    }
  }
  parts.push_back(sequence({characters(intersection(plain_characters(), complement(known))),
                            repeat(characters(plain_characters()), 0, kUnbounded), literal("\"")}));
  if (!node.is_name) parts.push_back(literal("\""));
  return choice(std::move(parts));
}

}  // namespace

Expr JsonRules::once(std::optional<RuleId>& id, Expr (JsonRules::*make)()) {
  if (!id) {
    id = rules_.add();
    rules_.set(*id, (this->*make)());
  }
  return rule(*id);
}

Expr JsonRules::space() {
  return once(space_, &JsonRules::make_space);
}
Expr JsonRules::value() {
  return once(value_, &JsonRules::make_value);
}
Expr JsonRules::object() {
  return once(object_, &JsonRules::make_object);
}
Expr JsonRules::array() {
  return once(array_, &JsonRules::make_array);
}
Expr JsonRules::string() {
  return once(string_, &JsonRules::make_string);
}

Expr JsonRules::boolean() const {
  return choice({literal(constant(true)), literal(constant(false))});
}

Expr JsonRules::null() const {
  return literal(constant(nullptr));
}

std::string JsonRules::constant(const nlohmann::ordered_json& value) const {
  if (style_ == JsonStyle::json) return value.dump();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string out(1, value.is_object() ? '{' : '[');
  for (const auto& [name, member] : value.items()) {
    if (out.size() > 1) out += ", ";
    if (value.is_object()) out += nlohmann::json(name).dump() + ": ";
    out += constant(member);
  }
  return out + (value.is_object() ? '}' : ']');
}

Expr JsonRules::make_space() {
  return choice({empty(), literal(" "), sequence({literal("\n"), repeat(one_of(" \t"), 0, kMostIndent)})});
}

Expr JsonRules::make_value() {
  return choice({object(), array(), string(), any_number(), boolean(), null()});
}

Expr JsonRules::make_object() {
  const Expr any_member = member(string(), value());
  return braces(optional(sequence({any_member, repeat(sequence({comma(), any_member}), 0, kUnbounded)})));
}

Expr JsonRules::make_array() {
  return brackets(optional(sequence({value(), repeat(sequence({comma(), value()}), 0, kUnbounded)})));
}

Expr JsonRules::make_string() {
  // One rule goes from the opening quote to the closing one, and over plain characters in itself: what tokens of many
  // characters do is known of each of its places once and for all.
  const RuleId rest = rules_.add();
  const Expr escaped = sequence({choice({escape(), surrogates()}), rule(rest)});
  rules_.set(rest, sequence({repeat(characters(plain_characters()), 0, kUnbounded), choice({literal("\""), escaped})}));
  return sequence({literal("\""), rule(rest)});
}

Expr JsonRules::string(std::int32_t min_length, std::int32_t max_length) {
  // Without escapes: of characters alone masks know the tokens as a whole (CharacterLoop).
  const auto [known, is_new] = counted_strings_.try_emplace({min_length, max_length});
  if (is_new) {
    const Expr rest = repeat(characters(plain_characters()), min_length, max_length);
    known->second = rules_.add(sequence({literal("\""), rest, literal("\"")}));
  }
  return rule(known->second);
}

Expr JsonRules::string_but(const std::vector<std::string>& names) {
  if (names.empty()) return string();
  NameTree tree;
  for (const std::string& name : names) {
    NameTree* node = &tree;
    for (std::size_t position = 0; position < name.size();)
      node = &node->children[text::next_character(name, position)];
    node->is_name = true;
  }
  return sequence({literal("\""), tail_but(rules_, tree)});
}

Expr JsonRules::braces(Expr members) {
  return sequence({literal("{"), space(), std::move(members), space(), literal("}")});
}

Expr JsonRules::member(Expr name, Expr value) {
  return sequence({std::move(name), space(), literal(":"), space(), std::move(value)});
}

Expr JsonRules::comma() {
  return sequence({space(), literal(","), space()});
}

Expr JsonRules::brackets(Expr items) {
  return sequence({literal("["), space(), std::move(items), space(), literal("]")});
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 0xFU];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace pagoda::grammar
