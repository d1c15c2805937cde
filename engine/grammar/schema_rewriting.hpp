#pragma once

#include <string>

#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {

/// Returns `not`, `if`, `dependentRequired` or `dependentSchemas` of a schema, rewritten with anyOf. Each alternative
/// accepts what the keyword accepts, or less. Takes from the budget what it copies several times. Errors: a negated
/// schema has keywords for which this is not known; the schema is too large.
Result<Schema> rewritten_keyword(const std::string& keyword, const SchemaAt& schema, const SchemaDocument& document,
                                 SchemaBudget& budget);

/// Returns, for schemas of which exactly one must hold, one schema for each, which the others do not accept.
Schema told_apart(const Schema& schemas);

}  // namespace pagoda::grammar
