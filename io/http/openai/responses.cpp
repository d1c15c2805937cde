#include "io/http/openai/responses.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "io/chat/answer_reading.hpp"
#include "io/chat/tool_call_id.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/http/openai/response_items.hpp"
#include "io/http/openai/response_writer.hpp"
#include "io/wire/call_arguments.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/exact_json.hpp"
#include "io/wire/foreign_fields.hpp"
#include "io/wire/request_fields.hpp"
#include "io/wire/structured_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;
using wire::Json;

constexpr std::size_t kMaxStoredDepth = 256;  // for stored conversations; arguments of calls have a depth of at most 64
/// Values of `include` for items that this server never produces.
constexpr std::string_view kIncludesOfOtherItems[] = {
    "web_search_call.action.sources",        "web_search_call.results",  "code_interpreter_call.outputs",
    "computer_call_output.output.image_url", "file_search_call.results", "message.input_image.image_url",
};
constexpr std::size_t kMaxMetadata = 16;
constexpr std::size_t kMaxMetadataKeyBytes = 64 * 4;     // 64 characters
constexpr std::size_t kMaxMetadataValueBytes = 512 * 4;  // 512 characters

void read_metadata(FieldReader& fields, Json& metadata) {
  const auto* given = fields.read_object("metadata");
  if (given == nullptr) return;
  if (given->size() > kMaxMetadata)
    return fields.refuse("metadata", "metadata has more than " + std::to_string(kMaxMetadata) + " pairs");
  for (const auto& [key, value] : given->items()) {
    if (!value.is_string() || key.size() > kMaxMetadataKeyBytes ||
        value.get_ref<const std::string&>().size() > kMaxMetadataValueBytes) {
      return fields.refuse("metadata", "metadata must map strings to strings: keys have at most " +
                                           std::to_string(kMaxMetadataKeyBytes) + " and values at most " +
                                           std::to_string(kMaxMetadataValueBytes) + " bytes");
    }
  }
  metadata = *given;
}

/// Reads the format of the text. Call after structured_outputs is read.
void read_text_form(FieldReader& fields, ResponseOptions& options, SamplingParams& sampling) {
  const auto* text = fields.read_object("text");
  if (text == nullptr) return;
  FieldReader inner(*text, FieldReader::Nulls::absent, "text.");
  wire::read_format(inner, "format", wire::FormatPlace::beside, sampling.structured_outputs, "text.");
  if (const auto* format = inner.read_object("format")) options.format = *format;
  if (const auto* verbosity = inner.find("verbosity"); verbosity != nullptr && *verbosity != "medium") {
    inner.ignore("verbosity", "is supported as \"medium\" only");
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

void read_reasoning(FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat,
                    ResponseOptions& options) {
  const auto* reasoning = fields.read_object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader inner(*reasoning, FieldReader::Nulls::absent, "reasoning.");
  inner.read("effort", options.effort);
  read_effort(inner, "effort", prompts, chat);
  inner.read("summary", options.summary);
  if (options.summary && options.summary != "auto") {
    inner.ignore("summary", "is supported as \"auto\" only: reasoning is not summarized");
  }
  inner.ignore("generate_summary");
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

void read_logprobs(FieldReader& fields, ResponseOptions& options, SamplingParams& sampling) {
  std::vector<std::string> include;
  fields.read_strings("include", include);
  for (const auto& what : include) {
    if (what == "message.output_text.logprobs") {
      options.logprobs = true;
    } else if (what == "reasoning.encrypted_content") {
      options.encrypted_reasoning = true;
    } else if (std::ranges::find(kIncludesOfOtherItems, what) == std::end(kIncludesOfOtherItems)) {
      fields.ignore_value("include", what, "include \"" + what + "\" is not supported");
    }
  }
  fields.read("top_logprobs", options.top_logprobs);
  if (options.top_logprobs < -1) {
    fields.refuse("top_logprobs", "top_logprobs must be at least 0, or -1: the whole vocabulary");
  }
  if (options.top_logprobs != 0 && !options.logprobs) {
    fields.refuse("top_logprobs", "top_logprobs needs include: [\"message.output_text.logprobs\"]");
  }
  if (options.logprobs) sampling.logprobs = options.top_logprobs;
  check_logprob_token_ids(fields, sampling, "include: [\"message.output_text.logprobs\"]");
  options.num_top = num_top_of(options.top_logprobs, sampling);
}

void read_max_tokens(FieldReader& fields, ResponseOptions& options, GenerateRequest& request) {
  fields.read("max_output_tokens", options.max_output_tokens);
  if (options.max_output_tokens.value_or(1) < 1) {
    fields.refuse("max_output_tokens", "max_output_tokens must be at least 1");
  }
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (fields.find(name) != nullptr)
      fields.refuse(name, std::string(name) + " is not supported: use max_output_tokens");
  }
  // If the field is absent, the recommendation of the model's maker applies, or else the rest of the context, to which
  // the engine reduces larger values.
  request.open.max_tokens = !options.max_output_tokens;
  request.sampling.max_tokens = options.max_output_tokens.value_or(std::numeric_limits<std::int32_t>::max());
}

void read_tools(FieldReader& fields, chat::ChatInput& chat, chat::ToolUse& use, ResponseOptions& options) {
  wire::read_tool_use(fields, /*is_flat=*/true, chat, use);
  if (const auto* tools = fields.find("tools"); tools != nullptr && tools->is_array()) options.tools = *tools;
  if (const auto* choice = fields.find("tool_choice"); choice != nullptr && !choice->is_null()) {
    options.tool_choice = *choice;
  }
  options.parallel_tool_calls = use.parallel;
}

/// Refuses modes of answering that this server does not support.
void refuse_unsupported_modes(FieldReader& fields) {
  bool background = false;
  fields.read("background", background);
  if (background)
    fields.refuse("background", "background is not supported: an answer is sent only to the client that waits for it");
  std::string truncation = "disabled";
  fields.read("truncation", truncation);
  if (truncation != "disabled") fields.refuse("truncation", "truncation is supported as \"disabled\" only");
  wire::refuse_unless(fields, "conversation", {}, ": send its items as input");
  wire::refuse_unless(fields, "prompt", {}, ": this server stores no prompts");
  fields.skip("max_tool_calls");   // limits tools that the server runs; this server runs none
  fields.skip("client_metadata");  // has no effect on the answer
}

/// Reports the reasoning items of the input as ignored if the model's template has no place for them. They come from a
/// conversation that began with another model.
void report_dropped_reasoning(const Json& body, const chat::ChatPrompts& prompts, const chat::ChatInput& chat) {
  auto* ignored = wire::IgnoredFields::current();
  if (ignored == nullptr || !has_reasoning(body) || prompts.dialect()->thinking) return;
  if (!prompts.history_form(chat).shows_reasoning) ignored->add("input[].type=reasoning");
}

ErrorAnswer no_previous_response(const std::string& id) {
  return {400, "Previous response with id '" + id + "' not found.", "previous_response_id",
          "previous_response_not_found"};
}

/// Returns the stored conversation with the new input.
tl::expected<Json, ErrorAnswer> read_conversation(FieldReader& fields, const ResponseStore& store,
                                                  const ResponseStore::Owner& owner, ResponseOptions& options) {
  auto messages = Json::array();
  fields.read("previous_response_id", options.previous_response_id);
  if (options.previous_response_id) {
    const auto previous = store.find(owner, *options.previous_response_id);
    if (!previous) return tl::unexpected(no_previous_response(*options.previous_response_id));
    messages = wire::read_json(previous->messages, kMaxStoredDepth, wire::Integers::exact).value();
  }
  read_input(fields, messages);
  return messages;
}

/// Returns the answer as a message of the assistant.
Json answered(const chat::Answer& answer, const std::string& id) {
  Json message{{"role", "assistant"}, {"content", answer.content()}};
  if (auto thinking = answer.thinking(); !thinking.empty()) message["reasoning_content"] = std::move(thinking);
  for (const auto& call : answer.calls()) {
    const Json function{{"name", call.name}, {"arguments", wire::read_call_arguments(call.text)}};
    message["tool_calls"].push_back(
        Json{{"id", chat::tool_call_id(id, 0, call.call)}, {"type", "function"}, {"function", function}});
  }
  return message;
}

ResponseWriter::OnFinished make_store_callback(ResponseStore& store, const ResponseStore::Owner& owner,
                                               const Head& head, const Json& conversation) {
  return [&store, owner, head, messages = wire::json_text(conversation)](const std::string& body,
                                                                         const chat::Answer& answer) {
    auto all = messages;
    all.back() = ',';  // replaces the end of the list
    all += wire::json_text(answered(answer, head.id));
    all += ']';
    store.put(owner, ResponseWriter::id_of(head), {body, std::move(all)});
  };
}

}  // namespace

ParsedJob parse_response(const wire::Json& body, const chat::ChatPrompts& prompts, ResponseStore& store,
                         const ResponseStore::Owner& owner, Head head, const SamplingDefaults& defaults) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  ResponseOptions options;
  auto request = request_with_defaults();
  request.add_special_tokens = false;  // the template contains them
  chat::ChatInput chat;
  fields.skip("model");
  skip_fields_without_effect(fields);
  auto conversation = read_conversation(fields, store, owner, options);
  if (!conversation) return tl::unexpected(std::move(conversation.error()));
  fields.read("instructions", options.instructions);
  wire::read_chat_options(fields, chat);
  const bool stream = read_stream(fields).stream;
  fields.read("store", options.store);
  fields.read("timing", options.timing);
  read_max_tokens(fields, options, request);
  chat::ToolUse tools;
  read_tools(fields, chat, tools, options);
  read_reasoning(fields, prompts, chat, options);  // after the tools, which select the template
  report_dropped_reasoning(body, prompts, chat);
  read_metadata(fields, options.metadata);
  refuse_functions(fields);
  refuse_unsupported_modes(fields);
  wire::read_single_answer_fields(fields, request);
  read_logprobs(fields, options, request.sampling);
  FieldNames names = field_names("input", {{"max_tokens", "max_output_tokens"}, {"logprobs", "top_logprobs"}});
  if (!request.sampling.structured_outputs) names.emplace_back("structured_outputs", "text.format");
  read_text_form(fields, options, request.sampling);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));

  if (options.instructions) chat.messages.push_back(Json{{"role", "system"}, {"content", *options.instructions}});
  for (const auto& message : *conversation) chat.messages.push_back(message);
  if (!tools.tools.empty() && !request.sampling.structured_outputs) {
    names.insert(names.begin(), {"structured_outputs", "tools"});
  }
  auto reading = chat::prepare(prompts, std::move(chat), tools, request);
  if (!reading) {
    auto answer = error_answer(reading.error());
    if (answer.param == "messages") answer.param = "input";
    return tl::unexpected(std::move(answer));
  }
  options.reading = std::move(*reading);
  const auto sampling = with_defaults(request.sampling, request.open, defaults);
  options.temperature = sampling.temperature;
  options.top_p = sampling.top_p;
  options.user = request.user;

  GenerationJob job;
  job.stream = stream;
  job.names = std::move(names);
  ResponseWriter::OnFinished on_finished;
  if (options.store) on_finished = make_store_callback(store, owner, head, *conversation);
  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<ResponseWriter>(std::move(head), std::move(options), std::move(on_finished));
  return job;
}

}  // namespace pagoda::http::openai
