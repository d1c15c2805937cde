#include "io/http/openai/chat.hpp"

#include <limits>
#include <optional>
#include <utility>

#include "io/chat/answer_reading.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/http/openai/chat_writer.hpp"
#include "io/wire/foreign_fields.hpp"
#include "io/wire/request_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;

/// Reads SGLang's fields for the form of the thinking in the answer.
void read_reasoning_form(FieldReader& fields, ChatOptions& options, bool& is_separate) {
  fields.read("include_reasoning", options.include_reasoning);
  fields.read("stream_reasoning", options.stream_reasoning);
  fields.read("separate_reasoning", is_separate);
}

/// Refuses fields that request more than a text.
void refuse_other_answers(FieldReader& fields) {
  wire::refuse_unless(fields, "audio", {}, ": this model writes text only");
  wire::refuse_unless(fields, "web_search_options", {}, ": this server does not search");
  wire::refuse_unless(fields, "echo", {false}, ": the answer does not repeat the messages");
}

void read_logprobs(FieldReader& fields, ChatOptions& options, SamplingParams& sampling) {
  std::int64_t num_top = 0;
  fields.read("logprobs", options.logprobs);
  fields.read("top_logprobs", num_top);
  if (num_top < -1) fields.refuse("top_logprobs", "top_logprobs must be at least 0, or -1: the whole vocabulary");
  if (num_top != 0 && !options.logprobs) fields.refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (options.logprobs) sampling.logprobs = num_top;
  check_logprob_token_ids(fields, sampling, "logprobs: true");
  options.num_top = num_top_of(num_top, sampling);
}

}  // namespace

ParsedJob parse_chat(const wire::Json& body, const chat::ChatPrompts& prompts, Head head) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  ChatOptions options;
  auto request = request_with_defaults();
  request.add_special_tokens = false;  // the template contains them
  chat::ChatInput chat;
  fields.skip("model");
  read_fields_without_effect(fields);
  fields.skip("prediction");  // has no effect on the answer
  chat::ToolUse tools;
  read_chat_prompt(fields, prompts, chat, tools);
  options.stream = read_stream(fields);
  // If the field is absent, the recommendation of the model's maker applies, or else the rest of the context, to which
  // the engine reduces larger values.
  request.sampling.max_tokens = std::numeric_limits<std::int32_t>::max();
  read_max_tokens(fields, request);
  fields.read("return_token_ids", options.return_token_ids);
  fields.read("timing", options.timing);
  wire::read_api_fields(fields, request);
  read_logprobs(fields, options, request.sampling);
  refuse_functions(fields);
  refuse_other_answers(fields);
  bool is_reasoning_separate = true;
  read_reasoning_form(fields, options, is_reasoning_separate);
  FieldNames names = field_names("messages", {{"logprobs", "top_logprobs"}});
  add_name_of_max_tokens(fields, names);
  read_response_format(fields, request.sampling, names);
  if (request.sampling.prompt_logprobs && options.stream.stream) {
    fields.refuse("prompt_logprobs", "prompt_logprobs is not supported with stream");
  }
  if (!request.sampling.detokenize && !tools.tools.empty()) {
    fields.refuse("detokenize", "detokenize must be true with tools: calls are read from the text");
  }
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (!tools.tools.empty() && !request.sampling.structured_outputs) {
    names.insert(names.begin(), {"structured_outputs", "tools"});
  }
  auto reading = chat::prepare(prompts, std::move(chat), tools, request);
  if (!reading) return tl::unexpected(error_answer(reading.error()));
  options.reading = is_reasoning_separate ? std::move(*reading) : chat::without_thinking(std::move(*reading));

  GenerationJob job;
  job.stream = options.stream.stream;
  job.names = std::move(names);
  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<ChatWriter>(std::move(head), std::move(options));
  return job;
}

}  // namespace pagoda::http::openai
