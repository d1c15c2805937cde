#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pagoda {

/// The most that a StructuredOutput's texts may have together.
inline constexpr std::size_t kMaxStructuredOutputBytes = 256 << 10;

/// What a request's text is held to while it is sampled.
enum class GrammarKind : std::uint8_t {
  json_schema,     ///< JSON that the schema accepts
  json_object,     ///< any JSON object
  regex,           ///< text that the whole regex matches
  choice,          ///< one of several texts
  grammar,         ///< a context-free grammar in EBNF as llama.cpp (GBNF) and XGrammar write it
  structural_tag,  ///< free text with parts that are held to grammars
};
constexpr GrammarKind last_value(GrammarKind) {
  return GrammarKind::structural_tag;
}

/// A grammar as a client states it. Its meaning and its limits are engine/grammar's.
struct StructuredOutput {
  GrammarKind kind = GrammarKind::json_object;
  std::string text;                  ///< the schema or structural tag as JSON, the regex, or the grammar
  std::vector<std::string> choices;  ///< of choice

  std::size_t num_bytes() const {
    std::size_t bytes = text.size();
    for (const std::string& choice : choices) bytes += choice.size();
    return bytes;
  }

  bool operator==(const StructuredOutput&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.kind, self.text, self.choices); }
};

}  // namespace pagoda
