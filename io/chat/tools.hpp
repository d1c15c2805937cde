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
  nlohmann::ordered_json parameters;  ///< a JSON schema of an object
};

enum class ToolChoice : std::uint8_t {
  none,       ///< no calls
  automatic,  ///< as the model likes
  required,   ///< at least one call
};

/// What calls a request allows.
struct ToolUse {
  std::vector<Tool> tools;  ///< those that may be called: of a named one, that one
  ToolChoice choice = ToolChoice::none;
  bool parallel = true;  ///< an answer may have several calls
};

/// The schema of an argument that is written as it is where arguments are tagged, rather than as JSON, because it takes
/// texts only: `property`, or what it refers to in `parameters`. Else null.
const nlohmann::ordered_json* text_schema(const nlohmann::ordered_json& parameters,
                                          const nlohmann::ordered_json& property);

/// Whether an argument of that name is such a one.
bool is_text_argument(const nlohmann::ordered_json& parameters, std::string_view key);

}  // namespace pagoda::chat
