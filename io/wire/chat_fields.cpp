#include "io/wire/chat_fields.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "io/wire/call_arguments.hpp"

namespace pagoda::wire {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
constexpr std::size_t kMaxMessages = 65536;
constexpr std::size_t kMaxTemplateKwargs = 256;

/// Members that templates read. Their values pass unchanged if they are texts.
constexpr std::array<const char*, 6> kTextMembers = {"name",     "tool_call_id", "refusal",
                                                     "thinking", "reasoning",    "reasoning_content"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

using Failure = tl::unexpected<WireError>;

Failure refuse(std::string where, const std::string& what) {
  return Failure(invalid_field(std::move(where), what));
}

/// Checks that `object` has no members other than `known`.
tl::expected<void, WireError> check_members(const Json& object, const std::string& where,
                                            std::initializer_list<const char*> known) {
  FieldReader members(object, FieldReader::Nulls::absent, where + ".");
  for (const char* name : known) members.skip(name);
  return members.finish();
}

/// Checks that a message has no members that are unknown or that a prompt cannot represent.
tl::expected<void, WireError> check_message_members(const Json& message, const std::string& where) {
  FieldReader members(message, FieldReader::Nulls::absent, where + ".");
  for (const char* name : {"role", "content", "tool_calls"}) members.skip(name);
  for (const char* name : kTextMembers) members.skip(name);
  const auto* annotations = members.find("annotations");
  if (annotations != nullptr && !annotations->empty()) members.ignore("annotations");
  const auto refuse_unless_empty = [&](const char* name, const char* why) {
    const auto* value = members.find(name);
    if (value != nullptr && !value->empty()) members.refuse(name, std::string(name) + " is not supported: " + why);
  };
  refuse_unless_empty("function_call", "use tool_calls");
  for (const char* name : {"audio", "images"}) refuse_unless_empty(name, "this model accepts text only");
  return members.finish();
}

tl::expected<Json, WireError> read_part(const Json& part, const std::string& where) {
  if (part.is_string()) return Json{{"type", "text"}, {"text", part}};
  if (!part.is_object()) return refuse(where, "must be an object with a type");
  const auto type = part.find("type");
  if (type == part.end() || !type->is_string()) return refuse(where + ".type", "must be a string");
  const auto& name = type->get_ref<const std::string&>();
  const bool is_refusal = name == "refusal";
  if (name != "text" && !is_refusal)
    return refuse(where + ".type", "is \"" + name + "\": this model accepts text only");
  const auto text = part.find(is_refusal ? "refusal" : "text");
  if (text == part.end() || !text->is_string()) {
    return refuse(where + (is_refusal ? ".refusal" : ".text"), "must be a string");
  }
  if (auto status = check_members(part, where, {"type", "text", "refusal", "cache_control"}); !status) {
    return Failure(std::move(status.error()));
  }
  return Json{{"type", "text"}, {"text", *text}};
}

tl::expected<Json, WireError> read_content(const Json& content, const std::string& where) {
  if (content.is_string()) return content;
  if (!content.is_array()) return refuse(where, "must be a string or a list of parts");
  auto parts = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    auto part = read_part(content[i], where + "[" + std::to_string(i) + "]");
    if (!part) return part;
    parts.push_back(std::move(*part));
  }
  return parts;
}

tl::expected<Json, WireError> read_tool_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) return refuse(where, "must be a list");
  auto all = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto here = where + "[" + std::to_string(i) + "]";
    const auto& call = calls[i];
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) {
      return refuse(here + ".function", "must be an object with a name and arguments");
    }
    for (const auto& status : {check_members(call, here, {"id", "type", "function", "index"}),
                               check_members(*function, here + ".function", {"name", "arguments"})}) {
      if (!status) return Failure(status.error());
    }
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) return refuse(here + ".function.name", "must be a string");
    const auto given = function->find("arguments");
    auto arguments = read_call_arguments(given == function->end() ? Json() : *given);
    Json read;
    if (const auto id = call.find("id"); id != call.end() && !id->is_null()) {
      if (!id->is_string()) return refuse(here + ".id", "must be a string");
      read["id"] = *id;
    }
    read["type"] = "function";
    read["function"] = Json{{"name", *name}, {"arguments", std::move(arguments)}};
    all.push_back(std::move(read));
  }
  return all;
}

tl::expected<Json, WireError> read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return refuse(where, "must be an object with a role and a content");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return refuse(where + ".role", "must be a string");
  if (!contains(kRoles, role->get_ref<const std::string&>())) {
    return refuse(where + ".role",
                  "must be system, developer, user, assistant or tool, not \"" + role->get<std::string>() + "\"");
  }
  if (auto status = check_message_members(message, where); !status) return Failure(std::move(status.error()));
  Json read{{"role", *role}, {"content", nullptr}};
  for (const auto& [key, value] : message.items()) {
    const auto here = where + "." + key;
    if (key == "role" || value.is_null()) continue;
    if (key == "content") {
      auto content = read_content(value, here);
      if (!content) return content;
      read["content"] = std::move(*content);
    } else if (key == "tool_calls") {
      auto calls = read_tool_calls(value, here);
      if (!calls) return calls;
      if (!calls->empty()) read["tool_calls"] = std::move(*calls);
    } else if (contains(kTextMembers, key)) {
      if (!value.is_string()) return refuse(here, "must be a string");
      read[key] = value;
    }
  }
  const bool may_be_empty = *role == "assistant";
  if (read["content"].is_null() && !read.contains("tool_calls")) {
    if (!may_be_empty) return refuse(where + ".content", "is required");
    read["content"] = "";
  }
  return read;
}

}  // namespace

tl::expected<Json, WireError> read_messages(const Json& messages) {
  const std::string name = "messages";
  if (!messages.is_array() || messages.empty()) return refuse(name, "must be a list of at least one message");
  if (messages.size() > kMaxMessages)
    return refuse(name, "has more than " + std::to_string(kMaxMessages) + " messages");
  auto all = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = read_message(messages[i], name + "[" + std::to_string(i) + "]");
    if (!message) return message;
    all.push_back(std::move(*message));
  }
  return all;
}

Json text_content(std::vector<std::string> texts) {
  if (texts.empty()) return nullptr;
  if (texts.size() == 1) return std::move(texts.front());
  auto parts = Json::array();
  for (auto& text : texts) parts.push_back(Json{{"type", "text"}, {"text", std::move(text)}});
  return parts;
}

void read_chat(FieldReader& fields, chat::ChatInput& chat) {
  const auto* messages = fields.find("messages");
  if (messages == nullptr) {
    fields.refuse("messages", "messages is required");
  } else if (auto read = read_messages(*messages); read) {
    chat.messages = std::move(*read);
  } else {
    fields.refuse(std::move(read.error()));
  }
  read_chat_options(fields, chat);
}

void read_chat_options(FieldReader& fields, chat::ChatInput& chat) {
  if (const auto* documents = fields.find("documents"); documents != nullptr && !documents->is_null()) {
    if (documents->is_array()) {
      chat.documents = *documents;
    } else {
      fields.refuse("documents", "documents must be a list");
    }
  }
  if (const auto* kwargs = fields.read_object("chat_template_kwargs")) {
    // The number of members is limited because each insertion searches all of them.
    if (kwargs->size() > kMaxTemplateKwargs) {
      fields.refuse("chat_template_kwargs",
                    "chat_template_kwargs has more than " + std::to_string(kMaxTemplateKwargs) + " members");
    } else {
      for (const auto& [key, value] : kwargs->items()) chat.chat_template_kwargs[key] = value;
    }
  }
  fields.read("continue_final_message", chat.continue_final_message);
  chat.add_generation_prompt = !chat.continue_final_message;
  fields.read("add_generation_prompt", chat.add_generation_prompt);
  if (chat.continue_final_message && chat.add_generation_prompt) {
    fields.refuse("continue_final_message", "continue_final_message and add_generation_prompt exclude each other");
  }
}

}  // namespace pagoda::wire
