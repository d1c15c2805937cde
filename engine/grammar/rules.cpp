#include "engine/grammar/rules.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;
constexpr char32_t kLastCharacter = 0x10FFFF;
/// What there is, in order and apart.
constexpr std::array<CharacterRange, 2> kAllCharacters{
    {{1, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCharacter}}};

Expr make(Expression expression) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // and beyond
  for (const Expr& part : expression.parts) expression.size = std::min(expression.size + part->size, kMost);
  return std::make_shared<const Expression>(std::move(expression));
}

using Kind = Expression::Kind;

/// Whether an expression can be finished, given the rules that can.
bool ends(const Expression& e, const std::vector<bool>& rule_ends) {
  switch (e.kind) {
    case Kind::literal:
      return true;
    case Kind::characters:
      return !e.ranges.empty();
    case Kind::sequence:
      return std::ranges::all_of(e.parts, [&](const Expr& part) { return ends(*part, rule_ends); });
    case Kind::choice:
      return std::ranges::any_of(e.parts, [&](const Expr& part) { return ends(*part, rule_ends); });
    case Kind::repeat:
      return e.min == 0 || ends(*e.parts.front(), rule_ends);
    case Kind::rule:
      return rule_ends[static_cast<std::size_t>(e.rule)];
    case Kind::free_text:
      return true;
  }
  return false;
}

/// Rules that name `e`'s.
void list_rules(const Expression& e, RuleId from, std::vector<std::vector<RuleId>>& named_by) {
  if (e.kind == Kind::rule) named_by[static_cast<std::size_t>(e.rule)].push_back(from);
  for (const Expr& part : e.parts) list_rules(*part, from, named_by);
}

/// Each rule is looked at again only when one that it names turns out to end.
std::vector<bool> rules_that_end(std::span<const Expr> bodies) {
  std::vector<std::vector<RuleId>> named_by(bodies.size());
  std::vector<RuleId> pending;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    list_rules(*bodies[i], static_cast<RuleId>(i), named_by);
    pending.push_back(static_cast<RuleId>(i));
  }
  std::vector<bool> found(bodies.size());
  while (!pending.empty()) {
    const auto id = static_cast<std::size_t>(pending.back());
    pending.pop_back();
    if (found[id] || !ends(*bodies[id], found)) continue;
    found[id] = true;
    pending.insert(pending.end(), named_by[id].begin(), named_by[id].end());
  }
  return found;
}

/// What counts characters takes in what comes behind: x{1,3} y becomes x r, r being y | x s, and s being y | x y. So
/// what tokens of many characters do is decided within rules, once for all, and not where they are used, for each mask.
class TailTaker {
 public:
  explicit TailTaker(Rules& rules) : rules_(rules) {}

  Expr take(const Expr& e) {
    switch (e->kind) {
      case Kind::sequence:
        return take_sequence(e);
      case Kind::choice: {
        std::vector<Expr> parts;
        for (const Expr& part : e->parts) parts.push_back(take(part));
        return parts == e->parts ? e : choice(std::move(parts));
      }
      case Kind::repeat: {
        Expr part = take(e->parts.front());
        return part == e->parts.front() ? e : repeat(std::move(part), e->min, e->max);
      }
      case Kind::literal:
      case Kind::characters:
      case Kind::rule:
      case Kind::free_text:
        return e;
    }
    return e;
  }

 private:
  static constexpr std::int32_t kMostCounted = 128;  ///< more is fast as it is
  static constexpr int kMostRules = 20'000;

  static void flatten(const Expr& e, std::vector<Expr>& parts) {
    if (e->kind != Kind::sequence) return parts.push_back(e);
    for (const Expr& part : e->parts) flatten(part, parts);
  }

  bool counts(const Expression& e) const {
    return e.kind == Kind::repeat && e.parts.front()->kind == Kind::characters && e.max > e.min &&
           e.max <= kMostCounted && num_rules_ + e.max <= kMostRules;
  }

  Expr take_sequence(const Expr& e) {
    std::vector<Expr> parts;
    flatten(e, parts);
    std::vector<Expr> tail;  // from its end
    for (std::size_t i = parts.size(); i-- > 0;) {
      const Expr part = take(parts[i]);
      if (tail.empty() || !counts(*part)) {
        tail.push_back(part);
        continue;
      }
      const Expr& character = part->parts.front();
      const Expr behind = add(sequence({tail.rbegin(), tail.rend()}));
      Expr rest = behind;
      for (std::int32_t count = part->max; count-- > part->min;) {
        rest = add(choice({behind, sequence({character, rest})}));
      }
      tail.assign(1, rest);
      if (part->min > 0) tail.push_back(repeat(character, part->min, part->min));
    }
    std::ranges::reverse(tail);
    return tail == e->parts ? e : sequence(std::move(tail));
  }

  Expr add(Expr body) {
    ++num_rules_;
    return rule(rules_.add(std::move(body)));
  }

  Rules& rules_;
  int num_rules_ = 0;
};

void append_hex(std::string& out, char32_t character) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const bool is_long = character > 0xFFFF;
  out += is_long ? "\\U" : "\\u";
  for (int shift = is_long ? 28 : 12; shift >= 0; shift -= 4) out += kDigits[(character >> shift) & 0xF];
}

void append_character(std::string& out, char32_t character) {
  const bool is_plain = character == ' ' || character == '_' || (character >= '0' && character <= '9') ||
                        (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
  if (is_plain) {
    out += static_cast<char>(character);
  } else {
    append_hex(out, character);
  }
}

void append_literal(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t position = 0; position < text.size();) append_character(out, text::next_character(text, position));
  out += '"';
}

class Writer {
 public:
  Writer(const std::vector<bool>& rule_ends, std::size_t max_bytes) : rule_ends_(rule_ends), max_bytes_(max_bytes) {}

  void write_rule(std::size_t id, const Expression& body) {
    write_name(id);
    out += " ::= ";
    write(body);
    out += '\n';
  }

  std::string out;

 private:
  void write_name(std::size_t id) { out += id == 0 ? "root" : "r" + std::to_string(id); }

  void write(const Expression& e) {
    if (out.size() > max_bytes_) return;
    switch (e.kind) {
      case Kind::literal:
        append_literal(out, e.text);
        break;
      case Kind::characters:
        out += '[';
        for (const auto [first, last] : e.ranges) {
          append_character(out, first);
          if (last == first) continue;
          out += '-';
          append_character(out, last);
        }
        out += ']';
        break;
      case Kind::sequence:
        write_parts(e, " ");
        break;
      case Kind::choice:
        write_parts(e, " | ");
        break;
      case Kind::repeat:
        write_repeat(e);
        break;
      case Kind::rule:
        write_name(static_cast<std::size_t>(e.rule));
        break;
      case Kind::free_text:
        write_free_text(e);
        break;
    }
  }

  void write_free_text(const Expression& e) {
    std::vector<std::string> excluded = e.excluded;
    out += "TagDispatch(";
    for (const auto& [text, rule] : e.triggers) {
      if (!rule_ends_[static_cast<std::size_t>(rule)]) {
        excluded.push_back(text);  // nothing could follow it
        continue;
      }
      out += '(';
      append_literal(out, text);
      out += ", ";
      write_name(static_cast<std::size_t>(rule));
      out += "), ";
    }
    out += e.goes_on ? "loop_after_dispatch=true" : "loop_after_dispatch=false";
    if (!excluded.empty()) {
      out += ", excludes=(";
      for (std::size_t i = 0; i < excluded.size(); ++i) {
        if (i > 0) out += ", ";
        append_literal(out, excluded[i]);
      }
      out += ')';
    }
    out += ')';
  }

  void write_parts(const Expression& e, std::string_view between) {
    bool is_first = true;
    out += '(';
    for (const Expr& part : e.parts) {
      if (!ends(*part, rule_ends_)) continue;  // of a choice: what comes here can be finished as a whole
      if (!is_first) out += between;
      is_first = false;
      write(*part);
    }
    if (is_first) out += "\"\"";
    out += ')';
  }

  void write_repeat(const Expression& e) {
    if (e.max == 0 || !ends(*e.parts.front(), rule_ends_)) {
      out += "\"\"";
      return;
    }
    const bool is_class = e.parts.front()->kind == Kind::characters;  // repeated by itself it needs no rule of its own
    if (!is_class) out += '(';
    write(*e.parts.front());
    if (!is_class) out += ')';
    if (e.max == kUnbounded && e.min <= 1) {
      out += e.min == 0 ? "*" : "+";
    } else if (e.min == 0 && e.max == 1) {
      out += '?';
    } else {
      out += "{" + std::to_string(e.min) + "," + (e.max == kUnbounded ? "" : std::to_string(e.max)) + "}";
    }
  }

  const std::vector<bool>& rule_ends_;
  std::size_t max_bytes_;
};

}  // namespace

CharacterRanges normalized(CharacterRanges ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  CharacterRanges joined;
  for (const CharacterRange& range : ranges) {
    if (range.last < range.first) continue;
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  CharacterRanges result;
  for (const CharacterRange& all : kAllCharacters) {
    for (const CharacterRange& range : joined) {
      const CharacterRange both{std::max(all.first, range.first), std::min(all.last, range.last)};
      if (both.first <= both.last) result.push_back(both);
    }
  }
  return result;
}

CharacterRanges complement(const CharacterRanges& ranges) {
  CharacterRanges result;
  char32_t next = 1;
  for (const CharacterRange& range : normalized(ranges)) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) result.push_back({next, kLastCharacter});
  return normalized(std::move(result));
}

CharacterRanges intersection(const CharacterRanges& a, const CharacterRanges& b) {
  CharacterRanges outside = complement(a);
  const CharacterRanges other = complement(b);
  outside.insert(outside.end(), other.begin(), other.end());
  return complement(outside);
}

Expr literal(std::string_view text) {
  return make({.kind = Kind::literal, .text = std::string(text)});
}

Expr characters(CharacterRanges ranges) {
  return make({.kind = Kind::characters, .ranges = normalized(std::move(ranges))});
}

Expr one_of(std::string_view ascii) {
  CharacterRanges ranges;
  for (const char c : ascii) ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return characters(std::move(ranges));
}

Expr sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::sequence, .parts = std::move(parts)});
}

Expr choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::choice, .parts = std::move(parts)});
}

Expr repeat(Expr part, std::int32_t min, std::int32_t max) {
  if (min == 1 && max == 1) return part;
  return make({.kind = Kind::repeat, .parts = {std::move(part)}, .min = min, .max = max});
}

Expr optional(Expr part) {
  return repeat(std::move(part), 0, 1);
}

Expr rule(RuleId id) {
  return make({.kind = Kind::rule, .rule = id});
}

Expr empty() {
  return literal({});
}

Expr nothing() {
  return choice({});
}

Expr Rules::free_text(std::vector<std::string> excluded, std::vector<Trigger> triggers, bool goes_on) {
  if (excluded.empty() && triggers.empty()) return repeat(characters(complement({})), 0, kUnbounded);
  const auto size = static_cast<std::int64_t>(1 + excluded.size() + triggers.size());
  return rule(add(make({.kind = Kind::free_text,
                        .triggers = std::move(triggers),
                        .excluded = std::move(excluded),
                        .goes_on = goes_on,
                        .size = size})));
}

Expr Rules::include(const Rules& other) {
  const auto offset = static_cast<RuleId>(bodies_.size());
  std::unordered_map<const Expression*, Expr> moved;
  const auto move = [&](const auto& self, const Expr& e) -> Expr {
    const auto [known, is_new] = moved.try_emplace(e.get());
    if (!is_new) return known->second;
    Expression copy = *e;
    copy.rule += offset;
    for (Trigger& trigger : copy.triggers) trigger.rule += offset;
    for (Expr& part : copy.parts) part = self(self, part);
    return moved[e.get()] = std::make_shared<const Expression>(std::move(copy));
  };
  for (const Expr& body : other.bodies_) add(move(move, body));
  return rule(offset);
}

std::optional<std::string> Rules::to_ebnf(std::size_t max_bytes) const {
  Rules taken = *this;
  TailTaker taker(taken);
  for (std::size_t id = 0; id < bodies_.size(); ++id) taken.bodies_[id] = taker.take(bodies_[id]);
  return taken.write(max_bytes);
}

std::optional<std::string> Rules::write(std::size_t max_bytes) const {
  const std::vector<bool> rule_ends = rules_that_end(bodies_);
  if (!rule_ends.front()) return std::nullopt;
  Writer writer(rule_ends, max_bytes);
  for (std::size_t id = 0; id < bodies_.size(); ++id) {
    if (rule_ends[id]) writer.write_rule(id, *bodies_[id]);
  }
  return std::move(writer.out);
}

}  // namespace pagoda::grammar
