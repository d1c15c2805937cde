#include "io/json_lines/protocol.hpp"
#include "io/serving/nearest_model.hpp"
#include "io/wire/chat_fields.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/request_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::json_lines {
namespace {

using Parsed = tl::expected<ClientMessage, RefusedLine>;

constexpr const char* kNoTemplate = "the model has no chat template: give a prompt, or start with --chat-template";

std::string read_and_render(FieldReader& fields, const chat::ChatPrompts* prompts) {
  chat::ChatInput chat;
  read_chat(fields, chat);
  read_tools(fields, chat);
  if (prompts == nullptr) fields.refuse("messages", kNoTemplate);
  if (!fields.has_no_error()) return {};
  auto text = prompts->render(std::move(chat));
  if (text) return std::move(*text);
  fields.refuse(wire_error(text.error()));
  return {};
}

struct Conversation {
  chat::ChatInput chat;
  chat::ToolUse tools;
};

std::optional<Conversation> read_conversation(FieldReader& fields, const chat::ChatPrompts* prompts,
                                              GenerateRequest& request) {
  if (!fields.has("messages")) return std::nullopt;
  Conversation conversation;
  read_chat(fields, conversation.chat);
  read_tool_use(fields, /*is_flat=*/false, conversation.chat, conversation.tools);
  if (prompts == nullptr) fields.refuse("messages", kNoTemplate);
  if (request.prompt || request.prompt_token_ids) {
    fields.refuse("messages", "messages takes the place of prompt and prompt_token_ids");
  }
  request.add_special_tokens = false;  // the template writes them
  return conversation;
}

/// Sets the prompt. Returns how to parse the answer if the model may call tools, or if the output after its thinking
/// has a constraint; else null: the answer is the model's plain text.
Result<std::shared_ptr<const chat::AnswerReading>> prepare(Conversation conversation, const chat::ChatPrompts& prompts,
                                                           GenerateRequest& request) {
  const bool may_call = conversation.tools.choice != chat::ToolChoice::none;
  const bool holds_behind_thinking = request.sampling.structured_outputs && prompts.dialect()->thinking;
  if (!may_call && !holds_behind_thinking) {
    const bool continues = conversation.chat.continue_final_message;
    if (auto status = prompts.apply(std::move(conversation.chat), request); !status) return fail(status.error());
    chat::scope_stop_strings(prompts, continues, request);
    return std::shared_ptr<const chat::AnswerReading>();
  }
  auto reading = chat::prepare(prompts, std::move(conversation.chat), conversation.tools, request);
  if (!reading) return fail(std::move(reading.error()));
  return std::make_shared<const chat::AnswerReading>(std::move(*reading));
}

GenerateObject read_generate(FieldReader& fields, const chat::ChatPrompts* prompts, const GenerateRequest& defaults) {
  GenerateObject read{{}, defaults};
  GenerateRequest& request = read.request;
  request.prompt.reset();
  request.prompt_token_ids.reset();
  fields.read("prompt", request.prompt);
  fields.read("prompt_token_ids", request.prompt_token_ids);
  auto conversation = read_conversation(fields, prompts, request);
  fields.read("stream", request.stream);
  read_open(fields, "max_tokens", request.sampling.max_tokens, request.open.max_tokens);
  fields.read("logprobs", request.sampling.logprobs);
  read_request_fields(fields, request);
  fields.read("adapter", request.adapter);
  if (request.prompt && request.prompt_token_ids) {
    fields.refuse("prompt_token_ids", "give either prompt or prompt_token_ids, not both");
  } else if (!request.prompt && !request.prompt_token_ids && !conversation) {
    fields.refuse("prompt", "prompt, prompt_token_ids or messages is required");
  }
  fields.read("timing", read.timing);
  if (!conversation || !fields.has_no_error()) return read;
  if (auto reading = prepare(std::move(*conversation), *prompts, request)) {
    read.reading = std::move(*reading);
  } else {
    fields.refuse(wire_error(reading.error()));
  }
  return read;
}

/// The model of a line, and the adapter if the line names one as its model.
struct NamedModel {
  std::size_t index = 0;
  std::string adapter = {};
};

bool has_adapter(const LineModel& model, std::string_view name) {
  return model.adapters != nullptr && model.adapters->contains(name);
}

NamedModel read_model(FieldReader& fields, LineModels models) {
  std::optional<std::string> name;
  fields.read("model", name);
  if (!name && models.size() == 1) return {};
  std::vector<std::string> known;
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const auto& served : models[i].names) {
      if (served == name) return {i};
      known.push_back(served);
    }
  }
  // Without a model, the adapter of a request shows which model it is for.
  const Json* const adapter = name ? nullptr : fields.find("adapter");
  const bool has_name = name || (adapter != nullptr && adapter->is_string());
  const auto wanted = has_name ? name.value_or(adapter ? adapter->get<std::string>() : "") : "";
  for (std::size_t i = 0; has_name && i < models.size(); ++i) {
    if (has_adapter(models[i], wanted)) return {i, wanted};
  }
  for (const LineModel& model : models) {
    if (model.adapters == nullptr) continue;
    for (auto& served : model.adapters->list()) known.push_back(std::move(served.name));
  }
  std::string names;
  for (const auto& served : known) names += (names.empty() ? "`" : ", `") + served + "`";
  fields.refuse("model", name ? "the model `" + *name + "` does not exist." + serving::did_you_mean(*name, known, "`") +
                                    " Served: " + names
                              : "model is required: this server has " + names);
  return {};
}

/// Refuses a request for an adapter that is not one of the model's.
void check_adapter(FieldReader& fields, const LineModel& model, const std::string& adapter) {
  if (adapter.empty() || model.adapters == nullptr || has_adapter(model, adapter)) return;
  std::vector<std::string> known;
  std::string names;
  for (auto& served : model.adapters->list()) {
    names += (names.empty() ? " Adapters: `" : ", `") + served.name + "`";
    known.push_back(std::move(served.name));
  }
  fields.refuse({WireCode::unknown_adapter,
                 "there is no adapter `" + adapter + "`." + serving::did_you_mean(adapter, known, "`") + names,
                 "adapter"});
}

/// Returns the line's id; nothing if it is absent or invalid. Adds a problem to `fields` if the id is invalid, or
/// absent although it is `required`.
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

/// Reads a required field.
template <class T>
T read_required(FieldReader& fields, const char* name) {
  std::optional<T> value;
  fields.read(name, value);
  if (!value) fields.refuse(name, std::string(name) + " is required");
  return std::move(value).value_or(T{});
}

Parsed read_message(std::string_view op, const Json& object, LineModels models) {
  FieldReader fields(object);
  fields.skip("op");
  auto id = read_id(object, fields, op == "generate" || op == "cancel" || op == "attach");
  const bool is_of_model = op != "cancel" && op != "attach" && op != "ping" && op != "auth";
  const auto [model, adapter] = is_of_model ? read_model(fields, models) : NamedModel{};
  const auto* prompts = models[model].chat;
  ClientMessage message;
  if (op == "generate") {
    GenerateRequest defaults;
    defaults.open = OpenSamplingFields::all();
    auto read = read_generate(fields, prompts, defaults);
    if (read.request.adapter.empty()) read.request.adapter = adapter;
    if (!adapter.empty() && read.request.adapter != adapter) {
      fields.refuse("adapter", "model and adapter name different adapters");
    }
    check_adapter(fields, models[model], read.request.adapter);
    message = GenerateOp{id.value_or(""), std::make_shared<GenerateRequest>(std::move(read.request)), read.timing,
                         std::move(read.reading), model};
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
    tokenize.model = model;
    message = std::move(tokenize);
  } else if (op == "detokenize") {
    DetokenizeOp detokenize{id, read_required<std::vector<std::int64_t>>(fields, "token_ids")};
    fields.read("skip_special_tokens", detokenize.skip_special_tokens);
    detokenize.model = model;
    message = std::move(detokenize);
  } else if (op == "apply_template") {
    message = ApplyTemplateOp{id, read_and_render(fields, prompts)};
  } else if (op == "model") {
    message = ModelOp{id, model};
  } else if (op == "stats") {
    message = StatsOp{id, model};
  } else if (op == "load_adapter" || op == "unload_adapter") {
    ChangeAdapterOp change{id, read_required<std::string>(fields, "name"), std::nullopt, model};
    if (op == "load_adapter") change.path = read_required<std::string>(fields, "path");
    message = std::move(change);
  } else if (op == "adapters") {
    message = AdaptersOp{id, model};
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

/// Parses the line, which must be one object.
tl::expected<Json, WireError> read_object(std::string_view line) {
  auto value = read_json(line, kMaxDepth, Integers::exact);
  if (value && !value->is_object()) {
    return tl::unexpected(WireError{WireCode::invalid_request, "a line must be one JSON object"});
  }
  return value;
}

}  // namespace

Parsed parse_line(std::string_view line, const chat::ChatPrompts* prompts) {
  const LineModel only{{}, prompts, nullptr};
  return parse_line(line, LineModels(&only, 1));
}

Parsed parse_line(std::string_view line, LineModels models) {
  const auto object = read_object(line);
  if (!object) return tl::unexpected(RefusedLine{{}, object.error()});
  const auto op = object->find("op");
  if (op == object->end()) return read_message("generate", *object, models);
  if (!op->is_string()) {
    FieldReader ignored(*object);
    return tl::unexpected(
        RefusedLine{read_id(*object, ignored, false), {WireCode::invalid_request, "op must be a string", "op"}});
  }
  return read_message(op->get_ref<const std::string&>(), *object, models);
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
  GenerateObject read = read_generate(fields, prompts, defaults);
  read.id = id;
  if (read.request.resumable) fields.refuse("resumable", "resumable is for requests to a server");
  if (auto status = fields.finish(); !status) return tl::unexpected(RefusedLine{id, std::move(status.error())});
  return read;
}

}  // namespace pagoda::json_lines
