#include "io/http/openai/tokens.hpp"

#include <utility>

#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/foreign_fields.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::openai {
namespace {

using wire::FieldReader;
using wire::JsonWriter;

template <class T>
using Parsed = tl::expected<T, ErrorAnswer>;

Parsed<std::string> parse_template(const serving::ServedModel& model, const wire::Json& body) {
  if (!model.chat) return tl::unexpected(no_chat_template());
  FieldReader fields(body, FieldReader::Nulls::absent);
  chat::ChatInput chat;
  fields.skip("model");
  chat::ToolUse tools;
  read_chat_prompt(fields, *model.chat, chat, tools);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  auto text = model.chat->render(std::move(chat));
  if (!text) return tl::unexpected(error_answer(text.error()));
  return std::move(*text);
}

/// Parses a body of /tokenize: a text, or a conversation that the model's template formats.
Parsed<actors::TokenizeRequest> parse_tokenize(const serving::ServedModel& model, const wire::Json& body) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  GenerateRequest request;
  fields.skip("model");
  wire::refuse_unless(fields, "return_token_strs", {false});
  fields.read("prompt", request.prompt);
  if (!fields.has("messages")) {
    fields.read("add_special_tokens", request.add_special_tokens);
    if (!request.prompt) fields.refuse("prompt", "prompt or messages is required");
    if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
    return actors::TokenizeRequest{std::move(*request.prompt), request.add_special_tokens};
  }
  if (request.prompt) fields.refuse("messages", "prompt and messages exclude each other");
  if (!model.chat) return tl::unexpected(no_chat_template());
  chat::ChatInput chat;
  chat::ToolUse tools;
  read_chat_prompt(fields, *model.chat, chat, tools);
  request.add_special_tokens = false;
  fields.read("add_special_tokens", request.add_special_tokens);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (auto status = model.chat->apply(std::move(chat), request); !status)
    return tl::unexpected(error_answer(status.error()));
  return actors::TokenizeRequest{std::move(*request.prompt), request.add_special_tokens,
                                 std::move(request.prompt_literals)};
}

Parsed<actors::DetokenizeRequest> parse_detokenize(const serving::ServedModel& /*model*/, const wire::Json& body) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  actors::DetokenizeRequest request;
  request.skip_special_tokens = false;
  fields.skip("model");
  if (!fields.has("tokens")) fields.refuse("tokens", "tokens is required");
  fields.read("tokens", request.token_ids);
  fields.read("skip_special_tokens", request.skip_special_tokens);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  return request;
}

void answer_tokens(const serving::ServedModel& model, Exchange& exchange, const TokenIds& ids) {
  std::string out;
  JsonWriter json(out);
  json.open_object().field("count", ids.size()).field("max_model_len", model.info.max_model_len);
  json.key("tokens").array(ids, [](JsonWriter& list, TokenId id) { list.value(id); });
  json.close_object();
  exchange.respond(200, "application/json", std::move(out));
}

void answer_prompt(Exchange& exchange, const std::string& prompt) {
  std::string out;
  JsonWriter json(out);
  json.open_object().field("prompt", prompt).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

/// Answers with the facts about a model's tokenizer, in the names of tokenizer_config.json.
void answer_tokenizer_info(const serving::ServedModel& model, Exchange& exchange) {
  std::string out;
  JsonWriter json(out);
  const auto& info = model.info;
  json.open_object();
  json.field("tokenizer_class", info.tokenizer_class.empty() ? "PreTrainedTokenizerFast" : info.tokenizer_class);
  json.field("model_max_length", info.max_model_len).field("vocab_size", info.vocab_size);
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    const auto token = info.special_tokens.find(name);
    json.key(name).value_or_null(token == info.special_tokens.end() ? std::string_view() : token->second);
  }
  for (const auto& [name, token] : info.special_tokens) {
    if (name != "bos_token" && name != "eos_token" && name != "pad_token") json.text_key(name).value(token);
  }
  json.key("chat_template");
  model.chat ? json.value(model.chat->source()) : json.null();
  json.close_object();
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_token_routes(Routes& routes, const ApiContext& context) {
  using serving::ServedModel;
  routes.add(Verb::post, "/tokenize", Access::key,
             reading(context, parse_tokenize,
                     [&context](const ServedModel& model, auto exchange, actors::TokenizeRequest question) {
                       query_model(context, model, std::move(exchange), std::move(question),
                                   [model](auto& answering, auto& answer) {
                                     answer_tokens(model, answering, std::get<TokenIds>(answer));
                                   });
                     }));
  routes.add(Verb::post, "/detokenize", Access::key,
             reading(context, parse_detokenize,
                     [&context](const ServedModel& model, auto exchange, actors::DetokenizeRequest question) {
                       query_model(context, model, std::move(exchange), std::move(question),
                                   [](auto& answering, auto& answer) {
                                     answer_prompt(answering, std::get<std::string>(answer));
                                   });
                     }));
  routes.add(Verb::get, "/tokenizer_info", Access::key, [&context](const auto& exchange, const Request& request) {
    const auto model = model_of_query(context, request);
    model ? answer_tokenizer_info(**model, *exchange) : exchange->respond_error(model.error());
  });
  routes.add(Verb::post, "/apply_template", Access::key,
             reading(context, parse_template,
                     [](const ServedModel&, const std::shared_ptr<Exchange>& exchange, const std::string& prompt) {
                       answer_prompt(*exchange, prompt);
                     }));
}

}  // namespace pagoda::http::openai
