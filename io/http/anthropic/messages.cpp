#include "io/http/anthropic/messages.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/http/anthropic/conversation.hpp"
#include "io/http/anthropic/message_writer.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/foreign_fields.hpp"
#include "io/wire/request_fields.hpp"
#include "io/wire/structured_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::http::anthropic {
namespace {

using wire::FieldReader;

struct ThinkingFields {
  bool is_asked_for = false;
  std::optional<std::int64_t> budget = std::nullopt;
};

/// Reads `thinking` and sets the template's switch for it.
ThinkingFields read_thinking(FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  const auto* thinking = fields.read_object("thinking");
  if (thinking == nullptr) return {};
  FieldReader inner(*thinking, FieldReader::Nulls::absent, "thinking.");
  std::string type;
  std::string display;
  std::optional<std::int64_t> budget;
  inner.read("type", type);
  inner.read("budget_tokens", budget);
  inner.read("display", display);
  if (budget && *budget < 1) inner.refuse("budget_tokens", "budget_tokens must be at least 1");
  if (inner.has("display") && display != "summarized" && display != "omitted" && display != "updates") {
    inner.refuse("display", "display must be \"summarized\", \"omitted\" or \"updates\"");
  }
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    inner.refuse("type", "type must be \"enabled\", \"adaptive\" or \"disabled\"");
  } else if (prompts.knows("enable_thinking", chat)) {
    chat.chat_template_kwargs["enable_thinking"] = type != "disabled";
  } else if (type == "enabled" && !prompts.dialect()->thinking) {
    inner.ignore_value("type", type, "type \"enabled\" is not supported by this model");
  }
  if (type == "adaptive" && budget) inner.refuse("budget_tokens", "budget_tokens needs type \"enabled\"");
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  if (type == "disabled") return {};
  return {display != "omitted", budget};
}

/// Constraint of an answer, and the name of the field that sets it; null: none.
struct FormatFields {
  std::optional<StructuredOutput> constraint = std::nullopt;
  const char* name = nullptr;
};

/// Reads output_config, and output_format, its name in beta versions.
FormatFields read_output_config(FieldReader& fields, const chat::ChatPrompts& prompts, chat::ChatInput& chat) {
  FormatFields format;
  wire::read_schema_format(fields, "output_format", format.constraint);
  if (format.constraint) format.name = "output_format";
  const auto* config = fields.read_object("output_config");
  if (config == nullptr) return format;
  FieldReader inner(*config, FieldReader::Nulls::absent, "output_config.");
  std::string effort;
  inner.read("effort", effort);
  if (inner.has("effort") && prompts.knows("reasoning_effort", chat)) {
    chat.chat_template_kwargs["reasoning_effort"] = effort;
  } else {
    inner.ignore("effort", "is not supported by this model");
  }
  const auto* inner_format = inner.find("format");
  const bool is_given = inner_format != nullptr && !inner_format->is_null();
  if (is_given && format.constraint) {
    inner.refuse("format", "format and output_format exclude each other");
  } else if (is_given) {
    wire::read_schema_format(inner, "format", format.constraint, "output_config.");
    format.name = "output_config.format";
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  return format;
}

/// Returns whether the type is a search for tools with deferred loading.
bool is_tool_search(std::string_view type) {
  return type.starts_with("tool_search_tool_");
}

std::vector<wire::GivenTool> read_tool_list(FieldReader& fields) {
  const auto* given = fields.find("tools");
  if (given == nullptr) return {};
  if (!given->is_array()) return fields.refuse("tools", "tools must be a list"), std::vector<wire::GivenTool>();
  std::vector<wire::GivenTool> tools;
  for (std::size_t i = 0; i < given->size() && fields.has_no_error(); ++i) {
    wire::GivenTool& tool = tools.emplace_back();
    tool.where = "tools[" + std::to_string(i) + "]";
    if (!(*given)[i].is_object()) return fields.refuse(wire::invalid_field(tool.where, "must be an object")), tools;
    FieldReader one((*given)[i], FieldReader::Nulls::absent, tool.where + ".");
    std::string type = "custom";
    std::string description;
    one.read("type", type);
    if (is_tool_search(type) && one.has_no_error()) {  // all tools are in the prompt, so no search is needed
      one.ignore_value("type", type, "type is \"" + type + "\": tool search is not supported");
      tools.pop_back();
      continue;
    }
    if (type != "custom") {
      one.refuse("type", "type is \"" + type + "\": only the client's own tools (\"custom\") are supported");
    }
    one.read_required("name", tool.name);
    one.read("description", description);
    tool.function["name"] = tool.name;
    if (one.has("description")) tool.function["description"] = std::move(description);
    for (const char* name : {"cache_control", "strict", "eager_input_streaming"})
      one.skip(name);  // these fields have no effect here
    bool defers_loading = false;
    one.read("defer_loading", defers_loading);
    if (defers_loading) one.ignore("defer_loading", "is not supported: all tools are in the prompt");
    const auto* schema = one.read_object("input_schema");
    if (schema != nullptr) tool.function["parameters"] = *schema;
    if (schema == nullptr && one.has_no_error()) one.refuse("input_schema", "input_schema is required");
    if (auto status = one.finish(); !status) fields.refuse(std::move(status.error()));
  }
  return tools;
}

void read_tool_use(FieldReader& fields, chat::ChatInput& chat, chat::ToolUse& use) {
  const auto tools = read_tool_list(fields);
  auto choice = chat::ToolChoice::automatic;
  std::vector<std::string> allowed;  // all if it is empty
  if (const auto* given = fields.read_object("tool_choice")) {
    FieldReader inner(*given, FieldReader::Nulls::absent, "tool_choice.");
    std::string type;
    bool without_parallel = false;
    inner.read_required("type", type);
    inner.read("disable_parallel_tool_use", without_parallel);
    use.parallel = !without_parallel;
    if (type == "none") {
      choice = chat::ToolChoice::none;
    } else if (type == "any") {
      choice = chat::ToolChoice::required;
    } else if (type == "tool") {
      choice = chat::ToolChoice::required;
      inner.read_required("name", allowed.emplace_back());
      use.parallel = false;
    } else if (type != "auto") {
      inner.refuse("type", "type must be \"auto\", \"any\", \"tool\" or \"none\"");
    }
    if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  }
  wire::set_tools(fields, tools, choice, allowed, chat, use);
}

/// Reads context_management, a list of edits that shorten a long conversation. clear_thinking with keep "all" is
/// accepted because it changes nothing. Other edits are ignored by their type, because this server does not shorten
/// conversations.
void read_context_management(FieldReader& fields) {
  constexpr const char* kName = "context_management";
  const auto* management = fields.read_object(kName);
  if (management == nullptr) return;
  FieldReader inner(*management, FieldReader::Nulls::absent, "context_management.");
  const auto* edits = inner.find("edits");
  if (edits != nullptr && !edits->is_array()) inner.refuse("edits", "edits must be a list");
  if (edits != nullptr && edits->is_array()) {
    for (std::size_t i = 0; i < edits->size(); ++i) {
      const auto where = "context_management.edits[" + std::to_string(i) + "]";
      const auto& edit = (*edits)[i];
      if (!edit.is_object()) return fields.refuse(wire::invalid_field(where, "must be an object"));
      FieldReader one(edit, FieldReader::Nulls::absent, where + ".");
      std::string type;
      one.read_required("type", type);
      const auto* keep = one.find("keep");
      const bool keeps_all = type.starts_with("clear_thinking_") && keep != nullptr && *keep == "all";
      if (one.has_no_error() && !keeps_all) {
        one.ignore_value("type", type, "type \"" + type + "\" is not supported: the whole conversation is used");
      }
      for (const char* name : {"trigger", "clear_at_least", "exclude_tools", "clear_tool_inputs"}) one.skip(name);
      if (auto status = one.finish(); !status) return fields.refuse(std::move(status.error()));
    }
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

/// Reads fields that have no effect on the answer.
void read_fields_without_effect(FieldReader& fields) {
  fields.skip("service_tier");
  fields.skip("cache_control");  // the prefix cache is automatic
  wire::refuse_unless(fields, "mcp_servers", {wire::Json::array()}, ": this server does not call MCP servers");
  wire::refuse_unless(fields, "container", {}, ": this server has no containers");
  read_context_management(fields);
  const auto* metadata = fields.read_object("metadata");
  if (metadata == nullptr) return;
  FieldReader inner(*metadata, FieldReader::Nulls::absent, "metadata.");
  inner.skip("user_id");
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

/// Returns an error with the code that makes the client library's tool runner send the whole conversation instead.
ErrorAnswer no_threads() {
  auto refused = invalid_request("thread is not supported: conversations are not stored; send all messages", "thread");
  refused.code = "thread_unsupported_request";
  return refused;
}

struct Prompt {
  chat::ChatInput chat;
  chat::ToolUse tools;
  ThinkingFields thinking;
  FormatFields format;
};

/// Reads the fields of a prompt, which are all fields of count_tokens.
Prompt read_prompt(FieldReader& fields, const chat::ChatPrompts& prompts) {
  Prompt prompt;
  fields.skip("model");
  read_conversation(fields, prompt.chat);
  wire::read_chat_options(fields, prompt.chat);
  read_tool_use(fields, prompt.chat, prompt.tools);
  prompt.thinking = read_thinking(fields, prompts, prompt.chat);
  prompt.format = read_output_config(fields, prompts, prompt.chat);
  read_fields_without_effect(fields);
  return prompt;
}

void read_sampling(FieldReader& fields, GenerateRequest& request) {
  request.open = OpenSamplingFields::all();
  request.open.max_tokens = false;
  if (!fields.has("max_tokens")) fields.refuse("max_tokens", "max_tokens is required");
  fields.read("max_tokens", request.sampling.max_tokens);
  if (fields.has("stop_sequences") && fields.has("stop")) {
    fields.refuse("stop_sequences", "stop_sequences and stop exclude each other");
  }
  wire::read_single_answer_fields(fields, request);
  if (request.sampling.logprob_token_ids) {
    fields.refuse("logprob_token_ids", "logprob_token_ids is not supported: a message cannot carry logprobs");
  }
  fields.read_strings("stop_sequences", request.sampling.stop);
}

}  // namespace

ParsedJob parse_messages(const wire::Json& body, const chat::ChatPrompts& prompts, Head head) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  if (fields.has("thread")) return tl::unexpected(no_threads());
  GenerateRequest request;
  request.add_special_tokens = false;  // the template contains them
  GenerationJob job;
  MessageOptions options;
  Prompt prompt = read_prompt(fields, prompts);
  read_sampling(fields, request);
  job.names = field_names("messages", {{"stop", "stop_sequences"}});
  if (prompt.format.name != nullptr) {
    const bool has_both = request.sampling.structured_outputs.has_value();
    if (has_both)
      fields.refuse(prompt.format.name, std::string(prompt.format.name) + " and structured_outputs exclude each other");
    request.sampling.structured_outputs = std::move(prompt.format.constraint);
    job.names.emplace_back("structured_outputs", prompt.format.name);
  } else if (!prompt.tools.tools.empty() && !request.sampling.structured_outputs) {
    job.names.emplace_back("structured_outputs", "tools");
  }
  if (prompt.thinking.budget && !request.sampling.thinking_token_budget) {
    request.sampling.thinking_token_budget = prompt.thinking.budget;
    request.may_drop_thinking_budget = true;  // the API requires the budget and treats it as a target
  }
  fields.read("stream", job.stream);
  fields.read("timing", options.timing);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  auto reading = chat::prepare(prompts, std::move(prompt.chat), prompt.tools, request);
  if (!reading) return tl::unexpected(error_answer(reading.error()));
  options.reading = std::move(*reading);
  options.shows_thinking = prompt.thinking.is_asked_for;

  job.requests.push_back(std::move(request));
  job.writer = std::make_unique<MessageWriter>(std::move(head), std::move(options));
  return job;
}

tl::expected<actors::TokenizeRequest, ErrorAnswer> parse_count_tokens(const wire::Json& body,
                                                                      const chat::ChatPrompts& prompts) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  GenerateRequest request;
  Prompt prompt = read_prompt(fields, prompts);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (auto status = prompts.apply(std::move(prompt.chat), request); !status)
    return tl::unexpected(error_answer(status.error()));
  return actors::TokenizeRequest{std::move(*request.prompt), false, std::move(request.prompt_literals)};
}

}  // namespace pagoda::http::anthropic
