#pragma once

#include "io/chat/chat_prompts.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::http::anthropic {

/// Reads `system` and `messages` into chat.messages, in the form that templates expect (io/wire/chat_fields.hpp): the
/// system prompt is the first message, tool_use blocks are the tool calls of an assistant's message, each tool_result
/// block is a message of the role tool, thinking blocks are reasoning_content, cache_control is skipped. An assistant's
/// message at the end is continued. Refused, with a param such as messages[2].content[0].type: blocks that are no text
/// of a conversation, and blocks where their role has none.
void read_conversation(wire::FieldReader& fields, chat::ChatInput& chat);

}  // namespace pagoda::http::anthropic
