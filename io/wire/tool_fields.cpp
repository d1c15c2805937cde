#include "io/wire/tool_fields.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine/grammar/limits.hpp"

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

/// Returns whether items are of an enum of so few values that the grammar can hold a list of them to uniqueItems.
bool are_few_values(const Json& items, const Json& root) {
  const Json* const schema = chat::referred_schema(root, items);
  if (schema == nullptr || !schema->is_object()) return false;
  const auto listed = schema->find("enum");
  return listed != schema->end() && listed->is_array() && listed->size() <= grammar::kMaxUniqueValues;
}

/// Removes uniqueItems of lists that the grammar cannot hold to it. Returns whether there were some. `root`: the schema
/// before that, of which `part` is a part.
bool drop_uniqueness(Json& part, const Json& root) {
  if (!part.is_structured()) return false;
  bool was_there = false;
  if (part.is_object() && part.contains("uniqueItems") && part["uniqueItems"] == true) {
    const auto items = part.find("items");
    const bool is_held = items != part.end() && are_few_values(*items, root) && !part.contains("prefixItems") &&
                         !part.contains("contains");
    if (!is_held) was_there = part.erase("uniqueItems") > 0;
  }
  for (Json& inner : part) was_there |= drop_uniqueness(inner, root);
  return was_there;
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
      // Programs in Go write null for a map that is empty.
      if (auto& value = tool.function[name]; value.is_object() && value.contains("properties")) {
        if (value["properties"].is_null()) value["properties"] = Json::object();
      }
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
  std::vector<std::string> allowed = {};  ///< names of the tools that may be called; empty: all
  bool is_one_call = false;               ///< whether an answer has at most one call
};

/// Reads the name of a function, which `outer` refers to.
std::string read_named_function(FieldReader& outer, const std::string& where, bool is_flat) {
  std::string name;
  if (is_flat) {
    outer.read_required("name", name);
  } else if (const auto* object = outer.read_object("function")) {
    FieldReader function(*object, FieldReader::Nulls::absent, where + ".function.");
    function.read_required("name", name);
    if (auto status = function.finish(); !status) outer.refuse(std::move(status.error()));
  } else {
    outer.refuse("function", "function is required");
  }
  return name;
}

/// Reads `mode` and `tools`, the members of a choice of the type allowed_tools.
Choice read_allowed_tools(FieldReader& fields, const std::string& where, bool is_flat) {
  Choice choice;
  std::string mode;
  fields.read_required("mode", mode);
  if (mode == "required") choice.choice = ToolChoice::required;
  if (fields.has_no_error() && mode != "required" && mode != "auto") {
    fields.refuse("mode", "mode must be \"auto\" or \"required\"");
  }
  const auto* tools = fields.find("tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    return fields.refuse("tools", "tools must be a list of functions"), choice;
  }
  for (std::size_t i = 0; i < tools->size() && fields.has_no_error(); ++i) {
    const std::string here = where + "tools[" + std::to_string(i) + "]";
    if (!(*tools)[i].is_object()) return fields.refuse(invalid_field(here, "must be an object")), choice;
    FieldReader one((*tools)[i], FieldReader::Nulls::absent, here + ".");
    std::string type;
    one.read_required("type", type);
    if (one.has_no_error() && type != "function") one.refuse("type", "type must be \"function\"");
    choice.allowed.push_back(read_named_function(one, here, is_flat));
    if (auto status = one.finish(); !status) fields.refuse(std::move(status.error()));
  }
  return choice;
}

Choice read_choice(FieldReader& fields, bool is_flat) {
  constexpr const char* kName = "tool_choice";
  const auto* given = fields.find(kName);
  if (given == nullptr || given->is_null() || *given == "auto") return {};
  if (*given == "none") return {ToolChoice::none};
  if (*given == "required") return {ToolChoice::required};
  if (!given->is_object()) {
    fields.refuse(kName, std::string(kName) + " must be \"auto\", \"none\", \"required\" or an object");
    return {};
  }
  FieldReader outer(*given, FieldReader::Nulls::absent, "tool_choice.");
  Choice choice;
  std::string type;
  outer.read_required("type", type);
  if (type == "function") {
    choice = {ToolChoice::required, {read_named_function(outer, kName, is_flat)}, /*is_one_call=*/true};
  } else if (type == "allowed_tools" && is_flat) {
    choice = read_allowed_tools(outer, "tool_choice.", is_flat);
  } else if (type == "allowed_tools") {
    const std::string where = "tool_choice.allowed_tools.";
    if (const auto* object = outer.read_object("allowed_tools")) {
      FieldReader inner(*object, FieldReader::Nulls::absent, where);
      choice = read_allowed_tools(inner, where, is_flat);
      if (auto status = inner.finish(); !status) outer.refuse(std::move(status.error()));
    } else {
      outer.refuse("allowed_tools", "allowed_tools is required");
    }
  } else if (outer.has_no_error()) {
    outer.refuse("type", "type must be \"function\" or \"allowed_tools\"");
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

void set_tools(FieldReader& fields, const std::vector<GivenTool>& tools, ToolChoice choice,
               const std::vector<std::string>& allowed, chat::ChatInput& chat, chat::ToolUse& use) {
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
    const bool may_be_called = allowed.empty() || std::ranges::find(allowed, tool.name) != allowed.end();
    if (may_be_called) {
      Json parameters = tool.function.at("parameters");
      if (choice != ToolChoice::none && drop_uniqueness(parameters, tool.function.at("parameters"))) {
        const Json given{{"uniqueItems", true}};
        FieldReader schema(given, FieldReader::Nulls::absent, tool.where + ".parameters.");
        schema.ignore("uniqueItems", "is supported only for items with an enum of at most " +
                                         std::to_string(grammar::kMaxUniqueValues) + " values");
        if (auto status = schema.finish(); !status) return fields.refuse(std::move(status.error()));
      }
      use.tools.push_back({tool.name, std::move(parameters)});
    }
    chat.tools.push_back(Json{{"type", "function"}, {"function", tool.function}});
  }
  use.choice = tools.empty() ? ToolChoice::none : choice;
  if (tools.empty() && choice == ToolChoice::required) {
    fields.refuse("tool_choice", "tool_choice requires a call, but there are no tools");
    return;
  }
  for (const std::string& name : allowed) {
    if (names.contains(name)) continue;
    fields.refuse("tool_choice", "tool_choice names \"" + name + "\", but tools has no function of this name");
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
  if (choice.is_one_call) use.parallel = false;
  set_tools(fields, tools, choice.choice, choice.allowed, chat, use);
}

}  // namespace pagoda::wire
