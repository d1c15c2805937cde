#include "apps/bench_serve/completion_event.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace pagoda::bench_serve {
namespace {

using nlohmann::json;

/// Returns the member of an object; null if there is no such member, or if `object` is no object.
const json& member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

bool is_text(const json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}

bool has_choice_content(const json& choice) {
  if (is_text(member(choice, "text"))) return true;
  const json& delta = member(choice, "delta");
  for (const char* key : {"content", "reasoning_content", "reasoning", "refusal"}) {
    if (is_text(member(delta, key))) return true;
  }
  const json& calls = member(delta, "tool_calls");
  return calls.is_array() && !calls.empty();
}

std::optional<std::int64_t> count_of(const json& value) {
  if (!value.is_number_integer() || value < 0) return std::nullopt;
  return value.get<std::int64_t>();
}

/// Returns the message in {"error": {"message"}}, {"error": ""}, {"message"} or {"detail"}; empty if there is none.
std::string message_in(const json& object) {
  const json& error = member(object, "error");
  for (const json* place : {&member(error, "message"), &error, &member(object, "message"), &member(object, "detail")}) {
    if (is_text(*place)) return place->get<std::string>();
  }
  return error.is_null() ? "" : error.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string beginning(std::string_view text) {
  constexpr std::size_t kMost = 200;
  return std::string(text.substr(0, kMost));
}

}  // namespace

CompletionEvent read_event(std::string_view data) {
  CompletionEvent event;
  if (data == "[DONE]") {
    event.is_done = true;
    return event;
  }
  const json object = json::parse(data, nullptr, false);
  if (!object.is_object()) {
    event.error = "an event is not a JSON object: " + beginning(data);
    return event;
  }
  if (!member(object, "error").is_null()) {
    event.error = message_in(object);
    return event;
  }
  for (const json& choice : member(object, "choices")) {
    event.has_content = event.has_content || has_choice_content(choice);
    event.has_finished = event.has_finished || is_text(member(choice, "finish_reason"));
  }
  const json& usage = member(object, "usage");
  event.prompt_tokens = count_of(member(usage, "prompt_tokens"));
  event.completion_tokens = count_of(member(usage, "completion_tokens"));
  return event;
}

std::string error_message(std::string_view body) {
  const json object = json::parse(body, nullptr, false);
  const auto message = object.is_object() ? message_in(object) : "";
  return message.empty() ? beginning(body) : message;
}

}  // namespace pagoda::bench_serve
