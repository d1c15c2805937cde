#pragma once

#include <cstdint>
#include <string_view>

#include "io/chat/answer_reading.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

/// Writes a tool call as OpenAI's chat API does: {id, type, function: {name, arguments}}. `index` is the index of the
/// answer among the answers to the request.
void write_call(JsonWriter& json, const chat::Answer::Part& call, std::string_view request_id, std::int64_t index);

/// Writes an answer as a message: {role, content, refusal, reasoning?, tool_calls?}.
void write_answer_message(JsonWriter& json, const chat::Answer& answer, std::string_view request_id, std::int64_t index,
                          bool has_reasoning = true);

}  // namespace pagoda::wire
