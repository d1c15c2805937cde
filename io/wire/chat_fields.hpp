#pragma once

#include <string>
#include <vector>

#include "io/chat/chat_prompts.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads messages, documents, chat_template_kwargs, add_generation_prompt and continue_final_message.
///
/// Checks messages and converts them to the form that templates expect: members that are null are removed, text parts
/// stay text parts, and arguments of tool calls become objects. Refuses, by name: an empty list of messages, an unknown
/// role, an unknown member, and a content part that is not text.
void read_chat(FieldReader& fields, chat::ChatInput& chat);

/// Reads the fields of read_chat without messages, for an API with another format of messages. Where the client does
/// not give continue_final_message, the value in `chat` is kept.
void read_chat_options(FieldReader& fields, chat::ChatInput& chat);

/// Returns messages in the form that templates expect. Error: invalid_request, with a param such as
/// "messages[2].content".
tl::expected<Json, WireError> read_messages(const Json& messages);

/// Returns a message's content in the form that templates expect, made from the texts of its parts: null for no text,
/// the text itself for one text, and a list of text parts for several.
Json text_content(std::vector<std::string> texts);

}  // namespace pagoda::wire
