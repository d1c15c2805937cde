#pragma once

#include <string>
#include <vector>

#include "io/chat/chat_prompts.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads messages, documents, chat_template_kwargs, add_generation_prompt and continue_final_message.
///
/// Messages are checked and brought into the form that templates expect: members that are null go, text parts stay
/// text parts, arguments of tool calls become objects. Refused, by name: no messages, an unknown role, a member that
/// nobody knows, a content part that is no text.
void read_chat(FieldReader& fields, chat::ChatInput& chat);

/// The same without messages, for an API that writes them another way. What `chat` says of continue_final_message holds
/// where the client says nothing.
void read_chat_options(FieldReader& fields, chat::ChatInput& chat);

/// Messages in that form. Error: invalid_request, with a param such as "messages[2].content".
tl::expected<Json, WireError> read_messages(const Json& messages);

/// A message's content in that form, of the texts of its parts: one is the content itself, none is null.
Json text_content(std::vector<std::string> texts);

}  // namespace pagoda::wire
