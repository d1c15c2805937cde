#include "io/http/anthropic/messages.hpp"

#include <memory>
#include <utility>

#include "io/http/anthropic/conversation.hpp"
#include "io/http/anthropic/message_writer.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/request_fields.hpp"

namespace pagoda::http::anthropic {
namespace {

using wire::FieldReader;

/// The switch is the template's. How long the model thinks is its own choice, within max_tokens: budget_tokens is a
/// target that Anthropic too lets a model miss.
void read_thinking(FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  const auto* thinking = fields.read_object("thinking");
  if (thinking == nullptr) return;
  FieldReader inner(*thinking, FieldReader::Nulls::absent, "thinking.");
  std::string type;
  std::int64_t budget = 1024;
  inner.read("type", type);
  inner.read("budget_tokens", budget);
  if (budget < 1) inner.refuse("budget_tokens", "budget_tokens must be at least 1");
  if (type != "enabled" && type != "disabled") {
    inner.refuse("type", "type must be \"enabled\" or \"disabled\"");
  } else if (prompts.knows("enable_thinking", chat)) {
    chat.chat_template_kwargs["enable_thinking"] = type == "enabled";
  } else if (type == "enabled") {
    inner.refuse("type", "type \"enabled\" is not supported by this model");
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

void refuse_tools(FieldReader& fields) {
  if (const auto* tools = fields.find("tools"); tools != nullptr && !(tools->is_array() && tools->empty())) {
    fields.refuse("tools", "tools is not supported by this server");
  }
  const auto* choice = fields.read_object("tool_choice");
  if (choice == nullptr) return;
  const auto type = choice->find("type");
  if (type == choice->end() || (*type != "none" && *type != "auto")) {
    fields.refuse("tool_choice", "tool_choice is supported as {\"type\": \"none\"} or {\"type\": \"auto\"} only");
  }
}

/// Who asks and for what price: nothing that changes the answer.
void read_noise(FieldReader& fields) {
  fields.skip("service_tier");
  fields.skip("cache_control");  // every prefix is cached
  const auto* metadata = fields.read_object("metadata");
  if (metadata == nullptr) return;
  FieldReader inner(*metadata, FieldReader::Nulls::absent, "metadata.");
  inner.skip("user_id");
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

/// What a prompt is made of: all that count_tokens takes.
void read_prompt(FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  fields.skip("model");
  read_conversation(fields, chat);
  wire::read_chat_options(fields, chat);
  read_thinking(fields, prompts, chat);
  refuse_tools(fields);
  read_noise(fields);
}

void read_sampling(FieldReader& fields, GenerateRequest& request) {
  request.open = OpenSamplingFields::all();
  request.open.temperature = false;  // 1, whatever the model's maker recommends
  request.open.max_tokens = false;
  if (!fields.has("max_tokens")) fields.refuse("max_tokens", "max_tokens is required");
  fields.read("max_tokens", request.sampling.max_tokens);
  if (fields.has("stop_sequences") && fields.has("stop")) {
    fields.refuse("stop_sequences", "stop_sequences and stop exclude each other");
  }
  wire::read_single_answer_fields(fields, request);
  fields.read_strings("stop_sequences", request.sampling.stop);
}

}  // namespace

ParsedJob parse_messages(const wire::Json& body, const chat::ChatPrompts& prompts, Head head) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  GenerateRequest request;
  request.add_special_tokens = false;  // the template writes them
  chat::ChatInput chat;
  GenerationJob job;
  bool timing = false;
  read_prompt(fields, prompts, chat);
  read_sampling(fields, request);
  fields.read("stream", job.stream);
  fields.read("timing", timing);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (auto status = prompts.apply(chat, request); !status) return tl::unexpected(error_answer(status.error()));

  job.names = field_names("messages", {{"stop", "stop_sequences"}});
  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<MessageWriter>(std::move(head), timing);
  return job;
}

tl::expected<actors::TokenizeRequest, ErrorAnswer> parse_count_tokens(const wire::Json& body,
                                                                      const chat::ChatPrompts& prompts) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  GenerateRequest request;
  chat::ChatInput chat;
  read_prompt(fields, prompts, chat);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (auto status = prompts.apply(chat, request); !status) return tl::unexpected(error_answer(status.error()));
  return actors::TokenizeRequest{std::move(*request.prompt), false, std::move(request.prompt_literals)};
}

}  // namespace pagoda::http::anthropic
