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
    regex,     ///< the text between the slashes
    range,     ///< characters from `first` to `last`
    name,      ///< name of a rule or a terminal
    sequence,  ///< all of its parts
    choice,    ///< one of its parts
    repeat,    ///< its part from `min` to `max` times
    both,      ///< a text that all of its parts match
    json,      ///< JSON that the schema `text` accepts
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
  bool is_lazy = false;                  ///< llguidance: whether it ends as soon as it can
  std::int32_t max_tokens = kUnbounded;  ///< llguidance: it ends after so many tokens
  /// Llguidance: the text that ends it, and does not occur inside it; at most one.
  std::vector<LarkNode> stop = {};
  std::int64_t line = 0;

  bool ends_by_itself() const { return is_lazy || max_tokens != kUnbounded || !stop.empty(); }
};

struct LarkGrammar {
  std::map<std::string, LarkDefinition> definitions;  ///< rules and, with names in capitals, terminals
  std::map<std::string, std::string> imports;         ///< names here, with their names in Lark's library `common`
  std::vector<LarkNode> ignored;                      ///< texts that may follow each terminal
  bool ignores_first = false;                         ///< whether they may also come before the first terminal
};

/// Returns whether the name is a terminal's.
bool is_lark_terminal(std::string_view name);

/// Returns whether a grammar is written in Lark's syntax rather than as EBNF: its first statement is `name: ...` or a
/// directive.
bool is_lark(std::string_view grammar);

/// Reads Lark's syntax with llguidance's additions. Error: invalid_request with the line, for a grammar that is wrong
/// or not supported.
Result<LarkGrammar> parse_lark(std::string_view grammar);

}  // namespace pagoda::grammar
