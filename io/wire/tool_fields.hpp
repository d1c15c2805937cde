#pragma once

#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/tools.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// A tool of a request.
struct GivenTool {
  std::string where;  ///< place in the body, for example "tools[3]"
  std::string name;
  /// Function in the form that templates expect: name, parameters, and the optional members that were given.
  Json function = Json::object();
};

/// Passes the tools to the template and sets in `use` which of them may be called: those that `allowed` names, or all
/// if it is empty. Refuses, by place: names that are not 1 to 128 of A-Z a-z 0-9 _ . -, repeated names, and allowed
/// tools that are not in the list.
void set_tools(FieldReader& fields, const std::vector<GivenTool>& tools, chat::ToolChoice choice,
               const std::vector<std::string>& allowed, chat::ChatInput& chat, chat::ToolUse& use);

/// Reads OpenAI's tools, tool_choice and parallel_tool_calls. `is_flat`: whether name and parameters stand beside the
/// type, as in /v1/responses, and not in a `function`.
void read_tool_use(FieldReader& fields, bool is_flat, chat::ChatInput& chat, chat::ToolUse& use);

/// Reads only OpenAI's tools, for APIs without tool_choice. The choice in `use` becomes automatic.
void read_tools(FieldReader& fields, chat::ChatInput& chat, chat::ToolUse& use);
/// Reads OpenAI's tools for a route that only makes a prompt.
void read_tools(FieldReader& fields, chat::ChatInput& chat);

}  // namespace pagoda::wire
