#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// The JSON texts that a JSON Schema (draft 2020-12) accepts, or some of them: every text of the rules is accepted.
///
/// Left out of what is accepted: other orders of properties than the schema's; properties and items that a schema with
/// `properties` or `prefixItems` does not name (say additionalProperties or items to have them); exponents and digits
/// without end; other ways to write a constant.
///
/// Error: invalid_request that names the part of the schema (a JSON pointer) and the keyword that is not supported, not
/// right or too large. docs/http.md has the table of keywords.
Result<Rules> schema_rules(std::string_view schema);

/// The same as an expression among other rules; `json` is of these. What the texts of JSON are made of, and how they
/// are written, is `json`'s.
Result<Expr> schema_expression(std::string_view schema, Rules& rules, JsonRules& json);

/// The characters of the strings that the schema accepts, without quotes and escapes, and without texts in which one of
/// `excluded` occurs. Error: as above, and where it accepts other values than strings.
Result<Expr> schema_text_expression(std::string_view schema, const std::vector<std::string>& excluded);

}  // namespace pagoda::grammar
