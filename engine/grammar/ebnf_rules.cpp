#include "engine/grammar/ebnf_rules.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/grammar/limits.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

bool is_name_character(char c) {
  return c == '_' || c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Rules> parse() {
    if (text::find_invalid_utf8(text_) != std::string_view::npos) {
      return fail(ErrorCode::invalid_request, "the grammar is not UTF-8");
    }
    id_of("root");  // the first rule
    for (skip_space(); !at_end(); skip_space()) definition();
    for (const auto& [name, id] : ids_) {
      if (error_ || rules_.bodies()[static_cast<std::size_t>(id)] != nullptr) continue;
      error_ = Error{ErrorCode::invalid_request, "the grammar has no rule " + name};
    }
    if (error_) return fail(std::move(*error_));
    return std::move(rules_);
  }

 private:
  bool at_end() const { return error_ || position_ >= text_.size(); }
  bool next_is(char c) const { return !at_end() && text_[position_] == c; }
  bool take(std::string_view what) {
    if (error_ || !text_.substr(position_).starts_with(what)) return false;
    position_ += what.size();
    return true;
  }

  Expr refuse(const std::string& what) {
    if (!error_) {
      const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position_), '\n');
      error_ = Error{ErrorCode::invalid_request, "line " + std::to_string(line) + " of the grammar: " + what};
    }
    return nothing();
  }

  void skip_space() {
    while (!at_end()) {
      const char c = text_[position_];
      if (c == '#') {
        position_ = std::min(text_.find('\n', position_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++position_;
      } else {
        return;
      }
    }
  }

  RuleId id_of(const std::string& name) {
    const auto known = ids_.find(name);
    return known != ids_.end() ? known->second : ids_.emplace(name, rules_.add()).first->second;
  }

  std::string name() {
    const std::size_t begin = position_;
    while (position_ < text_.size() && is_name_character(text_[position_])) ++position_;
    return std::string(text_.substr(begin, position_ - begin));
  }

  /// Returns whether the beginning of a rule comes next.
  bool at_definition() {
    const std::size_t begin = position_;
    const bool is_named = !name().empty();
    skip_space();
    const bool result = is_named && text_.substr(position_).starts_with("::=");
    position_ = begin;
    return result;
  }

  void definition() {
    const std::string defined = name();
    skip_space();
    if (defined.empty() || !take("::=")) {
      refuse("a rule is written `name ::= ...`");
      return;
    }
    const RuleId id = id_of(defined);
    if (rules_.bodies()[static_cast<std::size_t>(id)] != nullptr) {
      refuse("rule " + defined + " is defined twice");
      return;
    }
    Expr body = alternatives(0);
    if (next_is(')')) refuse("a ) without its (");
    rules_.set(id, std::move(body));
  }

  Expr alternatives(int depth) {
    if (depth > kMaxDepth) return refuse("groups are nested deeper than " + std::to_string(kMaxDepth));
    std::vector<Expr> all;
    do {
      all.push_back(elements(depth));
      skip_space();
    } while (take("|"));
    return choice(std::move(all));
  }

  Expr elements(int depth) {
    std::vector<Expr> all;
    for (skip_space(); !at_end() && !next_is('|') && !next_is(')'); skip_space()) {
      if (at_definition()) break;
      all.push_back(repeated(element(depth)));
    }
    return all.empty() ? empty() : sequence(std::move(all));
  }

  Expr element(int depth) {
    if (take("(")) {
      if (next_is('=')) return refuse("look-ahead is not supported");
      Expr inside = alternatives(depth + 1);
      if (!take(")")) return refuse("a ( without its )");
      return inside;
    }
    if (next_is('"')) return literal_text();
    if (next_is('[')) return bracket();
    if (take(".")) return characters(complement({}));  // as in llama.cpp, a line end too
    const std::string referred = name();
    if (referred.empty()) return refuse(std::string("`") + text_[position_] + "` does not begin an element");
    if (next_is('(')) return refuse(referred + "(...) is not supported");
    return rule(id_of(referred));
  }

  Expr repeated(Expr part) {
    for (skip_space(); !at_end();) {
      if (take("*")) {
        part = repeat(std::move(part), 0, kUnbounded);
      } else if (take("+")) {
        part = repeat(std::move(part), 1, kUnbounded);
      } else if (take("?")) {
        part = repeat(std::move(part), 0, 1);
      } else if (next_is('{')) {
        return bounded(std::move(part));
      } else {
        return part;
      }
      if (next_is('*') || next_is('+') || next_is('?') || next_is('{')) return refuse("a quantifier of a quantifier");
    }
    return part;
  }

  Expr bounded(Expr part) {
    take("{");
    const auto min = number();
    std::optional<std::int64_t> max = min;
    skip_space();
    if (take(",")) {
      skip_space();
      max = next_is('}') ? std::optional<std::int64_t>(kUnbounded) : number();
      skip_space();
    }
    if (!min || !max || !take("}")) return refuse("a repetition is written {m}, {m,} or {m,n}");
    if (*min > kMaxRepetitions) {
      return refuse("more than " + std::to_string(kMaxRepetitions) + " repetitions are not supported");
    }
    if (*max > kMaxRepetitions) max = kUnbounded;  // no text shows the difference
    if (*max != kUnbounded && *max < *min) return refuse("the bounds of a repetition are swapped");
    return repeat(std::move(part), static_cast<std::int32_t>(*min), static_cast<std::int32_t>(*max));
  }

  std::optional<std::int64_t> number() {
    skip_space();
    std::int64_t value = 0;
    const std::size_t begin = position_;
    while (!at_end() && text_[position_] >= '0' && text_[position_] <= '9') {
      value = std::min<std::int64_t>(value * 10 + (text_[position_++] - '0'), kMaxRepetitions + 1);
    }
    return position_ == begin ? std::nullopt : std::optional(value);
  }

  Expr literal_text() {
    begin_ = position_;
    take("\"");
    std::string text;
    while (!next_is('"')) {
      const auto character = one_character();
      if (!character) return nothing();
      if (*character == 0) return refuse("a literal with the character 0, which no text has");
      text::append_utf8(text, *character);
    }
    take("\"");
    return literal(text);
  }

  Expr bracket() {
    begin_ = position_;
    take("[");
    const bool is_negated = take("^");
    CharacterRanges ranges;
    while (!next_is(']')) {
      const auto first = one_character();
      if (!first) return nothing();
      char32_t last = *first;
      const std::string_view rest = text_.substr(position_);
      if (rest.starts_with("-") && rest.size() > 1 && rest[1] != ']') {
        take("-");
        const auto end = one_character();
        if (!end) return nothing();
        last = *end;
        if (last < *first) return refuse("a range whose ends are swapped");
      }
      ranges.push_back({*first, last});
    }
    take("]");
    return characters(is_negated ? complement(ranges) : std::move(ranges));
  }

  /// Reads a character of a literal or a class.
  std::optional<char32_t> one_character() {
    if (at_end()) {
      position_ = begin_;  // the line of the message
      return refuse("a literal or class without its end"), std::nullopt;
    }
    if (!take("\\")) return text::next_character(text_, position_);
    if (at_end()) return refuse("a \\ at the end"), std::nullopt;
    const char letter = text_[position_];
    if (static_cast<unsigned char>(letter) >= 0x80) return refuse("an escape that is not known"), std::nullopt;
    ++position_;
    switch (letter) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '0':
        return character(0);
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        break;
    }
    if (is_name_character(letter) && letter != '-' && letter != '_') {
      return refuse(std::string("the escape \\") + letter + " is not supported"), std::nullopt;
    }
    return static_cast<char32_t>(letter);
  }

  std::optional<char32_t> hex(int num_digits) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const char c = at_end() ? '\0' : text_[position_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return refuse("an unfinished escape"), std::nullopt;
      value = value * 16 + static_cast<char32_t>(digit);
      ++position_;
    }
    return character(value);
  }

  std::optional<char32_t> character(char32_t value) {
    const bool is_character = value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
    if (!is_character) return refuse("an escape that is not a character"), std::nullopt;
    return value;
  }

  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t begin_ = 0;  // of the literal or class that is read
  Rules rules_;
  std::map<std::string, RuleId> ids_;
  std::optional<Error> error_;
};

}  // namespace

Result<Rules> ebnf_rules(std::string_view grammar) {
  return Parser(grammar).parse();
}

}  // namespace pagoda::grammar
