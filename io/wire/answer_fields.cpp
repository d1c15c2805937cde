#include "io/wire/answer_fields.hpp"

#include "io/chat/tool_call_id.hpp"

namespace pagoda::wire {

void write_call(JsonWriter& json, const chat::Answer::Part& call, std::string_view request_id, std::int64_t index) {
  json.open_object().field("id", chat::tool_call_id(request_id, index, call.call)).field("type", "function");
  json.key("function").open_object().field("name", call.name).field("arguments", call.text);
  json.close_object().close_object();
}

void write_answer_message(JsonWriter& json, const chat::Answer& answer, std::string_view request_id, std::int64_t index,
                          bool has_reasoning) {
  const auto content = answer.content();
  const auto thinking = answer.thinking();
  const auto calls = answer.calls();
  json.open_object().field("role", "assistant").key("content");
  if (content.empty() && !calls.empty()) {
    json.null();
  } else {
    json.value(content);
  }
  json.key("refusal").null();
  if (has_reasoning && !thinking.empty()) json.field("reasoning", thinking);
  if (!calls.empty()) {
    json.key("tool_calls").array(calls, [&](JsonWriter& list, const chat::Answer::Part& call) {
      write_call(list, call, request_id, index);
    });
  }
  json.close_object();
}

}  // namespace pagoda::wire
