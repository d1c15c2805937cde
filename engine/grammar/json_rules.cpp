#include "engine/grammar/json_rules.hpp"

#include <map>
#include <utility>

#include "engine/grammar/number_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::int32_t kMaxIndent = 20;

const CharacterRanges& plain_characters() {
  static const CharacterRanges ranges = complement({{1, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return ranges;
}

/// The letter of each short escape, and the character that it stands for.
constexpr std::string_view kShortEscapes = "\"\"\\\\//b\bf\fn\nr\rt\t";

constexpr std::uint32_t kHexDigits = 4;

/// Returns the hexadecimal numbers of `num_digits` digits from `first` to `last`.
Expr hex_between(std::uint32_t first, std::uint32_t last, std::uint32_t num_digits) {
  if (num_digits == 0) return empty();
  const auto digits = [](std::uint32_t from, std::uint32_t to) {
    CharacterRanges ranges;
    for (std::uint32_t digit = from; digit <= to; ++digit) {
      const auto letter = static_cast<char32_t>(digit);
      if (digit < 10) ranges.push_back({'0' + letter, '0' + letter});
      if (digit >= 10)
        ranges.insert(ranges.end(), {{'a' + letter - 10, 'a' + letter - 10}, {'A' + letter - 10, 'A' + letter - 10}});
    }
    return characters(std::move(ranges));
  };
  const std::uint32_t unit = 1U << (4 * (num_digits - 1));
  std::uint32_t from = first / unit;
  std::uint32_t to = last / unit;
  if (from == to) return sequence({digits(from, to), hex_between(first % unit, last % unit, num_digits - 1)});
  std::vector<Expr> parts;
  if (first % unit != 0) {
    parts.push_back(sequence({digits(from, from), hex_between(first % unit, unit - 1, num_digits - 1)}));
    ++from;
  }
  if (last % unit != unit - 1) {
    parts.push_back(sequence({digits(to, to), hex_between(0, last % unit, num_digits - 1)}));
    --to;
  }
  if (from <= to) parts.push_back(sequence({digits(from, to), hex_between(0, unit - 1, num_digits - 1)}));
  return choice(std::move(parts));
}

/// Adds what follows the backslash of a surrogate pair for a character of the range, which must be beyond U+FFFF.
void add_surrogates(CharacterRange range, std::vector<Expr>& parts) {
  constexpr std::uint32_t kLows = 0x400;
  const std::uint32_t first = range.first - 0x10000;
  const std::uint32_t last = range.last - 0x10000;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t low, std::uint32_t high) {
    parts.push_back(sequence({literal("u"), hex_between(0xD800 + from, 0xD800 + to, kHexDigits), literal("\\u"),
                              hex_between(0xDC00 + low, 0xDC00 + high, kHexDigits)}));
  };
  std::uint32_t from = first / kLows;
  std::uint32_t to = last / kLows;
  if (from == to) return add(from, to, first % kLows, last % kLows);
  if (first % kLows != 0) add(from, from, first % kLows, kLows - 1), ++from;
  if (last % kLows != kLows - 1) add(to, to, 0, last % kLows), --to;
  if (from <= to) add(from, to, 0, kLows - 1);
}

/// Returns the escapes without their backslash.
Expr escapes_of(const CharacterRanges& ranges) {
  constexpr char32_t kFirstOfPairs = 0x10000;
  const bool are_all = ranges == complement({});
  std::vector<Expr> parts;
  std::string letters;
  for (std::size_t i = 0; i < kShortEscapes.size(); i += 2) {
    const auto meant = static_cast<char32_t>(kShortEscapes[i + 1]);
    if (meant == '/' && !are_all) continue;  // it stands for itself
    if (!intersection(ranges, {{meant, meant}}).empty()) letters += kShortEscapes[i];
  }
  if (!letters.empty()) parts.push_back(one_of(letters));
  const CharacterRanges single = are_all ? intersection(ranges, {{0, kFirstOfPairs - 1}})
                                         : intersection(ranges, {{1, 0x1F}, {0x7F, kFirstOfPairs - 1}});
  for (const auto [first, last] : single) {
    const bool has_nul = are_all && first == 1;
    parts.push_back(sequence({literal("u"), hex_between(has_nul ? 0 : first, last, kHexDigits)}));
  }
  for (const CharacterRange& range : intersection(ranges, {{kFirstOfPairs, 0x10FFFF}})) add_surrogates(range, parts);
  return choice(std::move(parts));
}

/// Names as a tree of their characters.
struct NameTree {
  std::map<char32_t, NameTree> children;
  bool is_name = false;
};

/// Returns what may follow at `node` in a string that is none of the names, with the closing quote.
Expr tail_but(Rules& rules, const NameTree& node) {
  CharacterRanges known;
  std::vector<Expr> parts;
  if (rules.are_too_many()) return nothing();  // the grammar is refused later
  for (const auto& [character, child] : node.children) {
    known.push_back({character, character});
    // A character that JSON must escape does not come in a string without escapes.
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
  if (!spacing_.is_free) return empty();
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
  return choice({empty(), literal(" "), sequence({literal("\n"), repeat(one_of(" \t"), 0, kMaxIndent)})});
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
  // One rule goes from the opening quote to the closing quote, and takes plain characters in its own loop. So the
  // effect of a token of many characters is computed once for each of its places.
  const RuleId rest = rules_.add();
  const Expr escaped = sequence({literal("\\"), rule(escapes(complement({}))), rule(rest)});
  rules_.set(rest, sequence({repeat(characters(plain_characters()), 0, kUnbounded), choice({literal("\""), escaped})}));
  return sequence({literal("\""), rule(rest)});
}

CharacterRanges JsonRules::plain(const CharacterRanges& ranges) {
  return intersection(ranges, plain_characters());
}

RuleId JsonRules::escapes(const CharacterRanges& ranges) {
  std::vector<std::pair<char32_t, char32_t>> key;
  for (const auto [first, last] : ranges) key.emplace_back(first, last);
  const auto [known, is_new] = escapes_.try_emplace(std::move(key), -1);
  if (!is_new) return known->second;
  Expr all = escapes_of(ranges);
  if (!all->parts.empty() || all->kind != Expression::Kind::choice) known->second = rules_.add(std::move(all));
  return known->second;
}

Expr JsonRules::string(std::int32_t min_length, std::int32_t max_length) {
  const auto [known, is_new] = counted_strings_.try_emplace({min_length, max_length});
  if (is_new) {
    const CharacterAutomaton::Edge any{.characters = characters(plain_characters()),
                                       .escapes = escapes(complement({}))};
    const Expr rest =
        automaton({.states = {{.accepts = true, .edges = {any}}}, .min_length = min_length, .max_length = max_length});
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
  return sequence({std::move(name), space(), literal(spacing_.key_separator), space(), std::move(value)});
}

Expr JsonRules::comma() {
  return sequence({space(), literal(spacing_.item_separator), space()});
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
