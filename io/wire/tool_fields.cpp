#include "io/wire/tool_fields.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace pagoda::wire {
namespace {

using chat::ToolChoice;

constexpr std::size_t kMaxTools = 1024;
constexpr std::size_t kMaxNameBytes = 128;

bool is_name(const std::string& name) {
  constexpr std::string_view kMarks = "_.-";
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

/// Reads `name` and the optional members of a function, `given`.
void read_function(FieldReader& function, const Json& given, GivenTool& tool) {
  function.read_required("name", tool.name);
  std::string description;
  function.read("description", description);
  function.read_object("parameters");
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    if (const auto member = given.find(name); member != given.end() && !member->is_null()) {
      tool.function[name] = *member;
    } else if (std::string_view(name) == "parameters") {  // templates read it even if a function has no parameters
      tool.function[name] = {{"type", "object"}, {"properties", Json::object()}};
    }
  }
  if (const auto* strict = function.find("strict"); strict != nullptr && !strict->is_null() && !strict->is_boolean()) {
    function.refuse("strict", "strict must be true or false");  // calls always follow their schema
  }
}

/// Reads a tool. Returns whether the model can call it. With `is_flat`, tools of other types than "function" are
/// treated like unknown fields: ignored or refused. Such tools of /v1/responses run on the server or take a plain text.
bool read_tool(const Json& given, GivenTool& tool, bool is_flat, FieldReader& fields) {
  if (!given.is_object()) return fields.refuse(invalid_field(tool.where, "must be an object")), false;
  FieldReader outer(given, FieldReader::Nulls::absent, tool.where + ".");
  std::string type;
  outer.read_required("type", type);
  if (outer.has_no_error() && type != "function") {
    auto message = "type is \"" + type + "\": only \"function\" is supported";
    if (!is_flat) {
      outer.refuse("type", std::move(message));
    } else {
      outer.ignore_value("type", type, std::move(message));
      if (outer.has_no_error()) return false;
    }
  } else if (is_flat) {
    read_function(outer, given, tool);
  } else if (const auto* object = outer.read_object("function")) {
    FieldReader function(*object, FieldReader::Nulls::absent, tool.where + ".function.");
    read_function(function, *object, tool);
    if (auto status = function.finish(); !status) outer.refuse(std::move(status.error()));
  } else {
    outer.refuse("function", "function is required");
  }
  if (auto status = outer.finish(); !status) fields.refuse(std::move(status.error()));
  return true;
}

struct Choice {
  ToolChoice choice = ToolChoice::automatic;
  std::string named;
};

Choice read_choice(FieldReader& fields, bool is_flat) {
  constexpr const char* kName = "tool_choice";
  const auto* given = fields.find(kName);
  if (given == nullptr || given->is_null() || *given == "auto") return {};
  if (*given == "none") return {ToolChoice::none, {}};
  if (*given == "required") return {ToolChoice::required, {}};
  const auto refuse = [&] {
    fields.refuse(kName, std::string(kName) + " must be \"auto\", \"none\", \"required\" or a function");
    return Choice{};
  };
  if (!given->is_object()) return refuse();
  FieldReader outer(*given, FieldReader::Nulls::absent, "tool_choice.");
  Choice choice{ToolChoice::required, {}};
  std::string type;
  outer.read_required("type", type);
  if (outer.has_no_error() && type != "function") outer.refuse("type", "type must be \"function\"");
  if (is_flat) {
    outer.read_required("name", choice.named);
  } else if (const auto* object = outer.read_object("function")) {
    FieldReader function(*object, FieldReader::Nulls::absent, "tool_choice.function.");
    function.read_required("name", choice.named);
    if (auto status = function.finish(); !status) outer.refuse(std::move(status.error()));
  } else {
    outer.refuse("function", "function is required");
  }
  if (auto status = outer.finish(); !status) fields.refuse(std::move(status.error()));
  return choice;
}

std::vector<GivenTool> read_tool_list(FieldReader& fields, bool is_flat) {
  const auto* given = fields.find("tools");
  if (given == nullptr || given->is_null()) return {};
  if (!given->is_array()) return fields.refuse("tools", "tools must be a list"), std::vector<GivenTool>();
  std::vector<GivenTool> tools;
  for (std::size_t i = 0; i < given->size() && fields.has_no_error(); ++i) {
    GivenTool& tool = tools.emplace_back();
    tool.where = "tools[" + std::to_string(i) + "]";
    if (!read_tool((*given)[i], tool, is_flat, fields)) tools.pop_back();
  }
  return tools;
}

}  // namespace

void set_tools(FieldReader& fields, const std::vector<GivenTool>& tools, ToolChoice choice, const std::string& named,
               chat::ChatInput& chat, chat::ToolUse& use) {
  if (!fields.has_no_error()) return;
  if (tools.size() > kMaxTools) {
    return fields.refuse("tools", "tools has more than " + std::to_string(kMaxTools) + " tools");
  }
  std::set<std::string_view> names;
  for (const GivenTool& tool : tools) {
    if (!is_name(tool.name)) {
      return fields.refuse(invalid_field(tool.where + ".name", "must have 1 to 128 letters, digits, _, . or -"));
    }
    if (!names.insert(tool.name).second) {
      return fields.refuse(invalid_field(tool.where + ".name", "\"" + tool.name + "\" appears twice"));
    }
    if (chat.tools.is_null()) chat.tools = Json::array();
    if (named.empty() || named == tool.name) use.tools.push_back({tool.name, tool.function.at("parameters")});
    chat.tools.push_back(Json{{"type", "function"}, {"function", tool.function}});
  }
  if (!named.empty()) use.parallel = false;
  use.choice = tools.empty() ? ToolChoice::none : choice;
  if (tools.empty() && choice == ToolChoice::required) {
    fields.refuse("tool_choice", "tool_choice requires a call, but there are no tools");
  } else if (!named.empty() && use.tools.empty()) {
    fields.refuse("tool_choice", "tool_choice names \"" + named + "\", but tools has no function of this name");
  }
}

void read_tools(FieldReader& fields, chat::ChatInput& chat, chat::ToolUse& use) {
  set_tools(fields, read_tool_list(fields, /*is_flat=*/false), ToolChoice::automatic, {}, chat, use);
}

void read_tools(FieldReader& fields, chat::ChatInput& chat) {
  chat::ToolUse unused;
  read_tools(fields, chat, unused);
}

void read_tool_use(FieldReader& fields, bool is_flat, chat::ChatInput& chat, chat::ToolUse& use) {
  const auto tools = read_tool_list(fields, is_flat);
  const Choice choice = read_choice(fields, is_flat);
  fields.read("parallel_tool_calls", use.parallel);
  set_tools(fields, tools, choice.choice, choice.named, chat, use);
}

}  // namespace pagoda::wire
