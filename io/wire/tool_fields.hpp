#pragma once

#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/tools.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// A tool as an API writes it, with where it stands: "tools[3]".
struct GivenTool {
  std::string where;
  std::string name;
  Json function = Json::object();  ///< as templates expect it: name, parameters, and what else is given
};

/// Hands the tools to the template, and says in `use` which may be called. `named` is
/// the one that must be, and once, or "". Refused, by place: names that are not 1 to 128 of A-Z a-z 0-9 _ . -, or come
/// twice; parameters that are no object; a named tool that there is not.
void set_tools(FieldReader& fields, const std::vector<GivenTool>& tools, chat::ToolChoice choice,
               const std::string& named, chat::ChatInput& chat, chat::ToolUse& use);

/// OpenAI's tools, tool_choice and parallel_tool_calls. `is_flat`: name and parameters stand beside the type, as in
/// /v1/responses, and not in a `function`.
void read_tool_use(FieldReader& fields, bool is_flat, chat::ChatInput& chat, chat::ToolUse& use);

/// OpenAI's tools alone, for APIs without a choice. `use` is automatic.
void read_tools(FieldReader& fields, chat::ChatInput& chat, chat::ToolUse& use);
/// For a prompt alone.
void read_tools(FieldReader& fields, chat::ChatInput& chat);

}  // namespace pagoda::wire
