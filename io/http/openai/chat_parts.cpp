#include "io/http/openai/chat_parts.hpp"

#include <algorithm>
#include <string>

namespace pagoda::http::openai {
void read_effort(wire::FieldReader& fields, const char* name, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  std::string effort;
  fields.read(name, effort);
  if (!fields.has(name)) return;
  if (prompts.knows("reasoning_effort", chat)) {
    chat.chat_template_kwargs["reasoning_effort"] = effort;
  } else if (prompts.knows("enable_thinking", chat)) {
    chat.chat_template_kwargs["enable_thinking"] = effort != "none";
  } else if (effort != "none") {
    fields.refuse(name, std::string(name) + " is not supported by this model");
  }
}

void write_token_logprobs(wire::JsonWriter& json, const std::vector<LogprobEntry>& entries, std::size_t num_top) {
  json.array(entries, [num_top](wire::JsonWriter& list, const LogprobEntry& entry) {
    list.open_object();
    wire::write_token(list, entry.token, entry.logprob);
    list.key("top_logprobs").open_array();
    for (std::size_t i = 0; i < std::min(num_top, entry.top.size()); ++i) {
      list.open_object();
      wire::write_token(list, entry.top[i].token, entry.top[i].logprob);
      list.close_object();
    }
    list.close_array().close_object();
  });
}

}  // namespace pagoda::http::openai
