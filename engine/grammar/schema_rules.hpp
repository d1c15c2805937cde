#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns rules for JSON texts that a JSON Schema (draft 2020-12) accepts: for all, or only for some of them.
///
/// The rules leave out: other orders of properties than the schema's; properties and items that a schema with
/// `properties` or `prefixItems` does not name (use additionalProperties or items to have them); exponents and digits
/// without end; other ways to write a constant.
///
/// Error: invalid_request that names the part of the schema (a JSON pointer) and the keyword that is not supported,
/// wrong or too large. docs/http.md has the table of keywords.
Result<Rules> schema_rules(std::string_view schema);

/// Returns such rules as an expression among other rules. `json` must belong to `rules`; it determines the parts of
/// JSON texts and how they are written.
Result<Expr> schema_expression(std::string_view schema, Rules& rules, JsonRules& json);

/// Returns the characters of the strings that the schema accepts, without quotes and escapes, and without texts in
/// which one of `excluded` occurs. Errors: as schema_rules; a schema that accepts other values than strings.
Result<Expr> schema_text_expression(std::string_view schema, const std::vector<std::string>& excluded);

}  // namespace pagoda::grammar
