#pragma once

#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {

/// Return the integers, and the numbers, that a flattened schema accepts.
Expr integer_expression(const SchemaAt& schema, SchemaRules& converter);
Expr number_expression(const SchemaAt& schema, SchemaRules& converter);

}  // namespace pagoda::grammar
