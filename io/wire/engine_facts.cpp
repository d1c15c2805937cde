#include "io/wire/engine_facts.hpp"

namespace pagoda::wire {

void write_model(JsonWriter& json, const ModelInfo& model) {
  json.field("name", model.name);
  json.field("architecture", model.architecture);
  json.field("dtype", model.dtype);
  json.field("kv_cache_dtype", model.kv_cache_dtype);
  json.field("device", model.device);
  json.field("vocab_size", model.vocab_size);
  json.field("max_model_len", model.max_model_len);
  json.field("block_size", model.block_size);
  json.field("num_replicas", model.num_replicas);
  json.field("num_device_blocks", model.num_device_blocks);
  json.field("num_host_blocks", model.num_host_blocks);
  json.field("max_num_seqs", model.max_num_seqs);
  json.field("max_num_batched_tokens", model.max_num_batched_tokens);
  json.field("pipeline_depth", model.pipeline_depth);
}

void write_replica(JsonWriter& json, const ReplicaStats& replica) {
  json.field("replica", replica.replica).field("state", replica.state).field("health", replica.health);
  json.field("requests_waiting", replica.requests_waiting).field("requests_running", replica.requests_running);
  json.field("requests_swapped", replica.requests_swapped);
  json.field("device_blocks_total", replica.device_blocks_total);
  json.field("device_blocks_free", replica.device_blocks_free);
  json.field("device_blocks_cached", replica.device_blocks_cached);
  json.field("worker_restarts_total", replica.worker_restarts_total);
  json.key("worker_pids").open_array();
  for (const std::int64_t pid : replica.worker_pids) json.value(pid);
  json.close_array();
}

void write_stats(JsonWriter& json, const EngineStats& stats) {
  json.field("requests_waiting", stats.requests_waiting);
  json.field("requests_running", stats.requests_running);
  json.field("requests_swapped", stats.requests_swapped);
  json.field("device_blocks_total", stats.device_blocks_total);
  json.field("device_blocks_free", stats.device_blocks_free);
  json.field("device_blocks_cached", stats.device_blocks_cached);
  json.field("host_blocks_total", stats.host_blocks_total);
  json.field("host_blocks_free", stats.host_blocks_free);
  json.field("prompt_tokens_total", stats.prompt_tokens_total);
  json.field("generation_tokens_total", stats.generation_tokens_total);
  json.field("steps_total", stats.steps_total);
  json.field("preemptions_recompute_total", stats.preemptions_recompute_total);
  json.field("preemptions_swap_total", stats.preemptions_swap_total);
  json.field("prefix_cache_queries_total", stats.prefix_cache_queries_total);
  json.field("prefix_cache_hits_total", stats.prefix_cache_hits_total);
  json.field("allocated_slots", stats.allocated_slots);
  json.field("used_slots", stats.used_slots);
  json.field("swap_bytes_total", stats.swap_bytes_total);
  json.field("swap_bytes_per_s", stats.swap_bytes_per_s);
  json.field("requests_finished_total", stats.requests_finished_total);
  json.field("requests_aborted_total", stats.requests_aborted_total);
  json.field("requests_failed_total", stats.requests_failed_total);
  json.field("recomputed_tokens_total", stats.recomputed_tokens_total);
  json.field("worker_restarts_total", stats.worker_restarts_total);
  json.field("worker_deaths_total", stats.worker_deaths_total);
  json.field("worker_hangs_total", stats.worker_hangs_total);
  json.field("worker_pause_s_total", stats.worker_pause_s_total);
  json.key("worker_pids").open_array();
  for (const std::int64_t pid : stats.worker_pids) json.value(pid);
  json.close_array();
  json.field("uptime_s", stats.uptime_s);
  json.field("overloaded", stats.overloaded);
  json.field("health", stats.health);
  if (stats.replicas.size() < 2) return;
  json.key("replicas").array(stats.replicas, [](JsonWriter& list, const ReplicaStats& replica) {
    list.open_object();
    write_replica(list, replica);
    list.close_object();
  });
}

}  // namespace pagoda::wire
