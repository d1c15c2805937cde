#pragma once

/// The table of configuration keys, for config files and for the flags of the command.

#include <array>
#include <string_view>
#include <utility>

#include "engine/config.hpp"
#include "io/http/server_config.hpp"
#include "io/json_lines/server_config.hpp"

namespace pagoda::io {

/// Names of an enum's values in files and flags.
template <class E>
struct EnumWords;

template <>
struct EnumWords<PreemptionPolicy> {
  static constexpr std::array<std::pair<std::string_view, PreemptionPolicy>, 3> kWords{
      {{"recompute", PreemptionPolicy::recompute},
       {"swap", PreemptionPolicy::swap},
       {"auto", PreemptionPolicy::automatic}}};
};

template <>
struct EnumWords<SchedulingPolicy> {
  static constexpr std::array<std::pair<std::string_view, SchedulingPolicy>, 3> kWords{
      {{"fcfs", SchedulingPolicy::fcfs}, {"priority", SchedulingPolicy::priority}, {"fair", SchedulingPolicy::fair}}};
};

/// Calls visit(key, field, help) for every key of an engine. Fields are strings, booleans, integers, doubles,
/// JsonText, and enums that have EnumWords.
template <class Visit>
void visit_fields(EngineConfig& config, Visit&& visit) {
  visit("model", config.model, "Folder of the model, in Hugging Face format, or GGUF file");
  visit("served_model_name", config.served_model_name,
        "Name that clients see. Several names are separated by commas, and answers carry the first; empty: the name of "
        "the folder or file");
  visit("load_format", config.load_format,
        "Weights: auto (from the model's files) or dummy (random weights for a config.json, to measure speed and "
        "memory without weight files)");
  visit("dtype", config.dtype, "Type of the weights: auto (as in the checkpoint), float32, float16, bfloat16");
  visit("quantize", config.quantize,
        "Weights of linear layers: auto (as in the model's files), none (quantised weights are dequantised), or "
        "quantised when loaded: int8, int4. With int8, the most likely token stays the same at 99 % of the positions "
        "of the demo model, and at about 96 % of SmolLM2-135M; with int4 at 81 % of SmolLM2-135M (perplexity +10 %; on "
        "a GPU, where int4 is simpler, 71 % and +24 %)");
  visit("weight_memory", config.weight_memory,
        "Weights that are neither converted nor quantised, on a CPU: mapped (read from the mapped file), copied (into "
        "memory with huge pages, which is faster), auto (copied if they fit half of the free memory and leave room for "
        "the KV cache)");
  visit("packed_cache", config.packed_cache,
        "Folder that keeps weights as the kernels of a CPU use them (packed from GGUF, AWQ or GPTQ, or quantised with "
        "--quantize), so that the next start reads them: off, a folder, or auto (pagoda/packed in the user's cache "
        "folder)");
  visit("packed_cache_min_mib", config.packed_cache_min_mib,
        "MiB of packed weights below which a model has no file in this folder");
  visit("packed_cache_size", config.packed_cache_size,
        "GiB that this folder takes at most; the files that were used least recently give way");
  visit("kv_cache_dtype", config.kv_cache_dtype,
        "Type of the KV cache: auto (as dtype), float32, float16, bfloat16, fp8_e4m3 (or fp8), int8");
  visit("chat_template", config.chat_template, "Jinja file of the chat template; empty: the template of the model");
  visit("answer_dialect", config.answer_dialect,
        "JSON file that describes how the model writes thinking and tool calls; empty: derived from the chat template "
        "(pagoda inspect prints it)");
  visit("generation_config", config.generation_config,
        "Defaults of sampling fields: auto (recommended by the model's files), vllm (the defaults of the APIs), or a "
        "folder with another generation_config.json");
  visit("device", config.device,
        "cpu, cuda, or cuda:N for GPU number N; with data_parallel_size a list with the GPU of each replica, "
        "cuda:0,cuda:1 "
        "(cuda: the first ones)");
  visit("max_model_len", config.max_model_len,
        "Maximum number of tokens of prompt and output together; 0: the limit of the model");
  visit("block_size", config.block_size, "Token slots per KV block; 0: 16 on a GPU, 32 on a CPU");
  visit("num_device_blocks", config.num_device_blocks,
        "Number of KV blocks on the device; 0: as many as fit the memory budget");
  visit("num_host_blocks", config.num_host_blocks, "Number of KV blocks in host memory; -1: as many as fit swap_space");
  visit("swap_space", config.swap_space,
        "GiB of host memory for swapped KV blocks; 0: none; -1: on a GPU a quarter of the free host memory, at most 4; "
        "on a CPU none");
  visit("swap_dir", config.swap_dir, "Folder on a disk for swapped KV blocks, instead of host memory");
  visit("kv_cache_memory", config.kv_cache_memory, "GiB for the KV cache; 0: on a CPU a quarter of the free memory");
  visit(
      "touch_memory", config.touch_memory,
      "Allocate the KV cache's memory on a CPU at start, so that too little memory is an error at start and not later");
  visit("gpu_memory_utilization", config.gpu_memory_utilization,
        "Share of a GPU's free memory that the engine uses in total");
  visit("enforce_eager", config.enforce_eager,
        "Run a GPU's decode steps directly, instead of recording and replaying them");
  visit("max_num_seqs", config.max_num_seqs,
        "Maximum number of sequences in one step; 0: 256, or three quarters of max_num_batched_tokens if that is set "
        "below 256");
  visit("max_num_batched_tokens", config.max_num_batched_tokens,
        "Maximum number of tokens in one step; 0: max_num_seqs plus 128 on a CPU; on a GPU max_num_seqs plus 512, and "
        "at least 2048");
  visit("max_chunk_ms", config.max_chunk_ms,
        "Approximate maximum of the ms that prompts add to a step in which other sequences decode; 0: no limit; -1: on "
        "a CPU 100, and at most as long as the decodes take; on a GPU no limit");
  visit("target_itl_ms", config.target_itl_ms,
        "Maximum time in ms that should pass between two tokens of a stream. To keep it, by measured times, prompts "
        "are split into smaller chunks and requests wait; 0: no target");
  visit("target_ttft_ms", config.target_ttft_ms,
        "Maximum time in ms that a request should wait for its first token. Requests that would wait longer, by "
        "measured times, are refused with the time after which to try again; 0: no target");
  visit("enable_prefix_caching", config.enable_prefix_caching, "Share the KV blocks of prompts that begin equally");
  visit("enable_chunked_prefill", config.enable_chunked_prefill, "Split long prompts over several steps");
  visit("preemption_mode", config.preemption_mode,
        "How requests give up their KV blocks if blocks run out: recompute, swap or auto");
  visit("scheduling_policy", config.scheduling_policy, "Order in which requests run: fcfs, priority or fair");
  visit("long_prefill_token_threshold", config.long_prefill_token_threshold,
        "A prompt with more tokens left to compute is long: a step computes at most this many of them and leaves room "
        "for shorter prompts; 0: half of max_num_batched_tokens, without a limit for each step");
  visit("max_num_partial_prefills", config.max_num_partial_prefills,
        "Maximum number of long prompts that are computed in chunks at a time; shorter prompts overtake long prompts "
        "that wait");
  visit("priority_preemption", config.priority_preemption,
        "With the priority policy: preempt a running request if a more urgent request lacks a row or memory");
  visit("priority_aging_s", config.priority_aging_s,
        "Seconds of waiting that count as much as one level of priority; 0: strict priorities");
  visit("scheduler_delay_factor", config.scheduler_delay_factor,
        "While other requests run, a new prompt waits this many times the duration of the last prompt step");
  visit("watermark", config.watermark, "Share of the KV blocks that admission leaves free");
  visit("speculative_config", config.speculative_config,
        "How drafts of the next tokens are found, which the model then verifies several at a time, so that tokens stay "
        "the same: a JSON object with vLLM's keys, such as {\"method\": \"ngram\", \"num_speculative_tokens\": 16}, or "
        "{\"model\": \"DIR\"} for a draft model; empty: no speculation");
  visit("pipeline_depth", config.pipeline_depth, "Number of steps in flight: 1 or 2; with more stages, one for each");
  visit("threads", config.threads, "Number of compute threads on a CPU; 0: one for each core");
  visit("cpu_affinity", config.cpu_affinity,
        "Cores that compute threads are bound to: none, cores (one core after the other), numa (in turn over the NUMA "
        "nodes), auto (numa if there are several nodes, else none)");
  visit("cpu_isa", config.cpu_isa,
        "Instruction set: scalar, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, avx512_amx, neon, neon_dotprod; "
        "empty: the fastest that this machine has");
  visit("seed", config.seed, "Seed of requests that set no seed");
  visit("tensor_parallel_size", config.tensor_parallel_size,
        "Number of ranks on this host that compute each layer together, each with its part of the weights and of the "
        "KV cache, and a share of the CPU threads; for a machine with several NUMA nodes. kv_cache_memory and "
        "swap_space are divided between them");
  visit("pipeline_parallel_size", config.pipeline_parallel_size,
        "Number of stages. Each has some of the layers; while a stage computes a step, the stage before computes the "
        "next step, of other sequences. With worker_listen each stage is a worker that joins, else each has "
        "tensor_parallel_size ranks on this host");
  visit("data_parallel_size", config.data_parallel_size,
        "Number of replicas of the model on this host, between which requests are divided. Each has a KV cache of its "
        "own, and a GPU or a share of the CPU threads. kv_cache_memory, num_device_blocks, swap_space and max_num_seqs "
        "count for each replica; default sizes are divided");
  visit("worker_processes", config.worker_processes,
        "Run the model in a separate process: if it dies or hangs, another process replaces it and requests continue; "
        "default of pagoda serve with one model on a GPU");
  visit("standby_worker", config.standby_worker,
        "Keep another worker process with the model loaded, to replace a worker process that dies");
  visit("worker_listen", config.worker_listen,
        "HOST:PORT at which workers of other hosts join (pagoda worker --join), one for each stage; empty: workers are "
        "started on this host");
  visit("worker_tls_cert", config.worker_tls_cert, "PEM file with the engine's certificate for the workers that join");
  visit("worker_tls_key", config.worker_tls_key, "PEM file with the private key of worker_tls_cert");
  visit("worker_tls_ca", config.worker_tls_ca, "PEM file with the CA that signed the workers' certificates");
  visit("step_deadline", config.step_deadline,
        "Seconds after which a step in a worker process counts as hanging; 0: ten times the measured duration of such "
        "steps, at least 1");
  visit("max_queued_requests", config.max_queued_requests,
        "Maximum number of requests that are accepted and not finished");
  visit("max_queued_prompt_tokens", config.max_queued_prompt_tokens,
        "Maximum number of prompt tokens of the requests that are accepted and not finished");
  visit("max_queued_prompt_bytes", config.max_queued_prompt_bytes,
        "Maximum number of bytes of text that wait for the tokenizer");
  visit("stream_interval", config.stream_interval,
        "Number of tokens in each event of a stream, except the first event, which has one token; a request may set a "
        "larger number");
  visit("request_timeout", config.request_timeout,
        "Maximum time of a request in seconds, including waiting, unless the request sets a timeout; 0: no limit");
  visit("trace", config.trace, "File for a trace of every step (opens in Perfetto); empty: none");
  visit("trace_max_events", config.trace_max_events,
        "Maximum number of spans in the trace file; later spans are only counted");
  visit("journal", config.journal, "File in which everything that happens is recorded, for pagoda replay; empty: none");
  visit("journal_tokens", config.journal_tokens,
        "Store prompts and outputs in the journal; otherwise only their hashes, which show which texts were equal");
  visit("journal_mib", config.journal_mib, "Maximum size of the journal in MiB; the oldest records are overwritten");
  visit("enable_lora", config.enable_lora, "Let requests name LoRA adapters as their model");
  visit("max_loras", config.max_loras, "Maximum number of different adapters in one step");
  visit("max_cpu_loras", config.max_cpu_loras,
        "Maximum number of adapters that are loaded at a time, in the device's memory; 0: max_loras");
  visit("max_lora_rank", config.max_lora_rank, "Maximum rank of an adapter; an adapter with a larger rank is refused");
  visit(
      "lora_dtype", config.lora_dtype,
      "Type of the matrices of adapters: auto (as in their files, but 16 bits for a model of 16 bits), float32 (as in "
      "their files), float16, bfloat16");
  visit("lora_modules", config.lora_modules,
        "Adapters: NAME=PATH, several separated by commas, or a JSON list of objects with name and path. A path is a "
        "folder in PEFT's format or a GGUF file");
  visit("enable_lora_updates", config.enable_lora_updates,
        "Let clients with an admin key load and unload adapters; needs lora_root");
  visit("lora_root", config.lora_root, "Folder below which the adapters that clients load must be");
  visit("enable_prompt_adapter", config.enable_prompt_adapter,
        "Let requests name prompt adapters (prompt tuning, p-tuning, prefix tuning) as their model");
  visit("max_prompt_adapters", config.max_prompt_adapters,
        "How many more adapters a step may have, and may be loaded, with enable_prompt_adapter");
  visit("max_prompt_adapter_token", config.max_prompt_adapter_token,
        "Maximum number of virtual tokens of a prompt adapter; an adapter with more is refused");
  visit("prompt_adapters", config.prompt_adapters,
        "Prompt adapters at start, as lora_modules: NAME=PATH with commas between, or a JSON list");
  visit("max_sequences", config.limits.max_sequences, "Maximum n and best_of of a request");
  visit("max_logprobs", config.limits.max_logprobs,
        "Maximum logprobs and prompt_logprobs of a request; -1: the size of the vocabulary");
  visit("max_stop_strings", config.limits.max_stop_strings, "Maximum number of stop strings of a request");
  visit("max_stop_string_bytes", config.limits.max_stop_string_bytes, "Maximum length of a stop string in bytes");
  visit("max_stop_token_ids", config.limits.max_stop_token_ids, "Maximum number of stop_token_ids of a request");
  visit("max_logit_bias", config.limits.max_logit_bias, "Maximum number of logit_bias entries of a request");
  visit("max_logprob_token_ids", config.limits.max_logprob_token_ids,
        "Maximum number of logprob_token_ids of a request");
  visit("max_bad_words", config.limits.max_bad_words, "Maximum number of bad_words of a request");
  visit("max_bad_word_bytes", config.limits.max_bad_word_bytes, "Maximum length of a bad word in bytes");
}

/// Keys that only the pagoda command reads.
inline constexpr std::array<const char*, 18> kCommandKeys{"keys_file",
                                                          "api_key",
                                                          "api_key_file",
                                                          "admin_key_file",
                                                          "drain_timeout",
                                                          "log_level",
                                                          "access_log",
                                                          "log_stats_interval",
                                                          "otlp_traces_endpoint",
                                                          "models",
                                                          "max_loaded_models",
                                                          "models_memory",
                                                          "models_kept_memory",
                                                          "model_keep_alive",
                                                          "model_load_timeout",
                                                          "recover",
                                                          "kv_events_config",
                                                          "max_total_buffered_bytes"};

/// Calls visit(key, field, help) for every key of the JSON-lines server, except the keys for API keys (kCommandKeys).
template <class Visit>
void visit_fields(json_lines::ServerConfig& config, Visit&& visit) {
  visit("listen", config.listen, "HOST:PORT to listen on; port 0: any free port");
  visit("max_line_bytes", config.max_line_bytes, "Maximum length of a line from a client in bytes");
  visit("max_connections", config.max_connections, "Maximum number of connections at a time");
  visit("max_live_requests_per_connection", config.max_live_requests_per_connection,
        "Maximum number of live requests of one connection");
  visit("coalesce_bytes", config.coalesce_bytes,
        "Number of unsent bytes of a connection above which its deltas are merged");
  visit("max_buffered_bytes", config.max_buffered_bytes,
        "Number of unsent bytes at which a client that reads slowly is disconnected");
  visit("auth_timeout_ms", config.auth_timeout_ms,
        "Time in ms in which a client of JSON lines must send its key, if keys are required");
  visit("idle_timeout_ms", config.idle_timeout_ms,
        "Time in ms after which a connection of JSON lines without requests is closed; 0: never");
  visit("send_timeout_ms", config.send_timeout_ms,
        "Time in ms after which a client of JSON lines that does not read its output is disconnected");
  visit("close_grace_ms", config.close_grace_ms,
        "Time in ms that a client has to read the last lines of a closing connection");
}

/// Calls visit(key, field, help) for every key of the HTTP server.
template <class Visit>
void visit_fields(http::ServerConfig& config, Visit&& visit) {
  visit("http", config.http, "HOST:PORT of the HTTP API; port 0: any free port; empty: no HTTP API");
  visit("allow_unauthenticated", config.allow_unauthenticated,
        "Allow JSON lines and the HTTP API to listen on addresses other than this machine without API keys");
  visit("log_prompts", config.log_prompts,
        "Log the prompt of each request, also with JSON lines; otherwise logs contain no text of clients");
  visit(
      "strict_fields", config.strict_fields,
      "Refuse unknown fields of HTTP requests; otherwise they are ignored, and the header x-pagoda-ignored names them");
  visit(
      "any_model_name", config.any_model_name,
      "Accept any model name in HTTP requests, for clients with a fixed name: an unknown name selects the first model");
  visit("resume_window", config.resume.resume_window,
        "Seconds that the stream of a request with `resumable` waits for its client to return. Then a live request is "
        "cancelled, and a finished one is forgotten; 0: no stream is kept");
  visit("max_resumable_streams", config.resume.max_resumable_streams,
        "Maximum number of resumable streams, for HTTP and for JSON lines each");
  visit("resume_buffer_mib", config.resume.resume_buffer_mib,
        "MiB of events that are kept for resumable streams, for HTTP and for JSON lines each; the oldest events are "
        "dropped");
  visit("tls_cert", config.tls_cert, "PEM file with the HTTP server's certificate and its chain; empty: no TLS");
  visit("tls_key", config.tls_key, "PEM file with the private key of tls_cert");
  visit("cors_origin", config.cors_origin, "Origin whose web pages may call the HTTP API, or *; empty: none");
  visit("page", config.page, "Serve the web page at /: a playground and a live view of the engine");
  visit("max_body_bytes", config.max_body_bytes, "Maximum length of the body of an HTTP request in bytes");
  visit("http_max_connections", config.http_max_connections, "Maximum number of HTTP connections at a time");
  visit("http_header_timeout_ms", config.http_header_timeout_ms,
        "Time in ms in which the head of a request must arrive");
  visit("http_body_timeout_ms", config.http_body_timeout_ms, "Time in ms in which the body of a request must arrive");
  visit("http_idle_timeout_ms", config.http_idle_timeout_ms,
        "Time in ms after which a connection without a request is closed");
  visit("http_send_timeout_ms", config.http_send_timeout_ms,
        "Time in ms after which a client that does not read its answer is disconnected");
  visit("http_max_buffered_bytes", config.http_max_buffered_bytes,
        "Number of unsent bytes of a stream at which a client that reads slowly is disconnected");
  visit("http_close_grace_ms", config.http_close_grace_ms,
        "Time in ms that a client has to close a connection that the server ends");
}

}  // namespace pagoda::io
