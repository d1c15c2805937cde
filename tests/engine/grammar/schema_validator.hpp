#pragma once

#include <nlohmann/json.hpp>

namespace pagoda::test {

/// Does the schema accept the value? Written down from the specification, for the keywords that grammars know: `format`
/// and $ref to other documents are left out.
bool is_valid(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root);

}  // namespace pagoda::test
