#include "io/http/anthropic/conversation.hpp"

#include <string>
#include <utility>
#include <vector>

#include "io/wire/chat_fields.hpp"
#include "io/wire/content_blocks.hpp"

namespace pagoda::http::anthropic {
namespace {

using wire::FieldReader;
using wire::Json;
using Done = tl::expected<void, wire::WireError>;
using Texts = std::vector<std::string>;

constexpr std::size_t kMaxMessages = 65536;

Done refuse(std::string where, const std::string& what) {
  return tl::unexpected(wire::invalid_field(std::move(where), what));
}

void read_text(FieldReader& block, Texts& texts) {
  std::string text;
  block.read_required("text", text);
  if (const auto* citations = block.find("citations"); citations != nullptr && !citations->empty()) {
    block.refuse("citations", "citations are not supported");
  }
  texts.push_back(std::move(text));
}

template <class Read>
Done read_blocks(const Json& content, const std::string& where, Read read) {
  return wire::read_blocks(content, where, "text", [&](std::string_view type, FieldReader& block) {
    block.skip("cache_control");  // the prefix cache is automatic
    read(type, block);
  });
}

Done read_text_blocks(const Json& content, const std::string& where, Texts& texts) {
  return read_blocks(content, where, [&](std::string_view type, FieldReader& block) {
    if (type == "text") {
      read_text(block, texts);
    } else {
      wire::refuse_type(block, type, "only text blocks are supported");
    }
  });
}

/// Returns a message. Its content is an empty text if there are no texts.
Json message(const char* role, Texts texts) {
  if (texts.empty()) texts.emplace_back();
  return Json{{"role", role}, {"content", wire::text_content(std::move(texts))}};
}

void read_tool_result(FieldReader& block, const std::string& where, Json& messages) {
  Texts texts;
  std::string id;
  bool is_error = false;  // templates have no field for it; the content describes the error
  block.read_required("tool_use_id", id);
  block.read("is_error", is_error);
  if (const auto* content = block.find("content")) {
    auto status = read_blocks(*content, where, [&](std::string_view type, FieldReader& part) {
      if (type == "text") {
        read_text(part, texts);
      } else if (type == "tool_reference") {  // found by a search for tools; the tool itself is in the prompt
        part.read_required("tool_name", texts.emplace_back());
      } else {
        wire::refuse_type(part, type, "only text and tool_reference blocks are supported");
      }
    });
    if (!status) block.refuse(std::move(status.error()));
  }
  auto tool = message("tool", std::move(texts));
  tool["tool_call_id"] = std::move(id);
  messages.push_back(std::move(tool));
}

Done read_user(const Json& content, const std::string& where, Json& messages) {
  Texts texts;
  const auto flush = [&] {
    if (!texts.empty()) messages.push_back(message("user", std::exchange(texts, {})));
  };
  std::size_t index = 0;
  auto status = read_blocks(content, where, [&](std::string_view type, FieldReader& block) {
    const auto here = where + "[" + std::to_string(index++) + "]";
    if (type == "text") {
      read_text(block, texts);
    } else if (type == "tool_result") {
      flush();
      read_tool_result(block, here + ".content", messages);
    } else {
      wire::refuse_type(block, type, "a message of the user may contain only text and tool_result blocks");
    }
  });
  if (content.empty()) texts.emplace_back();
  flush();
  return status;
}

Json read_tool_use(FieldReader& block) {
  std::string id;
  std::string name;
  block.read_required("id", id);
  block.read_required("name", name);
  block.skip("caller");
  const auto* input = block.read_object("input");
  if (input == nullptr) block.refuse("input", "input is required");
  auto function = Json{{"name", std::move(name)}, {"arguments", input != nullptr ? *input : Json::object()}};
  return Json{{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}};
}

Done read_assistant(const Json& content, const std::string& where, Json& messages) {
  Texts texts;
  std::string thinking;
  auto calls = Json::array();
  auto status = read_blocks(content, where, [&](std::string_view type, FieldReader& block) {
    if (type == "text") {
      read_text(block, texts);
    } else if (type == "thinking") {
      std::string reasoning;
      block.read_required("thinking", reasoning);
      block.skip("signature");  // signature of Anthropic's own models
      thinking += reasoning;
    } else if (type == "redacted_thinking") {
      block.skip("data");  // encrypted reasoning of another model
    } else if (type == "tool_use") {
      calls.push_back(read_tool_use(block));
    } else {
      wire::refuse_type(
          block, type,
          "a message of the assistant may contain only text, thinking, redacted_thinking and tool_use blocks");
    }
  });
  auto read = message("assistant", std::move(texts));
  if (!thinking.empty()) read["reasoning_content"] = std::move(thinking);
  if (!calls.empty()) read["tool_calls"] = std::move(calls);
  messages.push_back(std::move(read));
  return status;
}

Done read_message(const Json& given, const std::string& where, Json& messages) {
  if (!given.is_object()) return refuse(where, "must be an object with a role and a content");
  FieldReader fields(given, FieldReader::Nulls::absent, where + ".");
  std::string role;
  fields.read_required("role", role);
  const auto* content = fields.find("content");
  if (content == nullptr) fields.refuse("content", "content is required");
  if (role != "user" && role != "assistant" && role != "system") {
    fields.refuse("role", "role must be user, assistant or system, not \"" + role + "\"");
  }
  if (auto status = fields.finish(); !status) return status;
  const auto here = where + ".content";
  if (role == "user") return read_user(*content, here, messages);
  if (role == "assistant") return read_assistant(*content, here, messages);
  Texts texts;
  if (auto status = read_text_blocks(*content, here, texts); !status) return status;
  messages.push_back(message("system", std::move(texts)));
  return {};
}

Done read_messages(const Json& given, Json& messages) {
  const std::string name = "messages";
  if (!given.is_array() || given.empty()) return refuse(name, "must be a list of at least one message");
  if (given.size() > kMaxMessages) return refuse(name, "has more than " + std::to_string(kMaxMessages) + " messages");
  for (std::size_t i = 0; i < given.size(); ++i) {
    auto status = read_message(given[i], name + "[" + std::to_string(i) + "]", messages);
    if (!status) return status;
  }
  return {};
}

}  // namespace

void read_conversation(FieldReader& fields, chat::ChatInput& chat) {
  if (const auto* system = fields.find("system")) {
    Texts texts;
    if (auto status = read_text_blocks(*system, "system", texts); !status) fields.refuse(std::move(status.error()));
    if (!texts.empty()) chat.messages.push_back(message("system", std::move(texts)));
  }
  const auto* messages = fields.find("messages");
  if (messages == nullptr) return fields.refuse("messages", "messages is required");
  if (auto status = read_messages(*messages, chat.messages); !status) return fields.refuse(std::move(status.error()));
  const auto& last = chat.messages.back();
  if (last["role"] != "assistant") return;
  if (last.contains("tool_calls")) {
    return fields.refuse("messages", "messages must not end with a tool_use block: its tool_result is missing");
  }
  chat.continue_final_message = true;
}

}  // namespace pagoda::http::anthropic
