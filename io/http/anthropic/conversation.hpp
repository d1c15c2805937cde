#pragma once

#include "io/chat/chat_prompts.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::http::anthropic {

/// Reads `system` and `messages` into chat.messages, in the form that templates expect (io/wire/chat_fields.hpp). The
/// system prompt becomes the first message, tool_use blocks become the tool calls of an assistant's message, each
/// tool_result block becomes a message of the role tool, and thinking blocks become reasoning_content. cache_control is
/// skipped. If the last message is the assistant's, the answer continues it. Refuses, with a param such as
/// messages[2].content[0].type, blocks that are not supported or do not fit the role.
void read_conversation(wire::FieldReader& fields, chat::ChatInput& chat);

}  // namespace pagoda::http::anthropic
