#include "tests/engine/grammar/xgrammar_text.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/unicode.hpp"

namespace pagoda::test {
namespace {

using namespace grammar;

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
  explicit Writer(const std::vector<bool>& rule_ends) : rule_ends_(rule_ends) {}

  void write_rule(std::size_t id, const Expression& body) {
    write_name(id);
    out += " ::= ";
    write(body);
    out += '\n';
    write_automata();
  }

  std::string out;

 private:
  void write_name(std::size_t id) { out += id == 0 ? "root" : "r" + std::to_string(id); }

  void write(const Expression& e) {
    using Kind = Expression::Kind;
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
      case Kind::automaton:
        out += "a" + std::to_string(num_automata_) + "_0_0";
        pending_.emplace_back(num_automata_++, e.automaton.get());
        break;
      case Kind::assertion:
        break;
    }
  }

  /// Writes one rule for each state and each count that matters in it. Expands counts, because they are few here.
  void write_automata() {
    for (const auto& [id, automaton] : std::exchange(pending_, {})) {
      const std::int32_t last = std::max(automaton->min_length, automaton->max_length);
      for (std::size_t state = 0; state < automaton->states.size(); ++state) {
        for (std::int32_t count = 0; count <= last; ++count) write_state(id, *automaton, state, count, last);
      }
    }
  }

  /// Returns whether a text may go on from the state after `count` characters.
  static bool has_room(const CharacterAutomaton& automaton, std::size_t state, std::int32_t count) {
    std::vector<bool> reached(automaton.states.size());
    reached[state] = true;
    for (std::int32_t length = count; automaton.max_length == kUnbounded || length <= automaton.max_length; ++length) {
      for (std::size_t i = 0; i < reached.size(); ++i) {
        if (reached[i] && automaton.states[i].accepts) return true;
      }
      std::vector<bool> next(reached.size());
      for (std::size_t i = 0; i < reached.size(); ++i) {
        for (const auto& edge : automaton.states[i].edges) next[edge.target] = next[edge.target] || reached[i];
      }
      reached = std::move(next);
    }
    return false;
  }

  void write_state(std::size_t id, const CharacterAutomaton& automaton, std::size_t state, std::int32_t count,
                   std::int32_t last) {
    const auto name = [&](std::size_t of, std::int32_t at) {
      return "a" + std::to_string(id) + "_" + std::to_string(of) + "_" + std::to_string(at);
    };
    std::vector<std::string> parts;
    std::string before = std::exchange(out, {});
    if (automaton.states[state].accepts && count >= automaton.min_length) parts.emplace_back("\"\"");
    const std::int32_t next = automaton.max_length == kUnbounded ? std::min(count + 1, last) : count + 1;
    for (const auto& edge : automaton.states[state].edges) {
      if (!has_room(automaton, edge.target, next)) continue;
      if (edge.characters) {
        write(*edge.characters);
        parts.push_back(std::exchange(out, {}) + " " + name(edge.target, next));
      }
      if (edge.escapes < 0) continue;
      out = "\"\\\\\" ";
      write_name(static_cast<std::size_t>(edge.escapes));
      parts.push_back(std::exchange(out, {}) + " " + name(edge.target, next));
    }
    out = std::move(before) + name(state, count) + " ::= ";
    for (std::size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? " | " : "") + parts[i];
    out += parts.empty() ? "\"\"\n" : "\n";  // a rule without a text is not named
  }

  void write_free_text(const Expression& e) {
    std::vector<std::string> excluded = e.excluded;
    out += "TagDispatch(";
    for (const auto& [text, rule] : e.triggers) {
      if (!rule_ends_[static_cast<std::size_t>(rule)]) {
        excluded.push_back(text);  // no text could follow it
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
      if (!ends(*part, rule_ends_)) continue;  // in a choice: only parts that can be completed
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
    const bool is_class =
        e.parts.front()->kind == Expression::Kind::characters;  // a class is repeated without a rule of its own
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
  std::vector<std::pair<std::size_t, const CharacterAutomaton*>> pending_;
  std::size_t num_automata_ = 0;
};

}  // namespace

std::string xgrammar_text(const Rules& rules) {
  const std::vector<bool> rule_ends = rules_that_end(rules);
  Writer writer(rule_ends);
  for (std::size_t id = 0; id < rules.bodies().size(); ++id) {
    if (rule_ends[id]) writer.write_rule(id, *rules.bodies()[id]);
  }
  return std::move(writer.out);
}

}  // namespace pagoda::test
