#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// An expression of a Lark grammar.
struct LarkNode {
  enum class Kind : std::uint8_t {
    text,      ///< a literal; `flags` may have an i
    regex,     ///< between its slashes
    range,     ///< characters from `first` to `last`
    name,      ///< of a rule or a terminal
    sequence,  ///< all of its parts
    choice,    ///< one of them
    repeat,    ///< its part from `min` to `max` times
    both,      ///< a text that all of its parts have
    json,      ///< JSON by the schema `text`
  };

  Kind kind = Kind::sequence;
  std::string text = {};
  std::string flags = {};
  CharacterRange range = {};
  std::vector<LarkNode> parts = {};
  std::int32_t min = 0;
  std::int32_t max = 0;
  std::int64_t line = 0;
};

struct LarkDefinition {
  LarkNode body;
  bool is_lazy = false;                  ///< llguidance: it ends as soon as it can
  std::int32_t max_tokens = kUnbounded;  ///< llguidance: behind so many tokens it is over
  std::vector<LarkNode> stop = {};       ///< llguidance: what ends it, of which it has none inside; one at most
  std::int64_t line = 0;

  bool ends_by_itself() const { return is_lazy || max_tokens != kUnbounded || !stop.empty(); }
};

struct LarkGrammar {
  std::map<std::string, LarkDefinition> definitions;  ///< of rules and, in capitals, terminals
  std::map<std::string, std::string> imports;         ///< names here, of those in Lark's library `common`
  std::vector<LarkNode> ignored;                      ///< what may come behind each terminal
  bool ignores_first = false;                         ///< and before the first one
};

/// Whether the name is a terminal's.
bool is_lark_terminal(std::string_view name);

/// Whether a grammar is written in Lark's syntax rather than as EBNF: its first statement is `name: ...` or a
/// directive.
bool is_lark(std::string_view grammar);

/// Reads Lark's syntax with llguidance's additions. Error: invalid_request with the line, for what is wrong or is not
/// supported.
Result<LarkGrammar> parse_lark(std::string_view grammar);

}  // namespace pagoda::grammar
