#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request/sampling_params.hpp"
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

/// Of priority_aging_s. Larger ones would overflow the times that priorities turn into.
inline constexpr double kMaxAgingSeconds = 86400;

/// Everything an engine is told at start. Field names are the keys of a config file and, with dashes, the flags.
/// Byte counts are bytes; the flags that take GiB say so.
struct EngineConfig {
  std::string model;                        ///< folder in Hugging Face format, or GGUF file
  std::string served_model_name;            ///< or names, with commas; empty = that of the folder or file
  std::string load_format = "auto";         ///< auto: the model's weights | dummy: random ones
  std::string dtype = "auto";               ///< auto | float32 | float16 | bfloat16
  std::string quantize = "auto";            ///< linear layers: auto = as stored | none | int8 | int4
  std::string weight_memory = "auto";       ///< plain weights on a CPU: auto | mapped | copied
  std::string kv_cache_dtype = "auto";      ///< auto = dtype; or a DType; fp8 = fp8_e4m3
  std::string chat_template;                ///< Jinja file; empty = the model's own template
  std::string answer_dialect;               ///< JSON file; empty = as made out of the template
  std::string generation_config = "auto";   ///< defaults of sampling: auto (the model's) | vllm (none) | a folder
  std::string device = "cpu";               ///< cpu | cuda | cuda:N
  std::int64_t max_model_len = 0;           ///< tokens; 0 = the model's own
  std::int32_t block_size = 0;              ///< token slots per KV block; 0 = as slots_per_block() says
  std::int32_t num_device_blocks = 0;       ///< 0 = from the memory budget
  std::int32_t num_host_blocks = -1;        ///< -1 = from swap_space
  double swap_space = -1.0;                 ///< GiB of host memory for swapped blocks; -1 = as swap_bytes() says
  std::string swap_dir;                     ///< folder whose disk holds swapped blocks; empty = host memory
  double kv_cache_memory = 0.0;             ///< GiB for KV; 0 = on a CPU a share of the free memory
  bool touch_memory = true;                 ///< a CPU's KV cache is taken from the system at start
  double gpu_memory_utilization = 0.9;      ///< share of a GPU's free memory to use in all
  bool enforce_eager = false;               ///< a GPU's decode steps are not recorded and replayed
  std::int32_t max_num_seqs = 0;            ///< batch rows; 0 = as num_rows() says
  std::int32_t max_num_batched_tokens = 0;  ///< tokens per step; 0 = as tokens_per_step() says
  std::int32_t max_chunk_ms = -1;   ///< that prompts add to a step in which others decode; -1 = as chunk_ms() says
  std::int32_t target_itl_ms = 0;   ///< between a sequence's tokens, kept by how much runs in a step; 0 = no target
  std::int32_t target_ttft_ms = 0;  ///< a request's first token, kept by refusing those that would wait; 0 = no target
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  PreemptionPolicy preemption_mode = PreemptionPolicy::automatic;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::fcfs;
  std::int32_t long_prefill_token_threshold =
      0;  ///< prompts with more tokens left are long; 0 = half of a step's tokens
  std::int32_t max_num_partial_prefills =
      1;  ///< long prompts that run in chunks at a time; shorter ones pass the others
  bool priority_preemption =
      true;  ///< with the priority policy: running requests give way to a more urgent one that waits
  double priority_aging_s = 60.0;       ///< waiting so much longer makes up for one step of priority; 0 = never
  double scheduler_delay_factor = 0.0;  ///< new prompts wait so many times the last prompt step's time while others run
  double watermark = 0.01;              ///< share of the KV blocks kept free at admission
  std::int32_t pipeline_depth = 2;      ///< steps in flight: 1 or 2
  std::int32_t threads = 0;             ///< compute threads on the CPU; 0 = one per core
  std::string cpu_affinity = "auto";    ///< what they are bound to: auto | none | cores | numa
  std::string cpu_isa;                  ///< "" = the fastest this machine has; or a name of CpuIsa (kernels/device.hpp)
  std::uint64_t seed = 0;               ///< seed of requests that bring none
  std::int32_t tensor_parallel_size = 1;
  std::int32_t pipeline_parallel_size = 1;
  bool worker_processes = false;  ///< the device's actors live in a process of their own, which may die
  bool standby_worker = false;    ///< another such process has loaded the model already when one dies
  std::string worker_listen;      ///< HOST:PORT where workers of other hosts join; empty: they are started here
  std::string worker_tls_cert;    ///< files in PEM that this engine proves itself with to them
  std::string worker_tls_key;
  std::string worker_tls_ca;  ///< that has signed their certificates
  double step_deadline = 0;   ///< seconds that a step of such a process may take; 0 = ten times what was measured
  std::int64_t max_queued_requests = 4096;  ///< admitted and not finished
  std::int64_t max_queued_prompt_tokens = 4'194'304;
  std::int64_t max_queued_prompt_bytes = 64 << 20;  ///< texts that wait for the tokenizer; a client gets a quarter
  std::int64_t stream_interval = 1;                 ///< least tokens in each delta of a stream but the first
  double request_timeout = 0;  ///< seconds that a request may take from its arrival, if it does not say; 0 = for ever
  std::string trace;           ///< file for a trace of every step, in Chrome's trace-event format; empty = none
  std::int64_t trace_max_events = 1'000'000;  ///< spans in that file, about 130 bytes each; later ones are counted
  std::string journal;            ///< file for a record of all that enters the cores (engine/journal); empty = none
  bool journal_tokens = true;     ///< else prompts and outputs stay out of it, and its steps cannot be executed
  std::int64_t journal_mib = 64;  ///< its size; what is oldest is overwritten
  SamplingLimits limits;

  /// The names in served_model_name, without the spaces around them: the first is the one that answers carry. None =
  /// that of the folder or file.
  std::vector<std::string> served_model_names() const;

  /// Which GPU `device` names, which must be cuda or cuda:N.
  int cuda_index() const;

  /// max_num_seqs, or 256; of a max_num_batched_tokens below that three quarters, so that prompts have a share of it.
  std::int32_t num_rows() const;

  /// max_num_batched_tokens, or what is right for the device: on a CPU a step with many prompt tokens takes as long as
  /// they do, and everybody who decodes waits for it, so it gets few. However many rows decode, prompts have a share.
  /// Without chunked prefill the longest prompt fits.
  std::int32_t tokens_per_step(std::int64_t longest_prompt) const;

  /// max_chunk_ms, or what is right for the device: a GPU is through with a step of prompts before anybody notices, and
  /// target_itl_ms says how long a step may be. 0 = no limit.
  std::int32_t chunk_ms() const;
  /// How many times as long prompts make a step in which others decode at most, where max_chunk_ms does not say how
  /// long. 0 = no limit.
  double chunk_stretch() const;

  /// block_size, or what is right for the device: a CPU reads twice as long stretches of memory in less time.
  std::int32_t slots_per_block() const;

  /// swap_space in bytes, or what is right for the device: of a GPU's host a quarter of the free memory, at most 4 GiB.
  /// On a CPU none: the KV cache lies in the host's memory, so a host pool only moves bytes about in what could be KV
  /// blocks; who preempts there recomputes, or swaps to a disk.
  std::int64_t swap_bytes(std::int64_t free_host_bytes) const;

  /// Every problem at once; empty when there is none. `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda
