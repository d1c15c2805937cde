#pragma once

/// Drives writers and parsers of the HTTP APIs without sockets.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"

namespace pagoda::http {

inline chat::ChatPrompts chat_prompts() {
  constexpr auto kChatMl =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  return chat::ChatPrompts::parse(kChatMl, {}).value();
}

inline SequenceDelta text_delta(std::string text, Logprobs logprobs = Logprobs()) {
  SequenceDelta delta;
  delta.text = std::move(text);
  delta.token_ids = {1};
  delta.logprobs = std::move(logprobs);
  return delta;
}

inline RequestResult result_of(std::string text, FinishReason reason = FinishReason::stop) {
  RequestResult result;
  result.outputs.resize(1);
  result.outputs[0].text = std::move(text);
  result.outputs[0].finish_reason = reason;
  result.usage = {.prompt_tokens = 20, .completion_tokens = 5, .cached_tokens = 16};
  result.timing = {.queue_ms = 1,
                   .ttft_ms = 2,
                   .total_ms = 3,
                   .cache_miss = 4,
                   .preemptions = 6,
                   .restarts = 7,
                   .draft_tokens = 9,
                   .drafts_accepted = 8};
  return result;
}

inline nlohmann::json whole(GenerationWriter& writer, const RequestResult& result) {
  std::string out;
  writer.whole(out, {&result, 1});
  return nlohmann::json::parse(out);
}

/// The text of a stream that gives `deltas` and ends with `result`.
inline std::string streamed(GenerationWriter& writer, const std::vector<SequenceDelta>& deltas,
                            const RequestResult& result) {
  std::string out;
  writer.begin(out, result.usage.prompt_tokens);
  for (const auto& delta : deltas) writer.delta(out, 0, delta);
  writer.done(out, 0, result);
  writer.end(out);
  return out;
}

/// The data of named server-sent events, each of which must say its own name.
inline std::vector<nlohmann::json> events_of(const std::string& stream) {
  std::vector<nlohmann::json> events;
  for (std::size_t at = 0; at < stream.size();) {
    const auto end = stream.find("\n\n", at);
    const auto event = stream.substr(at, end - at);
    const auto data = event.find("\ndata: ");
    EXPECT_EQ(event.substr(0, 7), "event: ");
    EXPECT_NE(data, std::string::npos) << event;
    if (end == std::string::npos || data == std::string::npos) break;
    events.push_back(nlohmann::json::parse(event.substr(data + 7)));
    EXPECT_EQ(events.back()["type"], event.substr(7, data - 7));
    at = end + 2;
  }
  return events;
}

inline std::vector<std::string> names_of(const std::vector<nlohmann::json>& events) {
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(event["type"]);
  return names;
}

/// A field of a body that is refused: the body has `fields` beside what it must have.
struct RefusedField {
  std::string name;
  std::string fields;
  std::string param;
};
inline std::string name_of(const testing::TestParamInfo<RefusedField>& info) {
  return info.param.name;
}
inline void PrintTo(const RefusedField& field, std::ostream* out) {
  *out << field.fields;
}

}  // namespace pagoda::http
