#pragma once

/// What OpenAI's two APIs for conversations have in common.

#include <cstddef>
#include <vector>

#include "engine/request/output.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/chat/tools.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/json_writer.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::openai {

/// Reads what the prompt of a conversation is made of in the chat API, for all routes that make such prompts: messages
/// and their options, tools and reasoning_effort.
void read_chat_prompt(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat,
                      chat::ToolUse& tools);

/// Reads how much to think, from the field `name`. That is the template's business: its variable reasoning_effort, or a
/// switch that turns thinking off; ignored where it has neither.
void read_effort(wire::FieldReader& fields, const char* name, const chat::ChatPrompts& prompts, chat::ChatInput& chat);

/// The switches that other servers of this API have for the thinking: enable_thinking, think, and thinking
/// {"type": "enabled" or "disabled"}. The switch is the template's enable_thinking. Without one they are ignored.
void read_thinking_switches(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat);

/// A list with {token, logprob, bytes, top_logprobs} for each entry; at most `num_top` of its top.
void write_token_logprobs(wire::JsonWriter& json, const Logprobs& logprobs, std::size_t num_top);

}  // namespace pagoda::http::openai
