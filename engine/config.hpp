#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/sampling_params.hpp"
#include "engine/speculation_config.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

enum class PreemptionPolicy : std::uint8_t { recompute, swap, automatic };
constexpr PreemptionPolicy last_value(PreemptionPolicy) {
  return PreemptionPolicy::automatic;
}

enum class SchedulingPolicy : std::uint8_t { fcfs, priority, fair };
constexpr SchedulingPolicy last_value(SchedulingPolicy) {
  return SchedulingPolicy::fair;
}

/// Maximum of priority_aging_s. Larger values would overflow the times that priorities are converted to.
inline constexpr double kMaxAgingSeconds = 86400;

/// A JSON object as text: the value of a flag whose key may have an object in a config file.
struct JsonText {
  std::string text;
};

/// Everything that configures an engine at start. Field names are the keys of a config file and, with dashes, the
/// flags. Sizes are in bytes unless the comment states GiB.
struct EngineConfig {
  std::string model;              ///< path of a folder in Hugging Face format, or of a GGUF file
  std::string served_model_name;  ///< name, or names with commas between; empty = name of the folder or file
  /// Source of the weights: auto = the model's files | dummy = random weights.
  std::string load_format = "auto";
  std::string dtype = "auto";              ///< auto | float32 | float16 | bfloat16
  std::string quantize = "auto";           ///< format of the linear layers: auto = as stored | none | int8 | int4
  std::string weight_memory = "auto";      ///< place of unquantized weights on a CPU: auto | mapped | copied
  std::string packed_cache = "off";        ///< folder that keeps packed and quantised weights for the next start | off
  std::int64_t packed_cache_min_mib = 64;  ///< MiB of packed weights below which a model has no file in this folder
  double packed_cache_size = 32;           ///< GiB that this folder takes at most
  std::string kv_cache_dtype = "auto";     ///< type of the KV cache: auto = dtype; or a DType; fp8 = fp8_e4m3
  std::string chat_template;               ///< path of a Jinja file; empty = the model's own template
  std::string answer_dialect;              ///< path of a JSON file; empty = derived from the template
  std::string generation_config = "auto";  ///< source of sampling defaults: auto (the model) | vllm (none) | a folder
  std::string device = "cpu";              ///< cpu | cuda | cuda:N | cuda:N,cuda:M,... for each replica
  std::int64_t max_model_len = 0;          ///< number of tokens; 0 = the model's own limit
  std::int32_t block_size = 0;             ///< number of token slots per KV block; 0 = see slots_per_block()
  std::int32_t num_device_blocks = 0;      ///< number of blocks; 0 = from the memory budget
  std::int32_t num_host_blocks = -1;       ///< number of blocks; -1 = from swap_space
  double swap_space = -1.0;                ///< GiB of host memory for swapped blocks; -1 = see swap_bytes()
  std::string swap_dir;                    ///< folder whose disk holds swapped blocks; empty = host memory
  double kv_cache_memory = 0.0;            ///< GiB for KV; 0 = on a CPU, a share of the free memory
  /// Whether the KV cache of a CPU takes its memory at start; false = at first use.
  bool touch_memory = true;
  double gpu_memory_utilization = 0.9;  ///< share of a GPU's free memory that the engine uses in total
  /// Whether a GPU runs decode steps directly; false = it records and replays them.
  bool enforce_eager = false;
  std::int32_t max_num_seqs = 0;            ///< number of batch rows; 0 = see num_rows()
  std::int32_t max_num_batched_tokens = 0;  ///< number of tokens per step; 0 = see tokens_per_step()
  /// Time that prompts may add to a step in which other sequences decode; -1 = see chunk_ms().
  std::int32_t max_chunk_ms = -1;
  /// Target time between two tokens of a sequence. The scheduler keeps it by limiting the work of a step; 0 = no
  /// target.
  std::int32_t target_itl_ms = 0;
  /// Target time to a request's first token. The router keeps it by refusing requests that would wait longer; 0 = no
  /// target.
  std::int32_t target_ttft_ms = 0;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  PreemptionPolicy preemption_mode = PreemptionPolicy::automatic;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::fcfs;
  /// Number of tokens left to compute above which a prompt is long; 0 = half of a step's tokens.
  std::int32_t long_prefill_token_threshold = 0;
  /// Number of long prompts that run in chunks at the same time; shorter prompts overtake the other long ones.
  std::int32_t max_num_partial_prefills = 1;
  /// Whether, with the priority policy, running requests give way to a waiting request that is more urgent.
  bool priority_preemption = true;
  /// Waiting time that makes up for one step of priority, in seconds; 0 = waiting changes no priority.
  double priority_aging_s = 60.0;
  /// Factor of the last prompt step's duration: while others run, a new prompt waits this long; 0 = no wait.
  double scheduler_delay_factor = 0.0;
  double watermark = 0.01;  ///< share of the KV blocks that stays free at admission
  /// How drafts are found (engine/speculation_config.hpp); empty = no speculation.
  JsonText speculative_config;
  std::int32_t pipeline_depth = 2;    ///< number of steps in flight: 1 or 2; see max_steps_in_flight()
  std::int32_t threads = 0;           ///< number of compute threads on the CPU; 0 = one per core
  std::string cpu_affinity = "auto";  ///< binding of the compute threads: auto | none | cores | numa
  std::string cpu_isa;                ///< "" = the fastest of this machine; or a name of CpuIsa (kernels/device.hpp)
  std::uint64_t seed = 0;             ///< seed of requests that state none
  /// Number of ranks that compute each layer together. Each has a part of the weights, of the KV cache and of the
  /// threads.
  std::int32_t tensor_parallel_size = 1;
  /// Number of stages, each with some of the layers, that compute one behind the other: while one runs a step, the next
  /// runs the step before. Each has tensor_parallel_size ranks.
  std::int32_t pipeline_parallel_size = 1;
  /// Number of replicas of the model. Each has a scheduler, a KV cache, and a GPU or a share of the CPU threads.
  std::int32_t data_parallel_size = 1;
  std::int32_t replica = 0;       ///< see of_replica(); no key
  std::int32_t rank = 0;          ///< see of_rank(); no key
  bool has_own_host = false;      ///< whether the device is on a host without other devices of the engine; no key
  bool worker_processes = false;  ///< whether the device's actors run in a process of their own, which may die
  bool standby_worker = false;    ///< whether a second worker process keeps the model loaded, to replace one that dies
  std::string worker_listen;      ///< HOST:PORT where workers of other hosts join; empty = local workers
  std::string worker_tls_cert;    ///< PEM file with the certificate that this engine shows to joining workers
  std::string worker_tls_key;     ///< PEM file with the private key of that certificate
  std::string worker_tls_ca;      ///< PEM file of the authority that signed the workers' certificates
  double step_deadline = 0;       ///< seconds that a step of a worker process may take; 0 = ten times the measured time
  std::int64_t max_queued_requests = 4096;  ///< maximum number of requests that are accepted and not finished
  std::int64_t max_queued_prompt_tokens = 4'194'304;
  /// Maximum bytes of texts that wait for the tokenizer; one client gets a quarter.
  std::int64_t max_queued_prompt_bytes = 64 << 20;
  /// Minimum number of tokens in each delta of a stream after the first delta.
  std::int64_t stream_interval = 1;
  /// Seconds from arrival to end of a request that states no timeout; 0 = no timeout.
  double request_timeout = 0;
  /// File for a trace of every step, in Chrome's trace-event format; empty = none.
  std::string trace;
  /// Maximum number of spans in the trace, about 130 bytes each; later spans are only counted.
  std::int64_t trace_max_events = 1'000'000;
  /// File that records every input of the cores (engine/journal); empty = none.
  std::string journal;
  /// Whether the journal holds prompts and outputs; without them its steps cannot be executed.
  bool journal_tokens = true;
  std::int64_t journal_mib = 64;         ///< size of the journal; new records overwrite the oldest
  bool enable_lora = false;              ///< whether requests may name adapters
  std::int32_t max_loras = 8;            ///< maximum number of different adapters in a step
  std::int32_t max_cpu_loras = 0;        ///< maximum number of loaded adapters; 0 = see num_loaded_adapters()
  std::int32_t max_lora_rank = 16;       ///< maximum rank of an adapter; larger ones are refused
  std::string lora_dtype = "auto";       ///< type of low-rank matrices: auto | float32 | float16 | bfloat16
  std::string lora_modules;              ///< adapters that are known at start: NAME=PATH, with commas between
  bool enable_lora_updates = false;      ///< whether clients may add and remove adapters
  std::string lora_root;                 ///< folder below which clients' adapters must be; needed for updates
  bool enable_prompt_adapter = false;    ///< whether requests may name prompt adapters
  std::int32_t max_prompt_adapters = 1;  ///< places for adapters, in a step and loaded, beside those of enable_lora
  std::int32_t max_prompt_adapter_token = 64;  ///< maximum number of virtual tokens; larger adapters are refused
  std::string prompt_adapters;                 ///< as lora_modules
  SamplingLimits limits;

  /// Returns the names in served_model_name, without the spaces around them. Answers carry the first name. An empty
  /// list means the name of the folder or file.
  std::vector<std::string> served_model_names() const;

  /// Returns the index of the GPU that `device` names. `device` must be cuda or cuda:N.
  int cuda_index() const;

  /// Returns the device of each replica: cpu, cuda or cuda:N. `device` must be valid.
  std::vector<std::string> devices() const;

  /// Returns the configuration of one replica. `device` is its own; sizes that the device decides are those of its
  /// share. Sizes that are set count for each replica.
  EngineConfig of_replica(ReplicaId id) const;

  /// Returns the configuration of one rank of this replica. Sizes of the replica's memory are divided between ranks.
  EngineConfig of_rank(RankId id) const;
  /// Returns the key to name in errors about the number of devices.
  const char* key_of_devices() const;
  /// Returns what makes the number of devices: "pipeline_parallel_size is 2, tensor_parallel_size 4".
  std::string devices_in_words() const;
  /// Returns the name of this rank's device among those of the engine, for messages: "replica 1, rank 0"; empty if
  /// there is one.
  std::string device_name() const;
  /// Returns the number of devices of all replicas.
  std::int32_t num_devices() const { return data_parallel_size * num_ranks(); }
  /// Returns the number of devices that share the CPU threads and the memory of this device's host.
  std::int32_t num_devices_on_host() const { return has_own_host ? 1 : num_devices(); }
  /// Returns the number of ranks of all stages of a replica.
  std::int32_t num_ranks() const { return tensor_parallel_size * pipeline_parallel_size; }
  /// Returns pipeline_depth, or the number of stages if that is larger, since each can run a step.
  std::int32_t max_steps_in_flight() const { return std::max(pipeline_depth, pipeline_parallel_size); }

  /// Returns the configuration of an engine with one device, that of the first replica, which computes whole layers
  /// with all threads.
  EngineConfig with_one_device() const;

  /// Returns max_num_seqs if it is set, else 256. If only max_num_batched_tokens is set, and is below 256, returns
  /// three quarters of it, so that prompts get a share of the step.
  std::int32_t num_rows() const;
  /// Returns the maximum number of samples in a step: with speculation drafts have room beside num_rows() sequences.
  std::int32_t samples_per_step() const;

  /// Returns max_num_batched_tokens if it is set, else a value for the device. On a CPU a step takes as long as its
  /// prompt tokens, and all decoding sequences wait for it, so it gets few tokens. Prompts have room beside the decodes
  /// of all rows. Without chunked prefill the step has room for `longest_prompt`.
  std::int32_t tokens_per_step(std::int64_t longest_prompt) const;

  /// Returns max_chunk_ms if it is set, else a value for the device. A GPU has no limit, since it runs a step of
  /// prompts in little time. With target_itl_ms there is none either, since the target limits the whole step. 0 = no
  /// limit.
  std::int32_t chunk_ms() const;
  /// Returns how many times as long prompts may make a step in which others decode. It applies where max_chunk_ms is
  /// not set. 0 = no limit.
  double chunk_stretch() const;

  /// Returns block_size if it is set, else a value for the device: a CPU reads memory faster in pieces of twice the
  /// size.
  std::int32_t slots_per_block() const;

  /// Returns swap_space in bytes if it is set, else a value for the device of a replica. With a GPU: its share of a
  /// quarter of the free host memory, at most 4 GiB. On a CPU: 0, because the KV cache is in host memory itself, so a
  /// host pool would only take memory from KV blocks. A CPU recomputes preempted sequences, or swaps them to a disk.
  std::int64_t swap_bytes(std::int64_t free_host_bytes) const;

  /// Returns the parsed speculative_config, which must be valid.
  SpeculationConfig speculation() const { return *parse_speculation_config(speculative_config.text); }

  /// Returns whether requests may name adapters.
  bool has_adapters() const { return enable_lora || enable_prompt_adapter; }
  /// Returns the maximum number of different adapters in a step: max_loras with enable_lora, and max_prompt_adapters
  /// with enable_prompt_adapter.
  std::int32_t max_adapters_in_step() const;
  /// Returns the maximum number of loaded adapters: as max_adapters_in_step, with max_cpu_loras for max_loras if it is
  /// set.
  std::int32_t num_loaded_adapters() const;

  /// Returns all problems; empty when there is none. `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda
