#pragma once

#include "io/wire/field_reader.hpp"

namespace pagoda::http::openai {

/// Reads `input`, a text of the user or a list of items, and appends its messages to `messages`, in the form that
/// templates expect (io/wire/chat_fields.hpp). Consecutive reasoning, message and function_call items of the assistant
/// become one message. function_call_output items become messages of the role tool. Refuses, with a param such as
/// input[2].type, other items, references to items, and parts that are not text.
void read_input(wire::FieldReader& fields, wire::Json& messages);

/// Returns whether the input of a request has reasoning items.
bool has_reasoning(const wire::Json& body);

}  // namespace pagoda::http::openai
