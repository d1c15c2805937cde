#pragma once

#include <optional>
#include <string>

#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// The strings that a flattened schema accepts.
Expr string_expression(const SchemaAt& schema, SchemaRules& converter);

/// What is between the quotes of these strings. Nothing after a refusal.
std::optional<TextLanguage> string_language(const SchemaAt& schema, SchemaRules& converter);

/// The texts in which a pattern is found. Nothing after a refusal of `path`.
std::optional<TextLanguage> pattern_language(std::string_view regex, CharacterClasses classes, const std::string& path,
                                             SchemaRules& converter);

/// A string in which a pattern is found, with its quotes.
Expr string_with_pattern(std::string_view regex, const std::string& path, SchemaRules& converter);

/// A name of a property, with its quotes, among those of a language.
Expr string_in(const TextLanguage& language, SchemaRules& converter);

}  // namespace pagoda::grammar
