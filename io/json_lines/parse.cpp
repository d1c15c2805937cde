#include "io/json_lines/field_reader.hpp"
#include "io/json_lines/json_reader.hpp"
#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;
using Parsed = tl::expected<ClientMessage, RefusedLine>;

/// Fields that the model may have defaults for: one that is absent stays open.
void read_open_sampling(FieldReader& fields, GenerateRequest& request) {
  const auto read = [&](const char* name, auto& value, bool& is_open) {
    fields.read(name, value);
    if (fields.has(name)) is_open = false;
  };
  read("max_tokens", request.sampling.max_tokens, request.open.max_tokens);
  read("temperature", request.sampling.temperature, request.open.temperature);
  read("top_p", request.sampling.top_p, request.open.top_p);
  read("top_k", request.sampling.top_k, request.open.top_k);
  read("min_p", request.sampling.min_p, request.open.min_p);
  read("repetition_penalty", request.sampling.repetition_penalty, request.open.repetition_penalty);
}

void read_sampling(FieldReader& fields, SamplingParams& params) {
  fields.read("min_tokens", params.min_tokens);
  fields.read("n", params.n);
  fields.read("best_of", params.best_of);
  fields.read("seed", params.seed);
  fields.read_strings("stop", params.stop);
  fields.read("stop_token_ids", params.stop_token_ids);
  fields.read("ignore_eos", params.ignore_eos);
  fields.read("include_stop_str_in_output", params.include_stop_str_in_output);
  fields.read("presence_penalty", params.presence_penalty);
  fields.read("frequency_penalty", params.frequency_penalty);
  fields.read_bias("logit_bias", params.logit_bias);
  fields.read("logprobs", params.logprobs);
  fields.read("prompt_logprobs", params.prompt_logprobs);
  fields.read("skip_special_tokens", params.skip_special_tokens);
  fields.read("use_beam_search", params.use_beam_search);
  fields.read("length_penalty", params.length_penalty);
  fields.read("early_stopping", params.early_stopping);
}

GenerateRequest read_generate(FieldReader& fields, GenerateRequest request) {
  request.prompt.reset();
  request.prompt_token_ids.reset();
  fields.read("prompt", request.prompt);
  fields.read("prompt_token_ids", request.prompt_token_ids);
  fields.read("stream", request.stream);
  fields.read("add_special_tokens", request.add_special_tokens);
  fields.read("priority", request.priority);
  fields.read("user", request.user);
  fields.read("cache_salt", request.cache_salt);
  read_open_sampling(fields, request);
  read_sampling(fields, request.sampling);
  if (request.prompt && request.prompt_token_ids) {
    fields.refuse("prompt_token_ids", "give either prompt or prompt_token_ids, not both");
  } else if (!request.prompt && !request.prompt_token_ids) {
    fields.refuse("prompt", "prompt or prompt_token_ids is required");
  }
  return request;
}

/// The line's id when it has a usable one; `fields` learns what is wrong with it otherwise.
ClientId read_id(const json& object, FieldReader& fields, bool required) {
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

Parsed read_message(std::string_view op, const json& object) {
  FieldReader fields(object);
  fields.skip("op");
  auto id = read_id(object, fields, op == "generate" || op == "cancel");
  ClientMessage message;
  if (op == "generate") {
    GenerateRequest defaults;
    defaults.open = OpenSamplingFields::all();
    auto request = std::make_shared<const GenerateRequest>(read_generate(fields, std::move(defaults)));
    message = GenerateOp{id.value_or(""), std::move(request)};
  } else if (op == "cancel") {
    message = CancelOp{id.value_or("")};
  } else if (op == "tokenize") {
    TokenizeOp tokenize{id, read_required<std::string>(fields, "text")};
    fields.read("add_special_tokens", tokenize.add_special_tokens);
    message = std::move(tokenize);
  } else if (op == "detokenize") {
    DetokenizeOp detokenize{id, read_required<std::vector<std::int64_t>>(fields, "token_ids")};
    fields.read("skip_special_tokens", detokenize.skip_special_tokens);
    message = std::move(detokenize);
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
tl::expected<json, WireError> read_object(std::string_view line) {
  auto value = read_json(line, kMaxDepth);
  if (value && !value->is_object()) {
    return tl::unexpected(WireError{WireCode::invalid_request, "a line must be one JSON object"});
  }
  return value;
}

}  // namespace

Parsed parse_line(std::string_view line) {
  const auto object = read_object(line);
  if (!object) return tl::unexpected(RefusedLine{{}, object.error()});
  const auto op = object->find("op");
  if (op == object->end()) return read_message("generate", *object);
  if (!op->is_string()) {
    FieldReader ignored(*object);
    return tl::unexpected(
        RefusedLine{read_id(*object, ignored, false), {WireCode::invalid_request, "op must be a string", "op"}});
  }
  return read_message(op->get_ref<const std::string&>(), *object);
}

tl::expected<GenerateObject, RefusedLine> parse_generate_object(std::string_view line,
                                                                const GenerateRequest& defaults) {
  const auto object = read_object(line);
  if (!object) return tl::unexpected(RefusedLine{{}, object.error()});
  FieldReader fields(*object);
  auto id = read_id(*object, fields, false);
  std::string op = "generate";
  fields.read("op", op);
  if (op != "generate") fields.refuse("op", "op must be generate here");
  auto request = read_generate(fields, defaults);
  if (auto status = fields.finish(); !status) return tl::unexpected(RefusedLine{id, std::move(status.error())});
  return GenerateObject{std::move(id), std::move(request)};
}

}  // namespace pagoda::json_lines
