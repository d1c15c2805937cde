#include "io/http/openai/render.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/wire/json_writer.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::openai {
namespace {

using wire::JsonWriter;

/// A parsed body of a render route.
struct Rendering {
  std::string id;
  bool is_list = false;
  bool stream = false;
  std::vector<GenerateRequest> requests;
  std::vector<TokenIds> prompts = {};  ///< by request; text prompts are filled in when they are tokenized
};

void write_value_or_null(JsonWriter& json, const char* name, const std::optional<std::int64_t>& value) {
  json.key(name);
  value ? json.value(*value) : json.null();
}

/// Writes sampling parameters in vLLM's names. Leaves out fields that the model's defaults may still set.
void write_sampling_params(JsonWriter& json, const GenerateRequest& request, std::int64_t max_tokens) {
  const SamplingParams& sampling = request.sampling;
  const OpenSamplingFields& open = request.open;
  json.open_object().field("n", sampling.n);
  json.field("presence_penalty", sampling.presence_penalty).field("frequency_penalty", sampling.frequency_penalty);
  if (!open.repetition_penalty) json.field("repetition_penalty", sampling.repetition_penalty);
  if (!open.temperature) json.field("temperature", sampling.temperature);
  if (!open.top_p) json.field("top_p", sampling.top_p);
  if (!open.top_k) json.field("top_k", sampling.top_k);
  if (!open.min_p) json.field("min_p", sampling.min_p);
  json.key("seed");
  sampling.seed ? json.value(*sampling.seed) : json.null();
  json.key("stop").array(sampling.stop, [](JsonWriter& list, const std::string& text) { list.value(text); });
  json.key("stop_token_ids").array(sampling.stop_token_ids, [](JsonWriter& list, std::int64_t id) { list.value(id); });
  json.field("ignore_eos", sampling.ignore_eos);
  if (!open.max_tokens) json.field("max_tokens", std::min(sampling.max_tokens, max_tokens));
  json.field("min_tokens", sampling.min_tokens);
  write_value_or_null(json, "logprobs", sampling.logprobs);
  write_value_or_null(json, "prompt_logprobs", sampling.prompt_logprobs);
  json.field("skip_special_tokens", sampling.skip_special_tokens && !sampling.shows_marks);
  json.field("include_stop_str_in_output", sampling.include_stop_str_in_output).close_object();
}

void write_rendered(JsonWriter& json, const serving::ServedModel& model, const Rendering& rendering, std::size_t i) {
  const GenerateRequest& request = rendering.requests[i];
  const TokenIds& prompt = rendering.prompts[i];
  const std::string id = rendering.is_list ? rendering.id + "-" + std::to_string(i) : rendering.id;
  json.open_object().field("request_id", id);
  wire::write_token_ids(json, prompt);
  json.key("features").null();
  write_sampling_params(json.key("sampling_params"), request, model.info.max_model_len - std::ssize(prompt));
  json.field("model", model.info.name).field("stream", rendering.stream).key("stream_options").null();
  json.key("cache_salt").value_or_null(request.cache_salt);
  json.field("priority", request.priority).key("kv_transfer_params").null().close_object();
}

void answer_rendered(const serving::ServedModel& model, Exchange& exchange, const Rendering& rendering) {
  std::string out;
  JsonWriter json(out);
  if (rendering.is_list) json.open_array();
  for (std::size_t i = 0; i < rendering.requests.size(); ++i) write_rendered(json, model, rendering, i);
  if (rendering.is_list) json.close_array();
  exchange.respond(200, "application/json", std::move(out));
}

/// Sends the text prompts to the tokenizer and answers.
void render(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
            Rendering read) {
  auto rendering = std::make_shared<Rendering>(std::move(read));
  std::vector<serving::Query> questions;
  std::vector<std::size_t> asked;
  rendering->prompts.resize(rendering->requests.size());
  for (std::size_t i = 0; i < rendering->requests.size(); ++i) {
    auto& request = rendering->requests[i];
    if (request.prompt) {
      questions.emplace_back(actors::TokenizeRequest{std::move(*request.prompt), request.add_special_tokens,
                                                     std::move(request.prompt_literals)});
      asked.push_back(i);
    } else {
      rendering->prompts[i].assign(request.prompt_token_ids->begin(), request.prompt_token_ids->end());
    }
  }
  if (questions.empty()) return answer_rendered(model, *exchange, *rendering);
  query_model_each(context, model, std::move(exchange), std::move(questions),
                   [model, rendering, asked](Exchange& answering, std::vector<serving::Answer>& answers) {
                     for (std::size_t k = 0; k < asked.size(); ++k) {
                       rendering->prompts[asked[k]] = std::get<TokenIds>(std::move(answers[k]));
                     }
                     answer_rendered(model, answering, *rendering);
                   });
}

}  // namespace

actors::TokenizeRequest tokens_of_prompt(GenerateRequest request) {
  return {std::move(*request.prompt), request.add_special_tokens, std::move(request.prompt_literals)};
}

void add_render_route(Routes& routes, const ApiContext& context, const std::string& path, ParseJob parse,
                      std::string id_prefix, bool is_list, bool (*takes_long)(const Request& request)) {
  const auto parse_rendering = [parse = std::move(parse), id_prefix = std::move(id_prefix), is_list](
                                   const serving::ServedModel& model, const wire::Json& body,
                                   const Request& request) -> tl::expected<Rendering, ErrorAnswer> {
    auto job = parse(model, body, request);
    if (!job) return tl::unexpected(std::move(job.error()));
    return Rendering{id_prefix + request.request_id, is_list, job->stream, std::move(job->requests)};
  };
  routes.add(Verb::post, path + "/render", Access::key,
             reading_request(
                 context, parse_rendering,
                 [&context](const serving::ServedModel& model, auto exchange, Rendering rendering) {
                   render(context, model, std::move(exchange), std::move(rendering));
                 },
                 takes_long));
}

}  // namespace pagoda::http::openai
