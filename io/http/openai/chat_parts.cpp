#include "io/http/openai/chat_parts.hpp"

#include <algorithm>
#include <string>

#include "io/wire/chat_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::http::openai {

void read_chat_prompt(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat,
                      chat::ToolUse& tools) {
  wire::read_chat(fields, chat);
  wire::read_tool_use(fields, /*is_flat=*/false, chat, tools);
  read_thinking_switches(fields, prompts, chat);  // after the tools, which select the template
  read_effort(fields, "reasoning_effort", prompts, chat);
}

void read_effort(wire::FieldReader& fields, const char* name, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  std::string effort;
  fields.read(name, effort);
  if (!fields.has(name)) return;
  if (prompts.knows("reasoning_effort", chat)) {
    chat.chat_template_kwargs["reasoning_effort"] = effort;
  } else if (prompts.knows("enable_thinking", chat)) {
    chat.chat_template_kwargs["enable_thinking"] = effort != "none";
  } else if (effort != "none") {
    fields.ignore(name, "is not supported by this model");
  }
}

void read_thinking_switches(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  const auto set = [&](const char* name, bool is_on) {
    if (prompts.knows("enable_thinking", chat)) {
      chat.chat_template_kwargs["enable_thinking"] = is_on;
    } else if (is_on != prompts.dialect()->thinking.has_value()) {
      fields.ignore(name, "is not supported by this model");
    }
  };
  for (const char* name : {"enable_thinking", "think"}) {
    bool is_on = false;
    fields.read(name, is_on);
    if (fields.has(name)) set(name, is_on);
  }
  const auto* thinking = fields.read_object("thinking");
  if (thinking == nullptr) return;
  wire::FieldReader inner(*thinking, wire::FieldReader::Nulls::absent, "thinking.");
  std::string type;
  inner.read_required("type", type);
  if (auto status = inner.finish(); !status) return fields.refuse(std::move(status.error()));
  set("thinking", type != "disabled");
}

void write_token_logprobs(wire::JsonWriter& json, const Logprobs& logprobs, std::size_t num_top) {
  json.open_array();
  for (const LogprobEntry& entry : logprobs) {
    json.open_object();
    wire::write_token(json, logprobs, entry);
    json.key("top_logprobs")
        .array(entry.top.first(std::min(num_top, entry.top.size())),
               [&](wire::JsonWriter& list, const TokenLogprob& candidate) {
                 list.open_object();
                 wire::write_token(list, logprobs, candidate);
                 list.close_object();
               });
    json.close_object();
  }
  json.close_array();
}

}  // namespace pagoda::http::openai
