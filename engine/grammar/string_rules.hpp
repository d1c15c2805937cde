#pragma once

#include <optional>
#include <string>

#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// Returns the strings that a flattened schema accepts.
Expr string_expression(const SchemaAt& schema, SchemaRules& converter);

/// Returns the texts between the quotes of these strings. Nothing after a refusal.
std::optional<TextLanguage> string_language(const SchemaAt& schema, SchemaRules& converter);

/// Returns the texts in which a pattern is found. Nothing after a refusal of `path`.
std::optional<TextLanguage> pattern_language(std::string_view regex, CharacterClasses classes, const std::string& path,
                                             SchemaRules& converter);

/// Returns a string in which a pattern is found, with its quotes.
Expr string_with_pattern(std::string_view regex, const std::string& path, SchemaRules& converter);

/// Returns a string whose text is in the language, with its quotes.
Expr string_in(const TextLanguage& language, SchemaRules& converter);

}  // namespace pagoda::grammar
