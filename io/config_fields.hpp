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

/// Calls visit(key, field, help) for every key of an engine. Fields are strings, booleans, integers, doubles and enums
/// that have EnumWords.
template <class Visit>
void visit_fields(EngineConfig& config, Visit&& visit) {
  visit("model", config.model, "Folder of the model, in Hugging Face format, or GGUF file");
  visit("served_model_name", config.served_model_name,
        "Name that clients see, or several with commas, of which answers carry the first; empty: that of the folder or "
        "file");
  visit("load_format", config.load_format,
        "Weights: auto (those of the model's files), dummy (random ones for a config.json, to measure speed and memory "
        "without files)");
  visit("dtype", config.dtype, "Type of the weights: auto (as in the checkpoint), float32, float16, bfloat16");
  visit("quantize", config.quantize,
        "Weights of linear layers: auto (as the model's files have them), none (quantised ones are dequantised), or "
        "quantised when loaded: int8, int4. The likeliest token stays the same at 99 % of positions of the demo model "
        "with int8; of SmolLM2-135M at about 96 % with int8 and 81 % with int4 (perplexity +8 %; on a GPU, where int4 "
        "is simpler, 71 % and +24 %)");
  visit("weight_memory", config.weight_memory,
        "Weights that are neither converted nor quantised, on a CPU: mapped (used where the file is mapped), copied "
        "(into memory with huge pages: faster), auto (copied when they fit half of the free memory and beside the KV "
        "cache)");
  visit("kv_cache_dtype", config.kv_cache_dtype,
        "Type of the KV cache: auto (as dtype), float32, float16, bfloat16, fp8_e4m3 (or fp8), int8");
  visit("chat_template", config.chat_template, "Jinja file of the chat template; empty: the model's own");
  visit("answer_dialect", config.answer_dialect,
        "JSON file that says how the model writes thinking and tool calls; empty: as made out of the chat template "
        "(pagoda inspect prints it)");
  visit("generation_config", config.generation_config,
        "Defaults of sampling fields: auto (those that the model's files recommend), vllm (the APIs' own), or a folder "
        "with another generation_config.json");
  visit("device", config.device, "cpu, cuda, or cuda:N for the GPU of that number");
  visit("max_model_len", config.max_model_len, "Longest prompt and output together, in tokens; 0: the model's own");
  visit("block_size", config.block_size, "Token slots per KV block; 0: 16 on a GPU, 32 on a CPU");
  visit("num_device_blocks", config.num_device_blocks, "KV blocks on the device; 0: from the memory budget");
  visit("num_host_blocks", config.num_host_blocks, "KV blocks in host memory; -1: from swap_space");
  visit("swap_space", config.swap_space,
        "GiB of host memory for swapped KV blocks; 0: none, -1: on a GPU a quarter of the free host memory, at most 4; "
        "on a CPU none");
  visit("swap_dir", config.swap_dir, "Folder on a disk for swapped KV blocks, instead of host memory");
  visit("kv_cache_memory", config.kv_cache_memory, "GiB for the KV cache; 0: on a CPU a quarter of the free memory");
  visit("touch_memory", config.touch_memory,
        "Take the KV cache's memory on a CPU at start, so that what does not fit fails then, and not when it is used");
  visit("gpu_memory_utilization", config.gpu_memory_utilization, "Share of a GPU's free memory to use in all");
  visit("enforce_eager", config.enforce_eager, "Do not record a GPU's decode steps to replay them");
  visit("max_num_seqs", config.max_num_seqs,
        "Most sequences in one step; 0: 256, or three quarters of a max_num_batched_tokens below that");
  visit("max_num_batched_tokens", config.max_num_batched_tokens,
        "Most tokens in one step; 0: 128 more than max_num_seqs on a CPU, 512 more and at least 2048 on a GPU");
  visit(
      "max_chunk_ms", config.max_chunk_ms,
      "About how many ms prompts add to a step in which others decode; 0: no limit, -1: 100 on a CPU, but no more than "
      "the decodes take; none on a GPU");
  visit("target_itl_ms", config.target_itl_ms,
        "Time in ms that should at most lie between two tokens of a stream: prompts are cut, and requests wait, so "
        "that steps keep it by "
        "measured times; 0: no target");
  visit(
      "target_ttft_ms", config.target_ttft_ms,
      "Time in ms after which a request should have its first token: those that would wait longer, by measured times, "
      "are refused with the time after which to try again; 0: no target");
  visit("enable_prefix_caching", config.enable_prefix_caching, "Share the KV blocks of equal prompt beginnings");
  visit("enable_chunked_prefill", config.enable_chunked_prefill, "Split long prompts over steps");
  visit("preemption_mode", config.preemption_mode, "When blocks run out: recompute, swap or auto");
  visit("scheduling_policy", config.scheduling_policy, "Who goes first: fcfs, priority or fair");
  visit("long_prefill_token_threshold", config.long_prefill_token_threshold,
        "A prompt with more tokens left is a long one: a step runs at most so many of it, and leaves room for shorter "
        "prompts; 0: half of max_num_batched_tokens, and no limit of its own");
  visit("max_num_partial_prefills", config.max_num_partial_prefills,
        "Long prompts that are computed in chunks at a time; shorter prompts pass those that wait");
  visit("priority_preemption", config.priority_preemption,
        "With the priority policy: a running request gives way to a more urgent one that lacks a place or memory");
  visit("priority_aging_s", config.priority_aging_s,
        "Seconds of waiting that make up for one step of priority; 0: strict priorities");
  visit("scheduler_delay_factor", config.scheduler_delay_factor,
        "New prompts wait so many times the last prompt step's time while others run");
  visit("watermark", config.watermark, "Share of the KV blocks kept free when requests are admitted");
  visit("pipeline_depth", config.pipeline_depth, "Steps in flight: 1 or 2");
  visit("threads", config.threads, "Compute threads on a CPU; 0: one per core");
  visit(
      "cpu_affinity", config.cpu_affinity,
      "Cores that compute threads are bound to: none, cores (one after the other), numa (in turn over the NUMA nodes), "
      "auto (numa on several nodes, else none)");
  visit("cpu_isa", config.cpu_isa,
        "Instruction set: scalar, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, neon, neon_dotprod; empty: the "
        "fastest there is");
  visit("seed", config.seed, "Seed of requests that bring none");
  visit("tensor_parallel_size", config.tensor_parallel_size, "Devices that share each layer");
  visit("pipeline_parallel_size", config.pipeline_parallel_size, "Devices that share the layers");
  visit("worker_processes", config.worker_processes,
        "Run the model in a process of its own: when it dies or hangs, another takes its place and requests go on; "
        "pagoda serve does so with one model on a GPU, unless told");
  visit("standby_worker", config.standby_worker,
        "Have another worker process ready, with the model loaded, to take the place of one that dies");
  visit("worker_listen", config.worker_listen,
        "HOST:PORT where workers of other hosts join (pagoda worker --join); empty: a worker is started here");
  visit("worker_tls_cert", config.worker_tls_cert, "The engine's certificate for them, in PEM");
  visit("worker_tls_key", config.worker_tls_key, "Its private key, in PEM");
  visit("worker_tls_ca", config.worker_tls_ca, "The CA that has signed the workers' certificates, in PEM");
  visit("step_deadline", config.step_deadline,
        "Seconds after which a step in a worker process hangs; 0: ten times what such steps took, at least 1");
  visit("max_queued_requests", config.max_queued_requests, "Most requests admitted and not finished");
  visit("max_queued_prompt_tokens", config.max_queued_prompt_tokens, "Most prompt tokens of those requests");
  visit("max_queued_prompt_bytes", config.max_queued_prompt_bytes, "Most bytes of text that wait for the tokenizer");
  visit("stream_interval", config.stream_interval,
        "Tokens in each event of a stream but the first, which has one; a request may ask for more");
  visit("request_timeout", config.request_timeout,
        "Seconds that a request may take in all, waiting included, unless it brings a timeout of its own; 0: no limit");
  visit("trace", config.trace, "File to write a trace of every step to (opens in Perfetto); empty: none");
  visit("trace_max_events", config.trace_max_events, "Most spans in the trace file; later ones are only counted");
  visit("journal", config.journal, "File to record all that happens in, for pagoda replay; empty: none");
  visit("journal_tokens", config.journal_tokens,
        "Keep prompts and outputs in the journal; else hashes of them, which tell only what was equal");
  visit("journal_mib", config.journal_mib, "MiB of that file; what is oldest is overwritten");
  visit("max_sequences", config.limits.max_sequences, "Largest n and best_of of a request");
  visit("max_logprobs", config.limits.max_logprobs,
        "Largest logprobs and prompt_logprobs of a request; -1: the vocabulary");
  visit("max_stop_strings", config.limits.max_stop_strings, "Most stop strings of a request");
  visit("max_stop_string_bytes", config.limits.max_stop_string_bytes, "Longest stop string, in bytes");
  visit("max_stop_token_ids", config.limits.max_stop_token_ids, "Most stop_token_ids of a request");
  visit("max_logit_bias", config.limits.max_logit_bias, "Most logit_bias entries of a request");
  visit("max_logprob_token_ids", config.limits.max_logprob_token_ids, "Most logprob_token_ids of a request");
  visit("max_bad_words", config.limits.max_bad_words, "Most bad_words of a request");
  visit("max_bad_word_bytes", config.limits.max_bad_word_bytes, "Longest of its bad_words, in bytes");
}

/// Keys that only the pagoda command reads.
inline constexpr std::array<const char*, 17> kCommandKeys{"keys_file",
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
                                                          "max_total_buffered_bytes"};

/// Calls visit(key, field, help) for every key of the JSON-lines server, except the keys for API keys (kCommandKeys).
template <class Visit>
void visit_fields(json_lines::ServerConfig& config, Visit&& visit) {
  visit("listen", config.listen, "HOST:PORT to listen on; port 0 picks one");
  visit("max_line_bytes", config.max_line_bytes, "Longest line a client may send");
  visit("max_connections", config.max_connections, "Most connections at a time");
  visit("max_live_requests_per_connection", config.max_live_requests_per_connection,
        "Most live requests of one connection");
  visit("coalesce_bytes", config.coalesce_bytes, "Unsent bytes of a connection from which its deltas are merged");
  visit("max_buffered_bytes", config.max_buffered_bytes, "Unsent bytes at which a slow reader is cut off");
  visit("auth_timeout_ms", config.auth_timeout_ms,
        "Where keys are asked for: time that a client of JSON lines has to give one");
  visit("idle_timeout_ms", config.idle_timeout_ms,
        "How long a connection of JSON lines that asks for nothing is kept; 0: for ever");
  visit("send_timeout_ms", config.send_timeout_ms,
        "How long a client of JSON lines that reads nothing of what waits for it is waited for");
  visit("close_grace_ms", config.close_grace_ms, "Time that a closing connection has to take its last lines");
}

/// Calls visit(key, field, help) for every key of the HTTP server.
template <class Visit>
void visit_fields(http::ServerConfig& config, Visit&& visit) {
  visit("http", config.http, "HOST:PORT of the HTTP API; port 0 picks one; empty: no HTTP");
  visit("allow_unauthenticated", config.allow_unauthenticated,
        "Let JSON lines and the HTTP API listen beyond this machine without API keys");
  visit("log_prompts", config.log_prompts,
        "Log the prompt of each request, of JSON lines too; else no text of a client is in any log");
  visit("strict_fields", config.strict_fields,
        "Refuse unknown fields of HTTP requests; else they are ignored, and the header x-pagoda-ignored names them");
  visit("any_model_name", config.any_model_name,
        "Take any model name in HTTP requests, for clients with a fixed one: a name that is not served means the "
        "first model");
  visit("resume_window", config.resume.resume_window,
        "Seconds that the stream of a request with `resumable` waits for a client that comes back: a live one is "
        "cancelled then, one that has ended is forgotten; 0: no stream is kept");
  visit("max_resumable_streams", config.resume.max_resumable_streams,
        "Most such streams of HTTP, and as many of JSON lines");
  visit("resume_buffer_mib", config.resume.resume_buffer_mib,
        "MiB of their events that are kept, of HTTP and of JSON lines each; what is oldest is dropped");
  visit("tls_cert", config.tls_cert, "PEM file with the HTTP server's certificate and its chain; empty: no TLS");
  visit("tls_key", config.tls_key, "PEM file with its private key");
  visit("cors_origin", config.cors_origin, "Origin whose pages may call the HTTP API, or *; empty: none");
  visit("page", config.page, "Serve the page for browsers at /: a playground and a live view of the engine");
  visit("max_body_bytes", config.max_body_bytes, "Longest body of an HTTP request");
  visit("http_max_connections", config.http_max_connections, "Most HTTP connections at a time");
  visit("http_header_timeout_ms", config.http_header_timeout_ms, "Time that the head of a request may take");
  visit("http_body_timeout_ms", config.http_body_timeout_ms, "Time that the body of a request may take");
  visit("http_idle_timeout_ms", config.http_idle_timeout_ms, "How long a connection without a request is kept");
  visit("http_send_timeout_ms", config.http_send_timeout_ms,
        "How long a client that reads nothing of its answer is waited for");
  visit("http_max_buffered_bytes", config.http_max_buffered_bytes,
        "Unsent bytes of a stream at which a slow reader is cut off");
  visit("http_close_grace_ms", config.http_close_grace_ms, "How long a closing connection waits for its client");
}

}  // namespace pagoda::io
