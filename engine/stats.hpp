#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/sampling_defaults.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Facts about one replica of an engine.
struct ReplicaStats {
  ReplicaId replica = 0;
  std::string state = "up";  ///< "up", "draining", "down" or "starting" (again)
  /// "ok", or the reason why the replica runs no steps until workers are replaced, or why it is down.
  std::string health = "ok";
  std::int64_t requests_waiting = 0;
  std::int64_t requests_running = 0;
  std::int64_t requests_swapped = 0;
  std::int64_t device_blocks_total = 0;
  std::int64_t device_blocks_free = 0;
  std::int64_t device_blocks_cached = 0;
  std::int64_t worker_restarts_total = 0;
  std::vector<std::int64_t> worker_pids = {};  ///< by rank
};

/// A snapshot of counters and gauges. Field names are the wire names of the `stats` event.
struct EngineStats {
  std::int64_t requests_waiting = 0;
  std::int64_t requests_running = 0;
  std::int64_t requests_swapped = 0;
  std::int64_t device_blocks_total = 0;
  std::int64_t device_blocks_free = 0;
  std::int64_t device_blocks_cached = 0;
  std::int64_t host_blocks_total = 0;
  std::int64_t host_blocks_free = 0;
  std::int64_t prompt_tokens_total = 0;      ///< number of prompt tokens of admitted requests, cached tokens included
  std::int64_t generation_tokens_total = 0;  ///< number of sampled tokens that were kept
  std::int64_t steps_total = 0;
  std::int64_t preemptions_recompute_total = 0;
  std::int64_t preemptions_swap_total = 0;
  std::int64_t prefix_cache_queries_total = 0;  ///< number of tokens
  std::int64_t prefix_cache_hits_total = 0;     ///< number of tokens
  std::int64_t allocated_slots = 0;             ///< number of token slots in the KV blocks that sequences own
  std::int64_t used_slots = 0;                  ///< number of these slots that hold a token
  std::int64_t swap_bytes_total = 0;            ///< bytes moved to the host pool and back
  double swap_bytes_per_s = 0;                  ///< speed of recent swaps; 0 = nothing was swapped yet
  std::int64_t requests_finished_total = 0;
  std::int64_t requests_aborted_total = 0;
  std::int64_t requests_failed_total = 0;
  std::int64_t recomputed_tokens_total = 0;    ///< number of tokens computed again after a preemption or a lost worker
  std::int64_t worker_restarts_total = 0;      ///< number of new workers, with or without a new cache engine
  std::int64_t worker_deaths_total = 0;        ///< number of worker processes that ended by themselves or were killed
  std::int64_t worker_hangs_total = 0;         ///< number of worker processes that hung and were ended
  double worker_pause_s_total = 0;             ///< seconds in which running requests waited for new workers
  std::vector<std::int64_t> worker_pids = {};  ///< ids of live worker processes, by replica and rank; may be empty
  double uptime_s = 0;
  bool overloaded = false;  ///< whether new requests are refused with queue_full at present
  /// "ok", or the reason why no step can run until workers are replaced, or why the engine has stopped. "ok" while any
  /// replica can run steps. A stopped engine sets only uptime_s beside it.
  std::string health = "ok";
  /// Each replica; empty for a stopped engine and a sum over engines. No core has it in its state: not in visit_fields.
  std::vector<ReplicaStats> replicas = {};

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.requests_waiting, self.requests_running, self.requests_swapped, self.device_blocks_total,
                 self.device_blocks_free, self.device_blocks_cached, self.host_blocks_total, self.host_blocks_free,
                 self.prompt_tokens_total, self.generation_tokens_total, self.steps_total,
                 self.preemptions_recompute_total, self.preemptions_swap_total, self.prefix_cache_queries_total,
                 self.prefix_cache_hits_total, self.allocated_slots, self.used_slots, self.swap_bytes_total,
                 self.swap_bytes_per_s, self.requests_finished_total, self.requests_aborted_total,
                 self.requests_failed_total, self.recomputed_tokens_total, self.worker_restarts_total,
                 self.worker_deaths_total, self.worker_hangs_total, self.worker_pause_s_total, self.worker_pids,
                 self.uptime_s, self.overloaded, self.health);
  }
};

/// Facts about the served model that clients may know (`model` event).
struct ModelInfo {
  std::string name;
  std::string architecture;
  std::string dtype;
  std::string kv_cache_dtype;
  std::string device;  ///< Device::description()
  std::int64_t vocab_size = 0;
  std::int64_t max_model_len = 0;
  std::int64_t max_kv_tokens = 0;  ///< number of tokens of one prompt that the KV cache has room for
  std::int64_t block_size = 0;
  std::int64_t num_replicas = 1;
  std::int64_t num_device_blocks = 0;  ///< of all replicas
  std::int64_t num_host_blocks = 0;    ///< of all replicas
  std::int64_t max_num_seqs = 0;       ///< of each replica, as the next two
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t pipeline_depth = 0;
  std::string format;        ///< format of its files: safetensors, pytorch or gguf
  std::string quantization;  ///< quantization of its matrices; empty = none
  std::int64_t num_parameters = 0;
  std::int64_t weight_bytes = 0;  ///< size of its files
  bool enable_prefix_caching = false;
  SamplingDefaults sampling_defaults = {};  ///< values that the model's maker recommends
  /// Sizes of the model by name: hidden_size, num_layers, num_heads, ... (ModelSpec::facts)
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::string tokenizer_class;  ///< name in the model's files; empty = they state none
  /// Texts of special tokens by their role: bos_token, eos_token, pad_token, ...
  std::map<std::string, std::string> special_tokens;
};

}  // namespace pagoda
