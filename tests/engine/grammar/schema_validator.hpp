#pragma once

#include <nlohmann/json.hpp>

namespace pagoda::test {

/// Returns whether the schema accepts the value. Written from the specification, for the keywords that grammars
/// support, except `format` and $ref to other documents.
bool is_valid(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root);

}  // namespace pagoda::test
