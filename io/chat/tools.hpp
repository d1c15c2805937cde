#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace pagoda::chat {

/// A function that the model may call.
struct Tool {
  std::string name;
  nlohmann::ordered_json parameters;  ///< JSON schema of an object
};

enum class ToolChoice : std::uint8_t {
  none,       ///< no calls
  automatic,  ///< the model decides
  required,   ///< at least one call
};

/// Calls that a request allows.
struct ToolUse {
  std::vector<Tool> tools;  ///< tools that may be called; for a named tool only this one
  ToolChoice choice = ToolChoice::none;
  bool parallel = true;  ///< whether an answer may have several calls
};

/// Returns the schema in `root` that `schema` refers to with $ref, directly or in turn, or `schema` itself without
/// $ref. Null if there is no such schema.
const nlohmann::ordered_json* referred_schema(const nlohmann::ordered_json& root, const nlohmann::ordered_json& schema);

/// Returns the schema of an argument that is written as unquoted text where arguments are tagged, because it takes
/// strings only: `property`, or the schema in `parameters` that it refers to. Null for an argument that is JSON.
const nlohmann::ordered_json* text_schema(const nlohmann::ordered_json& parameters,
                                          const nlohmann::ordered_json& property);

/// Returns whether the argument of this name is written as unquoted text.
bool is_text_argument(const nlohmann::ordered_json& parameters, std::string_view key);

}  // namespace pagoda::chat
