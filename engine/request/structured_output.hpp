#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pagoda {

/// Maximum length in bytes of all texts of a StructuredOutput together.
inline constexpr std::size_t kMaxStructuredOutputBytes = 256 << 10;

/// The kind of constraint that a request's text must fulfil.
enum class GrammarKind : std::uint8_t {
  json_schema,     ///< JSON that the schema accepts
  json_object,     ///< any JSON object
  regex,           ///< text that the whole regex matches
  choice,          ///< one of several texts
  grammar,         ///< a context-free grammar in EBNF as llama.cpp (GBNF) and XGrammar write it
  structural_tag,  ///< free text with parts that must match grammars
};
constexpr GrammarKind last_value(GrammarKind) {
  return GrammarKind::structural_tag;
}

/// A grammar as a client states it. engine/grammar defines its meaning and its limits.
struct StructuredOutput {
  GrammarKind kind = GrammarKind::json_object;
  std::string text;                  ///< the schema or structural tag as JSON, the regex, or the grammar
  std::vector<std::string> choices;  ///< texts of GrammarKind::choice

  std::size_t num_bytes() const {
    std::size_t bytes = text.size();
    for (const std::string& choice : choices) bytes += choice.size();
    return bytes;
  }

  bool operator==(const StructuredOutput&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.kind, self.text, self.choices); }
};

}  // namespace pagoda
