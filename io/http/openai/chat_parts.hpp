#pragma once

/// Common parts of OpenAI's two APIs for conversations.

#include <cstddef>
#include <vector>

#include "engine/request/output.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/chat/tools.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/json_writer.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::openai {

/// Reads the fields of a prompt in the chat API, for all routes that make such prompts: messages and their options,
/// tools, reasoning_effort and switches of the thinking.
void read_chat_prompt(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat,
                      chat::ToolUse& tools);

/// Reads the effort of thinking from the field `name` into the template's variable reasoning_effort or, if the template
/// has only enable_thinking, into that switch ("none" turns it off). Ignores the field if the template has neither.
void read_effort(wire::FieldReader& fields, const char* name, const chat::ChatPrompts& prompts, chat::ChatInput& chat);

/// Reads other servers' switches of the thinking: enable_thinking, think, and thinking {"type": "enabled" or
/// "disabled"}. They set the template's enable_thinking and are ignored if the template does not have it.
void read_thinking_switches(wire::FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat);

/// Writes a list with {token, logprob, bytes, top_logprobs} for each entry, with at most `num_top` top_logprobs.
void write_token_logprobs(wire::JsonWriter& json, const Logprobs& logprobs, std::size_t num_top);

}  // namespace pagoda::http::openai
