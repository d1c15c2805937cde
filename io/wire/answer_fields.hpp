#pragma once

#include <cstdint>
#include <string_view>

#include "io/chat/answer_reading.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

/// A call as OpenAI's chat API writes it: {id, type, function: {name, arguments}}. `index` is the answer's among those
/// of the request.
void write_call(JsonWriter& json, const chat::Answer::Part& call, std::string_view request_id, std::int64_t index);

/// The message that an answer is: {role, content, refusal, reasoning?, tool_calls?}.
void write_answer_message(JsonWriter& json, const chat::Answer& answer, std::string_view request_id, std::int64_t index,
                          bool has_reasoning = true);

}  // namespace pagoda::wire
