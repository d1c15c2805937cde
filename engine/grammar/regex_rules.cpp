#include "engine/grammar/regex_rules.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/text_language.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

const CharacterRanges& digits() {
  static const CharacterRanges ranges{{'0', '9'}};
  return ranges;
}
const CharacterRanges& word_characters() {
  static const CharacterRanges ranges{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return ranges;
}
/// Return the white space of every reader of regexes, and of some: ECMA-262 has the second.
const CharacterRanges& spaces() {
  static const CharacterRanges ranges{{'\t', '\r'}, {' ', ' '}};
  return ranges;
}
const CharacterRanges& all_spaces() {
  static const CharacterRanges ranges{{'\t', '\r'},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                      {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                      {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return ranges;
}

/// Returns the characters that `.` does not take.
const CharacterRanges& line_ends() {
  static const CharacterRanges ranges{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return ranges;
}

/// Returns the characters that certainly are in the class or, with `is_excluded`, those that may be.
std::optional<CharacterRanges> class_of(char32_t letter, bool is_excluded = false) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return complement(digits());
    case 'w':
      return word_characters();
    case 'W':
      return complement(word_characters());
    case 's':
      return is_excluded ? all_spaces() : spaces();
    case 'S':
      return complement(is_excluded ? spaces() : all_spaces());
    default:
      return std::nullopt;
  }
}

std::optional<char32_t> control_of(char32_t letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

class RegexParser {
 public:
  RegexParser(std::string_view regex, CharacterClasses classes, RegexFlags flags)
      : regex_(regex), classes_(classes), flags_(flags) {}

  Result<Expr> parse() {
    if (regex_.size() > kMaxRegexBytes) {
      return fail(ErrorCode::invalid_request, "the regex has " + std::to_string(regex_.size()) + " bytes; at most " +
                                                  std::to_string(kMaxRegexBytes) + " are allowed");
    }
    if (text::find_invalid_utf8(regex_) != std::string_view::npos) {
      return fail(ErrorCode::invalid_request, "the regex is not UTF-8");
    }
    read_flags();
    Expr whole = alternatives(0);
    if (!error_ && position_ < regex_.size()) refuse("an unmatched )");
    if (error_) return fail(std::move(*error_));
    return whole;
  }

 private:
  bool takes_possible() const { return classes_ == CharacterClasses::possible; }
  bool at_end() const { return error_ || position_ >= regex_.size(); }
  bool next_is(char c) const { return !at_end() && regex_[position_] == c; }
  bool take(std::string_view text) {
    if (error_ || !regex_.substr(position_).starts_with(text)) return false;
    position_ += text.size();
    return true;
  }
  char32_t take_character() { return text::next_character(regex_, position_); }

  Expr refuse(const std::string& what) {
    if (!error_) {
      error_ = Error{ErrorCode::invalid_request,
                     "the regex has " + what + " at byte " + std::to_string(position_) + ", which is not supported"};
    }
    return nothing();
  }

  /// Reads (?is) at the begin.
  void read_flags() {
    const std::size_t end = regex_.find_first_not_of("is", 2);
    if (!regex_.starts_with("(?") || end == 2 || end == std::string_view::npos || regex_[end] != ')') return;
    set_flags(regex_.substr(2, end - 2));
    position_ = end + 1;
  }

  void set_flags(std::string_view letters) {
    flags_.ignores_case |= letters.find('i') != std::string_view::npos;
    flags_.dot_is_any |= letters.find('s') != std::string_view::npos;
  }

  Expr any_of(CharacterRanges ranges) const {
    if (!flags_.ignores_case) return characters(std::move(ranges));
    constexpr char32_t kToLower = 'a' - 'A';
    CharacterRanges others;
    for (const auto [first, last] : intersection(ranges, {{'A', 'Z'}}))
      others.push_back({first + kToLower, last + kToLower});
    for (const auto [first, last] : intersection(ranges, {{'a', 'z'}}))
      others.push_back({first - kToLower, last - kToLower});
    ranges.insert(ranges.end(), others.begin(), others.end());
    return characters(std::move(ranges));
  }

  Expr alternatives(int depth) {
    if (depth > kMaxDepth) return refuse("groups nested deeper than " + std::to_string(kMaxDepth));
    std::vector<Expr> all;
    do {
      all.push_back(terms(depth));
    } while (take("|"));
    return choice(std::move(all));
  }

  Expr terms(int depth) {
    std::vector<Expr> all;
    while (!at_end() && !next_is('|') && !next_is(')')) {
      all.push_back(quantified(atom(depth)));
    }
    return all.empty() ? empty() : sequence(std::move(all));
  }

  Expr quantified(Expr part) {
    std::int64_t min = 1;
    std::int64_t max = 1;
    if (take("*")) {
      min = 0, max = kUnbounded;
    } else if (take("+")) {
      max = kUnbounded;
    } else if (take("?")) {
      min = 0;
    } else if (next_is('{')) {
      if (!bounds(min, max)) return nothing();
    } else {
      return part;
    }
    if (part->kind == Expression::Kind::assertion) return refuse("a quantifier of an assertion");
    if (take("?")) {
      // A lazy quantifier matches the same texts.
    } else if (next_is('+')) {
      return refuse("a possessive quantifier");
    }
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) return refuse("a quantifier of a quantifier");
    return repeat(std::move(part), static_cast<std::int32_t>(min), static_cast<std::int32_t>(max));
  }

  /// Reads {m}, {m,} and {m,n}
  bool bounds(std::int64_t& min, std::int64_t& max) {
    take("{");
    const auto first = number();
    if (!first) return refuse("a { that does not begin a quantifier"), false;
    min = max = *first;
    if (take(",")) {
      max = kUnbounded;
      if (!next_is('}')) {
        const auto last = number();
        if (!last) return refuse("a { that does not begin a quantifier"), false;
        max = *last;
      }
    }
    if (!take("}")) return refuse("a { that does not begin a quantifier"), false;
    if (max != kUnbounded && max < min) return refuse("a quantifier whose minimum is above its maximum"), false;
    if (min > kMaxRepetitions) return refuse("more than " + std::to_string(kMaxRepetitions) + " repetitions"), false;
    if (max > kMaxRepetitions) max = kUnbounded;  // no text shows the difference
    return true;
  }

  std::optional<std::int64_t> number() {
    std::int64_t value = 0;
    const std::size_t begin = position_;
    while (!at_end() && regex_[position_] >= '0' && regex_[position_] <= '9') {
      value = std::min<std::int64_t>(value * 10 + (regex_[position_++] - '0'), kMaxRepetitions + 1);
    }
    return position_ == begin ? std::nullopt : std::optional(value);
  }

  Expr atom(int depth) {
    if (next_is('(')) return group(depth);
    if (next_is('[')) return any_of(bracket());
    if (next_is('\\')) return escape();
    if (take("^")) return assertion(Expression::Assertion::text_begins);
    if (take("$")) return assertion(Expression::Assertion::text_ends);
    if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) {
      return refuse("a quantifier without anything before it");
    }
    if (take(".")) {
      if (flags_.dot_is_any) return characters(complement({}));
      return characters(complement(takes_possible() ? CharacterRanges{{'\n', '\n'}} : line_ends()));
    }
    const char32_t character = take_character();
    return any_of({{character, character}});
  }

  Expr group(int depth) {
    take("(");
    if (take("?=")) return look_ahead(Expression::Assertion::ahead, depth);
    if (take("?!")) return look_ahead(Expression::Assertion::not_ahead, depth);
    const std::size_t flags_end = regex_.find_first_not_of("is", position_ + 1);
    if (next_is('?') && flags_end > position_ + 1 && flags_end < regex_.size() && regex_[flags_end] == ':') {
      const RegexFlags outside = flags_;
      set_flags(regex_.substr(position_ + 1, flags_end - position_ - 1));
      position_ = flags_end + 1;
      Expr inside = group_end(depth);
      flags_ = outside;
      return inside;
    }
    if (next_is('?') && !take("?:")) {
      const bool is_named = regex_.substr(position_).starts_with("?P<") || regex_.substr(position_).starts_with("?<");
      const bool looks_behind =
          regex_.substr(position_).starts_with("?<=") || regex_.substr(position_).starts_with("?<!");
      const std::size_t end = regex_.find('>', position_);
      if (!is_named || looks_behind || end == std::string_view::npos)
        return refuse("a look-behind, flags or another special group");
      position_ = end + 1;
    }
    return group_end(depth);
  }

  /// Reads a group from behind its opening parenthesis.
  Expr group_end(int depth) {
    Expr inside = alternatives(depth + 1);
    if (!take(")")) return refuse("a group without its end");
    return inside;
  }

  Expr look_ahead(Expression::Assertion kind, int depth) {
    Expr inside = group_end(depth);
    return error_ ? nothing() : assertion(kind, std::move(inside));
  }

  Expr escape() {
    take("\\");
    if (at_end()) return refuse("a \\ at its end");
    const std::size_t begin = position_;
    const char32_t letter = take_character();
    if (const auto ranges = class_of(letter, takes_possible())) return any_of(*ranges);
    position_ = begin;
    const auto character = escaped_character();
    return character ? any_of({{*character, *character}}) : nothing();
  }

  /// Reads a character from behind the backslash.
  std::optional<char32_t> escaped_character() {
    const char32_t letter = take_character();
    if (const auto control = control_of(letter)) return control;
    if (letter == 'x') return hex(2);
    if (letter == 'u') return hex(4);
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_letter && !is_digit) return letter;
    refuse(std::string("\\") + static_cast<char>(letter));
    return std::nullopt;
  }

  std::optional<char32_t> hex(int num_digits) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      if (at_end()) return refuse("an unfinished escape"), std::nullopt;
      const char c = regex_[position_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return refuse("an unfinished escape"), std::nullopt;
      value = value * 16 + static_cast<char32_t>(digit);
      ++position_;
    }
    return value;
  }

  CharacterRanges bracket() {
    take("[");
    const bool is_negated = take("^");
    CharacterRanges ranges;
    bool is_first = true;
    while (!next_is(']') || is_first) {
      if (at_end()) return refuse("a [ without its ]"), CharacterRanges();
      if (is_first && next_is(']')) return refuse("an empty class"), CharacterRanges();
      is_first = false;
      if (next_is('[')) return refuse("a class inside a class"), CharacterRanges();
      if (regex_.substr(position_).starts_with("&&")) return refuse("a class operator"), CharacterRanges();
      if (!class_item(ranges, is_negated)) return {};
    }
    take("]");
    return is_negated ? complement(ranges) : normalized(std::move(ranges));
  }

  bool class_item(CharacterRanges& ranges, bool is_negated) {
    if (regex_[position_] == '\\' && position_ + 1 < regex_.size()) {
      const auto letter = static_cast<unsigned char>(regex_[position_ + 1]);
      if (const auto named = class_of(letter, is_negated != takes_possible())) {
        position_ += 2;
        ranges.insert(ranges.end(), named->begin(), named->end());
        return true;
      }
    }
    const auto first = class_character();
    if (!first) return false;
    char32_t last = *first;
    const std::string_view rest = regex_.substr(position_);
    if (rest.starts_with("-") && rest.size() > 1 && rest[1] != ']') {
      take("-");
      const auto end = class_character();
      if (!end) return false;
      last = *end;
      if (last < *first) return refuse("a range whose ends are swapped"), false;
    }
    ranges.push_back({*first, last});
    return true;
  }

  std::optional<char32_t> class_character() {
    if (at_end()) return refuse("a [ without its ]"), std::nullopt;
    if (!take("\\")) return take_character();
    if (at_end()) return refuse("a \\ at its end"), std::nullopt;
    if (take("b")) return '\b';
    return escaped_character();
  }

  std::string_view regex_;
  CharacterClasses classes_;
  RegexFlags flags_;
  std::size_t position_ = 0;
  std::optional<Error> error_;
};

/// Returns how JSON writes a character that it must escape.
std::string json_escape(char32_t character) {
  constexpr std::string_view kShort = "\bb\ff\nn\rr\tt\"\"\\\\";
  for (std::size_t i = 0; i < kShort.size(); i += 2) {
    if (static_cast<char32_t>(kShort[i]) == character) return {'\\', kShort[i + 1]};
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  return std::string("\\u00") + kDigits[character >> 4] + kDigits[character & 0xF];
}

Expr json_character(const CharacterRanges& ranges) {
  static const CharacterRanges escaped{{1, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<Expr> parts;
  CharacterRanges plain = intersection(ranges, complement(escaped));
  if (!plain.empty()) parts.push_back(characters(std::move(plain)));
  for (const auto [first, last] : intersection(ranges, escaped)) {
    for (char32_t character = first; character <= last; ++character) parts.push_back(literal(json_escape(character)));
  }
  return choice(std::move(parts));
}

bool is_assertion(const Expr& e, Expression::Assertion kind) {
  return e->kind == Expression::Kind::assertion && e->assertion == kind;
}

bool has_assertions(const Expression& e) {
  return e.kind == Expression::Kind::assertion ||
         std::ranges::any_of(e.parts, [](const Expr& part) { return has_assertions(*part); });
}

}  // namespace

Result<Expr> parse_regex(std::string_view regex, CharacterClasses classes, RegexFlags flags) {
  return RegexParser(regex, classes, flags).parse();
}

std::optional<std::vector<Unanchored>> without_anchors(const Expr& expression) {
  const bool is_choice = expression->kind == Expression::Kind::choice;
  std::vector<Unanchored> all;
  for (const Expr& alternative : is_choice ? expression->parts : std::vector<Expr>{expression}) {
    const bool is_sequence = alternative->kind == Expression::Kind::sequence;
    std::vector<Expr> parts = is_sequence ? alternative->parts : std::vector<Expr>{alternative};
    Unanchored one;
    one.begins = !parts.empty() && is_assertion(parts.front(), Expression::Assertion::text_begins);
    if (one.begins) parts.erase(parts.begin());
    one.ends = !parts.empty() && is_assertion(parts.back(), Expression::Assertion::text_ends);
    if (one.ends) parts.pop_back();
    one.expression = parts.empty() ? empty() : sequence(std::move(parts));
    if (has_assertions(*one.expression)) return std::nullopt;
    all.push_back(std::move(one));
  }
  return all;
}

Result<Expr> regex_expression(std::string_view regex, RegexFlags flags) {
  auto parsed = parse_regex(regex, CharacterClasses::certain, flags);
  if (!parsed || !has_assertions(**parsed)) return parsed;
  if (const auto alternatives = without_anchors(*parsed)) {
    std::vector<Expr> all;
    for (const Unanchored& one : *alternatives) all.push_back(one.expression);
    return choice(std::move(all));
  }
  LanguageBudget budget;
  const auto language = TextLanguage::from_expression(*parsed, Matching::whole, budget);
  if (!language) {
    return fail(ErrorCode::invalid_request, "the regex needs too many states for its look-ahead");
  }
  return language->expression(nullptr);
}

Expr in_json_string(const Expr& expression) {
  std::map<const Expression*, Expr> known;
  const auto convert = [&](const auto& self, const Expr& e) -> Expr {
    const auto [place, is_new] = known.try_emplace(e.get(), e);
    if (!is_new) return place->second;
    Expr made = e;
    if (e->kind == Expression::Kind::characters) {
      made = json_character(e->ranges);
    } else if (!e->parts.empty()) {
      Expression copy = *e;
      copy.size = 1;
      for (Expr& part : copy.parts) {
        part = self(self, part);
        copy.size += part->size;
      }
      made = std::make_shared<const Expression>(std::move(copy));
    }
    known[e.get()] = made;
    return made;
  };
  return convert(convert, expression);
}

}  // namespace pagoda::grammar
