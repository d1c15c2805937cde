#include "io/http/ollama/turn.hpp"

#include <string>
#include <utility>

#include "io/http/ollama/options.hpp"
#include "io/wire/structured_fields.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::FieldReader;

bool is_empty(const wire::Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

void read_logprobs(FieldReader& fields, Turn& turn) {
  std::int64_t num_top = 0;
  fields.read("logprobs", turn.answer.logprobs);
  fields.read("top_logprobs", num_top);
  if (num_top < 0) fields.refuse("top_logprobs", "top_logprobs must be at least 0");
  if (num_top > 0 && !turn.answer.logprobs) fields.refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (turn.answer.logprobs) turn.request.sampling.logprobs = num_top;
  turn.answer.num_top = static_cast<std::size_t>(std::max<std::int64_t>(num_top, 0));
}

}  // namespace

void read_common(FieldReader& fields, Turn& turn) {
  turn.request = request_with_defaults();
  read_options(fields, turn.request);
  fields.read("stream", turn.stream);
  read_logprobs(fields, turn);
  fields.skip("keep_alive");
  wire::read_json_format(fields, "format", turn.request.sampling.structured_outputs);
  refuse_unless_empty(fields, "images", "this model accepts text only");
  refuse_unless_empty(fields, "adapter", "a request names its adapter as its model");
  bool is_default = true;  // what does not fit the context is refused either way
  for (const char* name : {"truncate", "shift"}) fields.read(name, is_default);
}

void read_think(FieldReader& fields, const chat::ChatPrompts* prompts, Turn& turn) {
  auto& chat = turn.chat;
  const auto& model = turn.answer.model;
  const auto* think = fields.find("think");
  if (think == nullptr) return;
  const bool is_level = *think == "low" || *think == "medium" || *think == "high";
  if (!think->is_boolean() && !is_level) {
    return fields.refuse("think", "think must be true, false, \"low\", \"medium\" or \"high\"");
  }
  const bool wanted = is_level || think->get<bool>();
  const auto knows = [&](const char* variable) { return prompts != nullptr && prompts->knows(variable, chat); };
  if (is_level && knows("reasoning_effort")) {
    chat.chat_template_kwargs["reasoning_effort"] = *think;
  } else if (knows("enable_thinking")) {
    chat.chat_template_kwargs["enable_thinking"] = wanted;
  } else if (wanted && !(prompts != nullptr && prompts->dialect()->thinking)) {
    fields.refuse("think", "think: \"" + model + "\" does not support thinking");
  }
}

void refuse_unless_empty(FieldReader& fields, const char* name, const char* why) {
  const auto* value = fields.find(name);
  if (value != nullptr && !is_empty(*value)) fields.refuse(name, std::string(name) + " is not supported: " + why);
}

GenerationJob make_job(Turn turn, const char* prompt_param) {
  GenerationJob job;
  job.stream = turn.stream;
  job.names = field_names(prompt_param, {{"repetition_penalty", "options.repeat_penalty"},
                                         {"max_tokens", "options.num_predict"},
                                         {"temperature", "options.temperature"},
                                         {"top_k", "options.top_k"},
                                         {"top_p", "options.top_p"},
                                         {"min_p", "options.min_p"},
                                         {"stop", "options.stop"},
                                         {"presence_penalty", "options.presence_penalty"},
                                         {"frequency_penalty", "options.frequency_penalty"},
                                         {"repeat_last_n", "options.repeat_last_n"},
                                         {"logprobs", "top_logprobs"},
                                         {"structured_outputs", "format"}});
  job.requests.push_back(std::move(turn.request));
  job.writer = make_writer(std::move(turn.answer));
  return job;
}

}  // namespace pagoda::http::ollama
