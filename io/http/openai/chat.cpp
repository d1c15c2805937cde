#include "io/http/openai/chat.hpp"

#include <limits>
#include <optional>
#include <utility>

#include "io/chat/answer_reading.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/http/openai/chat_writer.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/request_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;

void read_max_tokens(FieldReader& fields, GenerateRequest& request) {
  // Absent: the rest of the context, to which the engine lowers what is more.
  request.sampling.max_tokens = std::numeric_limits<std::int32_t>::max();
  request.open.max_tokens = false;
  const bool old_name = fields.has("max_tokens");
  fields.read("max_tokens", request.sampling.max_tokens);
  if (fields.has("max_completion_tokens") && old_name) {
    fields.refuse("max_completion_tokens", "max_completion_tokens and max_tokens exclude each other");
  }
  fields.read("max_completion_tokens", request.sampling.max_tokens);
}

void read_logprobs(FieldReader& fields, ChatOptions& options, SamplingParams& sampling) {
  std::int64_t num_top = 0;
  fields.read("logprobs", options.logprobs);
  fields.read("top_logprobs", num_top);
  if (num_top < 0) fields.refuse("top_logprobs", "top_logprobs must be at least 0");
  if (num_top > 0 && !options.logprobs) fields.refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (options.logprobs) sampling.logprobs = num_top;
  options.num_top = static_cast<std::size_t>(std::max<std::int64_t>(num_top, 0));
}

}  // namespace

ParsedJob parse_chat(const wire::Json& body, const chat::ChatPrompts& prompts, Head head) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  ChatOptions options;
  auto request = request_with_defaults();
  request.add_special_tokens = false;  // the template writes them
  chat::ChatInput chat;
  fields.skip("model");
  read_noise(fields);
  wire::read_chat(fields, chat);
  options.stream = read_stream(fields);
  read_max_tokens(fields, request);
  read_logprobs(fields, options, request.sampling);
  chat::ToolUse tools;
  wire::read_tool_use(fields, /*is_flat=*/false, chat, tools);
  read_effort(fields, "reasoning_effort", prompts, chat);  // of the template that is for these tools
  fields.read("return_token_ids", options.return_token_ids);
  fields.read("timing", options.timing);
  wire::read_request_fields(fields, request);
  refuse_functions(fields);
  fields.read("include_reasoning", options.include_reasoning);
  FieldNames names = field_names("messages", {{"logprobs", "top_logprobs"}});
  read_response_format(fields, request.sampling, names);
  if (request.sampling.prompt_logprobs && options.stream.stream) {
    fields.refuse("prompt_logprobs", "prompt_logprobs is not supported with stream");
  }
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (!tools.tools.empty() && !request.sampling.structured_outputs) {
    names.insert(names.begin(), {"structured_outputs", "tools"});
  }
  auto reading = chat::prepare(prompts, std::move(chat), tools, request);
  if (!reading) return tl::unexpected(error_answer(reading.error()));
  options.reading = std::move(*reading);

  GenerationJob job;
  job.stream = options.stream.stream;
  job.names = std::move(names);
  if (body.contains("max_completion_tokens")) job.names.emplace_back("max_tokens", "max_completion_tokens");
  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<ChatWriter>(std::move(head), std::move(options));
  return job;
}

}  // namespace pagoda::http::openai
