#pragma once

#include <string>

#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {

/// `not`, `if`, `dependentRequired` or `dependentSchemas` of a schema as anyOf, of which each accepts what the keyword
/// does, or less. Error: what is negated has keywords of which that is not known.
Result<Schema> rewritten_keyword(const std::string& keyword, const SchemaAt& schema, const SchemaDocument& document);

/// Of schemas of which exactly one is to hold: one for each, that the others do not accept.
Schema told_apart(const Schema& schemas);

}  // namespace pagoda::grammar
