#pragma once

#include "io/wire/field_reader.hpp"

namespace pagoda::http::openai {

/// Reads `input`, a text of the user or a list of items, and appends what it says to `messages`, in the form that
/// templates expect (io/wire/chat_fields.hpp): reasoning, message and function_call items of the assistant with
/// nothing between them are one message, function_call_output items are messages of the role tool. Refused, with a
/// param such as input[2].type: items that are no part of a conversation of texts, references to items, parts that are
/// no text.
void read_input(wire::FieldReader& fields, wire::Json& messages);

/// Returns whether the input of a request has reasoning items.
bool has_thoughts(const wire::Json& body);

}  // namespace pagoda::http::openai
