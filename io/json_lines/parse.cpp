#include "io/json_lines/protocol.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/request_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::json_lines {
namespace {

using Parsed = tl::expected<ClientMessage, RefusedLine>;

constexpr const char* kNoTemplate = "the model has no chat template: give a prompt, or start with --chat-template";

chat::ChatInput read_chat_request(FieldReader& fields, const chat::ChatPrompts* prompts) {
  chat::ChatInput chat;
  read_chat(fields, chat);
  read_tools(fields, chat);
  if (prompts == nullptr) fields.refuse("messages", kNoTemplate);
  return chat;
}

std::string read_and_render(FieldReader& fields, const chat::ChatPrompts* prompts) {
  auto chat = read_chat_request(fields, prompts);
  if (!fields.is_fine()) return {};
  auto text = prompts->render(std::move(chat));
  if (text) return std::move(*text);
  fields.refuse(wire_error(text.error()));
  return {};
}

/// The prompt of a conversation.
void read_conversation(FieldReader& fields, const chat::ChatPrompts* prompts, GenerateRequest& request) {
  auto chat = read_chat_request(fields, prompts);
  request.add_special_tokens = false;  // the template writes them
  if (request.prompt || request.prompt_token_ids) {
    fields.refuse("messages", "messages takes the place of prompt and prompt_token_ids");
  }
  if (!fields.is_fine()) return;
  if (auto status = prompts->apply(std::move(chat), request); !status) fields.refuse(wire_error(status.error()));
}

GenerateRequest read_generate(FieldReader& fields, const chat::ChatPrompts* prompts, GenerateRequest request) {
  request.prompt.reset();
  request.prompt_token_ids.reset();
  fields.read("prompt", request.prompt);
  fields.read("prompt_token_ids", request.prompt_token_ids);
  if (fields.has("messages")) read_conversation(fields, prompts, request);
  fields.read("stream", request.stream);
  read_open(fields, "max_tokens", request.sampling.max_tokens, request.open.max_tokens);
  fields.read("logprobs", request.sampling.logprobs);
  read_request_fields(fields, request);
  if (request.prompt && request.prompt_token_ids) {
    fields.refuse("prompt_token_ids", "give either prompt or prompt_token_ids, not both");
  } else if (!request.prompt && !request.prompt_token_ids) {
    fields.refuse("prompt", "prompt, prompt_token_ids or messages is required");
  }
  return request;
}

/// The line's id when it has a usable one; `fields` learns what is wrong with it otherwise.
ClientId read_id(const Json& object, FieldReader& fields, bool required) {
  const auto it = object.find("id");
  fields.skip("id");
  if (it == object.end() || it->is_null()) {
    if (required) fields.refuse("id", "id is required");
    return {};
  }
  if (!it->is_string()) {
    fields.refuse("id", "id must be a string");
    return {};
  }
  const auto& id = it->get_ref<const std::string&>();
  if (id.empty() || id.size() > kMaxIdBytes) {
    fields.refuse("id",
                  "id must have 1 to " + std::to_string(kMaxIdBytes) + " bytes, not " + std::to_string(id.size()));
    return {};
  }
  return id;
}

/// A field that has to be there.
template <class T>
T read_required(FieldReader& fields, const char* name) {
  std::optional<T> value;
  fields.read(name, value);
  if (!value) fields.refuse(name, std::string(name) + " is required");
  return std::move(value).value_or(T{});
}

Parsed read_message(std::string_view op, const Json& object, const chat::ChatPrompts* prompts) {
  FieldReader fields(object);
  fields.skip("op");
  auto id = read_id(object, fields, op == "generate" || op == "cancel" || op == "attach");
  ClientMessage message;
  if (op == "generate") {
    GenerateRequest defaults;
    defaults.open = OpenSamplingFields::all();
    auto request = std::make_shared<GenerateRequest>(read_generate(fields, prompts, std::move(defaults)));
    GenerateOp generate{id.value_or(""), std::move(request)};
    fields.read("timing", generate.timing);
    message = std::move(generate);
  } else if (op == "cancel") {
    message = CancelOp{id.value_or("")};
  } else if (op == "attach") {
    AttachOp attach{id.value_or("")};
    fields.read("from", attach.from);
    if (attach.from < 0) fields.refuse("from", "from must be at least 0");
    message = std::move(attach);
  } else if (op == "tokenize") {
    TokenizeOp tokenize{id, read_required<std::string>(fields, "text")};
    fields.read("add_special_tokens", tokenize.add_special_tokens);
    message = std::move(tokenize);
  } else if (op == "detokenize") {
    DetokenizeOp detokenize{id, read_required<std::vector<std::int64_t>>(fields, "token_ids")};
    fields.read("skip_special_tokens", detokenize.skip_special_tokens);
    message = std::move(detokenize);
  } else if (op == "apply_template") {
    message = ApplyTemplateOp{id, read_and_render(fields, prompts)};
  } else if (op == "model") {
    message = ModelOp{id};
  } else if (op == "stats") {
    message = StatsOp{id};
  } else if (op == "ping") {
    message = PingOp{id};
  } else if (op == "auth") {
    message = AuthOp{id, read_required<std::string>(fields, "key")};
  } else {
    return tl::unexpected(RefusedLine{id, {WireCode::unknown_op, "unknown op \"" + std::string(op) + "\"", "op"}});
  }
  if (auto status = fields.finish(); !status) return tl::unexpected(RefusedLine{id, std::move(status.error())});
  return message;
}

/// The line as an object.
tl::expected<Json, WireError> read_object(std::string_view line) {
  auto value = read_json(line, kMaxDepth);
  if (value && !value->is_object()) {
    return tl::unexpected(WireError{WireCode::invalid_request, "a line must be one JSON object"});
  }
  return value;
}

}  // namespace

Parsed parse_line(std::string_view line, const chat::ChatPrompts* prompts) {
  const auto object = read_object(line);
  if (!object) return tl::unexpected(RefusedLine{{}, object.error()});
  const auto op = object->find("op");
  if (op == object->end()) return read_message("generate", *object, prompts);
  if (!op->is_string()) {
    FieldReader ignored(*object);
    return tl::unexpected(
        RefusedLine{read_id(*object, ignored, false), {WireCode::invalid_request, "op must be a string", "op"}});
  }
  return read_message(op->get_ref<const std::string&>(), *object, prompts);
}

tl::expected<GenerateObject, RefusedLine> parse_generate_object(std::string_view line, const GenerateRequest& defaults,
                                                                const chat::ChatPrompts* prompts) {
  const auto object = read_object(line);
  if (!object) return tl::unexpected(RefusedLine{{}, object.error()});
  FieldReader fields(*object);
  const auto id = read_id(*object, fields, false);
  std::string op = "generate";
  fields.read("op", op);
  if (op != "generate") fields.refuse("op", "op must be generate here");
  GenerateObject read{id, read_generate(fields, prompts, defaults)};
  fields.read("timing", read.timing);
  if (read.request.resumable) fields.refuse("resumable", "resumable is for requests to a server");
  if (auto status = fields.finish(); !status) return tl::unexpected(RefusedLine{id, std::move(status.error())});
  return read;
}

}  // namespace pagoda::json_lines
