#include "io/http/sglang_routes.hpp"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/stats.hpp"
#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/version.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {
namespace {

using serving::ServedModel;
using wire::JsonWriter;

void answer_server_info(const ServedModel& model, Exchange& exchange) {
  std::string out;
  JsonWriter json(out);
  const ModelInfo& info = model.info;
  json.open_object().field("model_path", info.name).field("served_model_name", info.name);
  json.field("tp_size", 1).field("dp_size", 1).field("pp_size", 1).field("disaggregation_mode", "null");
  json.field("is_embedding", false).field("context_length", info.max_model_len);
  json.field("max_total_num_tokens", info.num_device_blocks * info.block_size);
  json.field("max_total_tokens", info.num_device_blocks * info.block_size);
  json.field("max_prefill_tokens", info.max_num_batched_tokens)
      .field("max_running_requests", info.num_replicas * info.max_num_seqs);
  json.field("version", version()).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

void answer_model_info(const ServedModel& model, Exchange& exchange) {
  std::string out;
  JsonWriter json(out);
  const ModelInfo& info = model.info;
  json.open_object().field("model_path", info.name).field("tokenizer_path", info.name);
  json.field("is_generation", true).field("has_image_understanding", false).field("has_audio_understanding", false);
  json.key("architectures").open_array().value(info.architecture).close_array().close_object();
  exchange.respond(200, "application/json", std::move(out));
}

void answer_loads(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  query_all_models(
      context, exchange, actors::GetStats{},
      [](Exchange& answering, std::vector<serving::Answer>& answers) {
        std::string out;
        JsonWriter json(out);
        std::int64_t rank = 0;
        json.array(answers, [&rank](JsonWriter& list, const serving::Answer& answer) {
          const auto& stats = std::get<EngineStats>(answer);
          const auto num_waiting = stats.requests_waiting + stats.requests_swapped;
          list.open_object().field("dp_rank", rank++);
          list.field("num_reqs", stats.requests_running + num_waiting);
          list.field("num_waiting_reqs", num_waiting).field("num_tokens", stats.used_slots).close_object();
        });
        answering.respond(200, "application/json", std::move(out));
      },
      503);
}

Handler answering(const ApiContext& context, void (*answer)(const ServedModel& model, Exchange& exchange)) {
  return [&context, answer](const auto& exchange, const Request& request) {
    const auto model = model_of_query(context, request);
    model ? answer(**model, *exchange) : exchange->respond_error(model.error());
  };
}

}  // namespace

void add_sglang_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/server_info", Access::key, answering(context, answer_server_info));
  routes.add(Verb::get, "/model_info", Access::key, answering(context, answer_model_info));
  routes.add(Verb::get, "/get_load", Access::key,
             [&context](const auto& exchange, const Request&) { answer_loads(context, exchange); });
}

}  // namespace pagoda::http
