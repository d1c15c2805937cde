#include "io/http/openai/response_items.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/http/openai/opaque_reasoning.hpp"
#include "io/wire/call_arguments.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/content_blocks.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;
using wire::Json;
using Done = tl::expected<void, wire::WireError>;

constexpr std::size_t kMaxItems = 65536;

Done refuse(std::string where, const std::string& what) {
  return tl::unexpected(wire::invalid_field(std::move(where), what));
}

/// Returns the content of an item in the form that templates expect.
tl::expected<Json, wire::WireError> read_content(const Json& content, const std::string& where) {
  std::vector<std::string> texts;
  auto status = wire::read_blocks(content, where, "input_text", [&](std::string_view type, FieldReader& part) {
    std::string text;
    if (type == "input_text" || type == "output_text") {
      part.read_required("text", text);
      // Fields of an earlier answer and cache hints have no effect on the prompt.
      for (const char* name : {"annotations", "logprobs", "prompt_cache_breakpoint"}) part.skip(name);
    } else if (type == "refusal") {
      part.read_required("refusal", text);
    } else {
      wire::refuse_type(part, type, "this model accepts text only");
    }
    texts.push_back(std::move(text));
  });
  if (!status) return tl::unexpected(std::move(status.error()));
  if (texts.empty()) texts.emplace_back();
  return wire::text_content(std::move(texts));
}

/// Returns the assistant's message to which an item belongs, or null. `first` is the index of the first message of this
/// input. Consecutive texts, reasoning and calls of an assistant form one message, as in the chat API.
Json* open_answer(Json& messages, std::size_t first) {
  if (messages.size() == first || messages.back()["role"] != "assistant") return nullptr;
  return &messages.back();
}

Json& open_or_new_answer(Json& messages, std::size_t first) {
  if (open_answer(messages, first) == nullptr) messages.push_back(Json{{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

void read_message(FieldReader& item, const std::string& where, std::size_t first, Json& messages) {
  std::string role;
  item.read_required("role", role);
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    item.refuse("role", "role must be user, assistant, system or developer, not \"" + role + "\"");
  }
  item.skip("phase");  // redundant: whether a text comes before or after calls
  const auto* given = item.find("content");
  if (given == nullptr) return item.refuse("content", "content is required");
  auto content = read_content(*given, where + ".content");
  if (!content) return item.refuse(std::move(content.error()));
  auto* answer = role == "assistant" ? open_answer(messages, first) : nullptr;
  if (answer != nullptr && (*answer)["content"] == "") {
    (*answer)["content"] = std::move(*content);
  } else {
    messages.push_back(Json{{"role", std::move(role)}, {"content", std::move(*content)}});
  }
}

/// Appends the texts of `name`, a list of objects with a text.
void read_texts(FieldReader& item, const char* name, const std::string& where, std::string& text) {
  const auto* given = item.find(name);
  if (given == nullptr) return;
  auto status =
      wire::read_blocks(*given, where + "." + name, "reasoning_text", [&](std::string_view, FieldReader& part) {
        std::string piece;
        part.read_required("text", piece);
        text += piece;
      });
  if (!status) item.refuse(std::move(status.error()));
}

/// Reads a reasoning item: reasoning that belongs to the answer in the next items. Items from other models may have
/// only a summary.
void read_reasoning(FieldReader& item, const std::string& where, std::size_t first, Json& messages) {
  std::string reasoning;
  std::string opaque;
  std::string summary;
  read_texts(item, "content", where, reasoning);
  item.read("encrypted_content", opaque);
  read_texts(item, "summary", where, summary);
  if (reasoning.empty()) reasoning = read_opaque_reasoning(opaque).value_or("");
  if (reasoning.empty()) reasoning = std::move(summary);
  auto& answer = open_or_new_answer(messages, first);
  if (reasoning.empty()) return;
  auto& whole = answer["reasoning_content"];
  if (whole.is_null()) whole = "";
  whole.get_ref<std::string&>() += reasoning;
}

void read_call(FieldReader& item, std::size_t first, Json& messages) {
  std::string id;
  std::string name;
  std::string text;
  item.read_required("call_id", id);
  item.read_required("name", name);
  item.read_required("arguments", text);
  auto function = Json{{"name", std::move(name)}, {"arguments", wire::read_call_arguments(text)}};
  open_or_new_answer(messages, first)["tool_calls"].push_back(
      Json{{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}});
}

void read_call_output(FieldReader& item, const std::string& where, Json& messages) {
  std::string id;
  item.read_required("call_id", id);
  const auto* output = item.find("output");
  if (output == nullptr) return item.refuse("output", "output is required");
  auto content = read_content(*output, where + ".output");
  if (!content) return item.refuse(std::move(content.error()));
  messages.push_back(Json{{"role", "tool"}, {"content", std::move(*content)}, {"tool_call_id", std::move(id)}});
}

Done read_item(const Json& given, const std::string& where, std::size_t first, Json& messages) {
  if (!given.is_object()) return refuse(where, "must be an object");
  FieldReader item(given, FieldReader::Nulls::absent, where + ".");
  std::string type = item.has("id") && !item.has("role") ? "item_reference" : "message";
  item.read("type", type);
  item.skip("id");
  item.skip("status");
  if (type == "message") {
    read_message(item, where, first, messages);
  } else if (type == "function_call") {
    read_call(item, first, messages);
  } else if (type == "function_call_output") {
    read_call_output(item, where, messages);
  } else if (type == "reasoning") {
    read_reasoning(item, where, first, messages);
  } else {
    wire::refuse_type(item, type,
                      "only message, reasoning, function_call and function_call_output items are supported");
  }
  return item.finish();
}

Done read_items(const Json& input, Json& messages) {
  const std::string name = "input";
  if (!input.is_array()) return refuse(name, "must be a string or a list of items");
  if (input.size() > kMaxItems) return refuse(name, "has more than " + std::to_string(kMaxItems) + " items");
  const auto first = messages.size();
  for (std::size_t i = 0; i < input.size(); ++i) {
    auto status = read_item(input[i], name + "[" + std::to_string(i) + "]", first, messages);
    if (!status) return status;
  }
  return {};
}

}  // namespace

bool has_reasoning(const Json& body) {
  const auto input = body.find("input");
  return input != body.end() && input->is_array() && std::ranges::any_of(*input, [](const Json& item) {
           return item.is_object() && item.contains("type") && item["type"] == "reasoning";
         });
}

void read_input(FieldReader& fields, Json& messages) {
  const auto* input = fields.find("input");
  if (input == nullptr) return fields.refuse("input", "input is required");
  if (input->is_string()) {
    messages.push_back(Json{{"role", "user"}, {"content", *input}});
  } else if (auto status = read_items(*input, messages); !status) {
    return fields.refuse(std::move(status.error()));
  }
  if (messages.empty()) fields.refuse("input", "input must have at least one item");
}

}  // namespace pagoda::http::openai
