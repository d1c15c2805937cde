#include "io/http/sglang_routes.hpp"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/stats.hpp"
#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/stats_sum.hpp"
#include "io/metrics/engine_text.hpp"
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
  json.field("page_size", info.block_size).field("block_size", info.block_size);
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

std::int64_t blocks_in_use(const auto& stats) {
  return stats.device_blocks_total - stats.device_blocks_free - stats.device_blocks_cached;
}

double share_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Writes the load of a replica under the number `rank`. What Pagoda does not measure is left out.
void write_rank(JsonWriter& list, const ReplicaStats& replica, const ModelInfo& info, double hit_rate,
                std::int64_t rank) {
  const auto num_waiting = replica.requests_waiting + replica.requests_swapped;
  list.open_object().field("dp_rank", rank);
  list.field("num_running_reqs", replica.requests_running).field("num_waiting_reqs", num_waiting);
  list.field("num_total_reqs", replica.requests_running + num_waiting);
  list.field("num_used_tokens", blocks_in_use(replica) * info.block_size);
  list.field("max_total_num_tokens", replica.device_blocks_total * info.block_size);
  list.field("token_usage", share_of(blocks_in_use(replica), replica.device_blocks_total));
  list.field("cache_hit_rate", hit_rate).field("max_running_requests", info.max_num_seqs).close_object();
}

/// Writes the load of each replica of each model that is loaded. Returns the number of replicas.
std::int64_t write_ranks(JsonWriter& json, const ApiContext& context, const std::vector<serving::Answer>& answers) {
  std::int64_t rank = 0;
  json.open_array();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& stats = std::get<EngineStats>(answers[i]);
    const double hit_rate = share_of(stats.prefix_cache_hits_total, stats.prefix_cache_queries_total);
    for (const ReplicaStats& replica : stats.replicas) {
      write_rank(json, replica, context.models.all()[i].info, hit_rate, rank++);
    }
  }
  json.close_array();
  return rank;
}

void answer_ranks(const ApiContext& context, const std::shared_ptr<Exchange>& exchange) {
  query_all_models(
      context, exchange, actors::GetStats{},
      [&context](Exchange& answering, std::vector<serving::Answer>& answers) {
        std::string out;
        JsonWriter json(out);
        json.open_object().field("version", version()).key("loads");
        const auto num_ranks = write_ranks(json, context, answers);
        const auto total = sum_of(answers);
        const auto num_waiting = total.requests_waiting + total.requests_swapped;
        json.field("dp_rank_count", num_ranks).key("aggregate").open_object();
        json.field("total_running_reqs", total.requests_running).field("total_waiting_reqs", num_waiting);
        json.field("total_reqs", total.requests_running + num_waiting);
        json.field("avg_token_usage", metrics::kv_cache_usage(total)).close_object().close_object();
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
  for (const char* path : {"/server_info", "/get_server_info"}) {
    routes.add(Verb::get, path, Access::key, answering(context, answer_server_info));
  }
  for (const char* path : {"/model_info", "/get_model_info"}) {
    routes.add(Verb::get, path, Access::key, answering(context, answer_model_info));
  }
  routes.add(Verb::get, "/get_load", Access::key,
             [&context](const auto& exchange, const Request&) { answer_loads(context, exchange); });
  routes.add(Verb::get, "/v1/loads", Access::key,
             [&context](const auto& exchange, const Request&) { answer_ranks(context, exchange); });
}

}  // namespace pagoda::http
