#include "io/metrics/engine_text.hpp"

#include <array>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/algorithm/string/join.hpp>

#include "io/metrics/process_metrics.hpp"
#include "io/metrics/prometheus_text.hpp"
#include "io/wire/wire_error.hpp"

namespace pagoda::metrics {
namespace {

constexpr std::string_view kEngine = "0";

/// Writes one engine's metrics; every sample has the labels of the engine.
class Writer {
 public:
  Writer(PrometheusText& text, const EngineMetrics& metrics, const ModelInfo& model)
      : text_(text),
        metrics_(metrics),
        stats_(metrics.stats),
        model_(model),
        engine_(labels({{"model_name", model.name}, {"engine", kEngine}})) {}

  void write() {
    write_load();
    write_tokens();
    write_requests();
    write_times();
    write_steps();
    write_memory();
    write_workers();
    write_grammars();
    write_adapters();
    write_config();
  }

 private:
  std::string with(std::string_view label, std::string_view value) const {
    return engine_ + "," + labels({{label, value}});
  }
  void counter(std::string_view name, std::string_view help, std::int64_t value) {
    text_.counter(name, help);
    text_.sample(value, engine_);
  }
  template <class T>
  void gauge(std::string_view name, std::string_view help, T value) {
    text_.gauge(name, help);
    text_.sample(value, engine_);
  }
  /// Writes a gauge with a sample for each replica.
  template <class Value>
  void replica_gauge(std::string_view name, std::string_view help, Value value_of) {
    text_.gauge(name, help);
    for (const ReplicaStats& one : stats_.replicas) {
      text_.sample(value_of(one), with("replica", std::to_string(one.replica)));
    }
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& observed) {
    text_.histogram(name, help);
    text_.sample(observed, engine_);
  }
  void histogram_of_tokens(std::string_view name, std::string_view help, const Histogram& observed) {
    text_.histogram(name, help);
    text_.sample(observed, engine_, static_cast<double>(model_.max_model_len));
  }

  void write_load() {
    gauge("pagoda:num_requests_running", "Number of requests that are computed, or paused for a step.",
          stats_.requests_running);
    gauge("pagoda:num_requests_waiting",
          "Number of requests that wait to be computed, including requests that are tokenized.",
          stats_.requests_waiting);
    gauge("pagoda:num_requests_swapped", "Number of requests whose KV blocks are swapped out.",
          stats_.requests_swapped);
    gauge("pagoda:kv_cache_usage_perc", "Share of the KV blocks that requests own; 1 means all blocks.",
          kv_cache_usage(stats_));
    gauge("pagoda:healthy", "1 while steps can run, 0 while devices are replaced.", stats_.health == "ok" ? 1 : 0);
    gauge("pagoda:overloaded", "1 while new requests are refused with queue_full.", stats_.overloaded ? 1 : 0);
    replica_gauge("pagoda:replica_healthy", "1 while the replica can run steps, 0 while it cannot or when it is down.",
                  [](const ReplicaStats& one) { return one.state != "down" && one.health == "ok" ? 1 : 0; });
    replica_gauge("pagoda:replica_requests_running", "Number of requests that the replica computes.",
                  [](const ReplicaStats& one) { return one.requests_running; });
    replica_gauge("pagoda:replica_requests_waiting", "Number of requests that wait to be computed by the replica.",
                  [](const ReplicaStats& one) { return one.requests_waiting; });
  }

  void write_tokens() {
    counter("pagoda:prompt_tokens_total",
            "Number of prompt tokens of requests that started to run, including cached tokens.",
            stats_.prompt_tokens_total);
    counter("pagoda:generation_tokens_total", "Number of generated tokens.", stats_.generation_tokens_total);
    counter("pagoda:prefix_cache_queries_total", "Number of prompt tokens that were looked up in the prefix cache.",
            stats_.prefix_cache_queries_total);
    counter("pagoda:prefix_cache_hits_total", "Number of prompt tokens that were found in the prefix cache.",
            stats_.prefix_cache_hits_total);
    counter("pagoda:recomputed_tokens_total", "Number of tokens whose KV was lost and computed again.",
            metrics_.steps.recomputed_tokens);
    counter("pagoda:forced_tokens_total",
            "Number of tokens of structured outputs that were not sampled, because the grammar allows no other token.",
            metrics_.steps.forced_tokens);
    counter("pagoda:spec_decode_num_drafts_total",
            "Number of drafts: runs of draft tokens of one sequence, which a step ran before they were sampled.",
            metrics_.steps.drafts);
    counter("pagoda:spec_decode_num_draft_tokens_total", "Number of draft tokens.", metrics_.steps.draft_tokens);
    counter("pagoda:spec_decode_num_accepted_tokens_total", "Number of draft tokens that were accepted.",
            metrics_.steps.accepted_draft_tokens);
    write_accepted_at_positions();
    counter("pagoda:late_masks_total",
            "Number of times that a row of a structured output sampled nothing in a step, because its mask was late.",
            metrics_.steps.late_masks);
  }

  /// Writes the positions at which a draft token was accepted, and always the first one.
  void write_accepted_at_positions() {
    text_.counter("pagoda:spec_decode_num_accepted_tokens_per_pos_total",
                  "Number of draft tokens that were accepted, by position in their draft.");
    const auto& counts = metrics_.steps.accepted_at_positions;
    for (std::size_t position = 0; position < counts.size(); ++position) {
      if (position > 0 && counts[position] == 0) break;
      text_.sample(counts[position], with("position", std::to_string(position)));
    }
  }

  void write_requests() {
    const auto& requests = metrics_.requests;
    constexpr std::array<std::string_view, kNumRequestEndings> kReasons{"stop", "length", "abort", "error"};
    text_.counter("pagoda:request_success_total", "Number of requests that have ended, by finish reason.");
    for (std::size_t i = 0; i < kReasons.size(); ++i) {
      text_.sample(requests.endings[i], with("finished_reason", kReasons[i]));
    }
    write_refusals();
    histogram_of_tokens("pagoda:request_prompt_tokens", "Number of prompt tokens of a request.",
                        requests.prompt_tokens);
    histogram_of_tokens("pagoda:request_generation_tokens",
                        "Number of tokens that a request generated in all its sequences.", requests.generation_tokens);
    histogram_of_tokens("pagoda:request_max_num_generation_tokens",
                        "Number of generated tokens of a request's longest sequence.", requests.max_generation_tokens);
    histogram("pagoda:request_params_n", "The field n of a request.", requests.n);
    histogram_of_tokens("pagoda:request_params_max_tokens",
                        "The field max_tokens of a request, or the value that applied if the request set none.",
                        requests.max_tokens);
  }

  void write_refusals() {
    std::map<std::string_view, std::uint64_t> by_word;
    for (std::size_t i = 0; i < kNumErrorCodes; ++i) {
      const auto code = static_cast<ErrorCode>(i);
      by_word[to_string(wire::wire_error({code}).code)] += metrics_.refusals.of(code);
    }
    text_.counter("pagoda:requests_refused_total",
                  "Number of requests that the engine refused, by the code of the error.");
    for (const auto& [word, count] : by_word) text_.sample(count, with("code", word));
  }

  void write_times() {
    const auto& requests = metrics_.requests;
    histogram("pagoda:time_to_first_token_seconds", "Time from the arrival of a request to its first token.",
              requests.time_to_first_token);
    histogram("pagoda:inter_token_latency_seconds", "Time between two tokens of a sequence.",
              requests.inter_token_latency);
    histogram("pagoda:time_per_output_token_seconds", "Older name of inter_token_latency_seconds.",
              requests.inter_token_latency);
    histogram("pagoda:request_time_per_output_token_seconds",
              "Time from the first to the last token of a request, divided by the number of tokens after the first.",
              requests.time_per_output_token);
    histogram("pagoda:e2e_request_latency_seconds", "Time from the arrival of a request to its end.", requests.e2e);
    histogram("pagoda:request_queue_time_seconds", "Time from the arrival of a request to its first step.",
              requests.queue);
    histogram("pagoda:request_prefill_time_seconds", "Time from the first step of a request to its first token.",
              requests.prefill);
    histogram("pagoda:request_decode_time_seconds", "Time from the first token of a request to its last token.",
              requests.decode);
    histogram("pagoda:request_inference_time_seconds", "Time from the first step of a request to its last token.",
              requests.inference);
  }

  void write_steps() {
    const auto& steps = metrics_.steps;
    counter("pagoda:steps_total", "Number of steps that have ended.", stats_.steps_total);
    histogram("pagoda:iteration_tokens_total", "Number of tokens of a step.", steps.tokens);
    text_.histogram(
        "pagoda:step_phase_seconds",
        "Duration of the phases of a step: plan (choosing its work), copy (swapping blocks), compute (on the device).");
    text_.sample(steps.plan_seconds, with("phase", "plan"));
    text_.sample(steps.copy_seconds, with("phase", "copy"));
    text_.sample(steps.compute_seconds, with("phase", "compute"));
  }

  void write_memory() {
    counter("pagoda:num_preemptions_total", "Number of preemptions.",
            stats_.preemptions_recompute_total + stats_.preemptions_swap_total);
    text_.counter("pagoda:preemptions_total", "Number of preemptions by kind: recompute or swap.");
    text_.sample(stats_.preemptions_recompute_total, with("kind", "recompute"));
    text_.sample(stats_.preemptions_swap_total, with("kind", "swap"));
    counter("pagoda:swap_bytes_total", "Number of bytes moved to the host pool and back.", stats_.swap_bytes_total);
    gauge("pagoda:swap_bytes_per_second", "Recent speed of swaps; 0 before the first swap.", stats_.swap_bytes_per_s);
    text_.gauge("pagoda:kv_blocks",
                "Number of KV blocks by pool and state: used, cached (in the prefix cache only) or free.");
    const auto cached = stats_.device_blocks_cached;
    const auto used = stats_.device_blocks_total - stats_.device_blocks_free - cached;
    const auto blocks = [&](std::string_view pool, std::string_view state, std::int64_t count) {
      text_.sample(count, engine_ + "," + labels({{"pool", pool}, {"state", state}}));
    };
    blocks("device", "used", used);
    blocks("device", "cached", cached);
    blocks("device", "free", stats_.device_blocks_free);
    blocks("host", "used", stats_.host_blocks_total - stats_.host_blocks_free);
    blocks("host", "free", stats_.host_blocks_free);
    gauge("pagoda:kv_slots_allocated", "Number of token slots in the KV blocks that requests own.",
          stats_.allocated_slots);
    gauge("pagoda:kv_slots_used", "Number of token slots in use.", stats_.used_slots);
  }

  void write_workers() {
    counter("pagoda:worker_restarts_total", "Number of workers that replaced failed workers.",
            stats_.worker_restarts_total);
    counter("pagoda:worker_deaths_total", "Number of worker processes that exited or were killed.",
            stats_.worker_deaths_total);
    counter("pagoda:worker_hangs_total", "Number of worker processes that hung and were ended.",
            stats_.worker_hangs_total);
    histogram("pagoda:worker_pause_seconds",
              "Time that running requests waited for their next step when a worker was lost.",
              metrics_.steps.worker_pause);
    std::int64_t resident = 0;
    for (const auto pid : stats_.worker_pids) resident += resident_bytes_of(pid);
    gauge("pagoda:worker_processes", "Number of live worker processes; 0 without --worker-processes.",
          stats_.worker_pids.size());
    gauge("pagoda:worker_resident_memory_bytes", "Resident memory of the worker processes.", resident);
  }

  void write_grammars() {
    const auto& grammars = metrics_.grammars;
    text_.counter("pagoda:grammar_compilations_total", "Number of compilations of grammars, by result.");
    text_.sample(grammars.compiled, with("result", "compiled"));
    text_.sample(grammars.refused, with("result", "refused"));
    counter("pagoda:grammar_cache_hits_total", "Number of requests whose grammar was found in the cache.",
            grammars.cache_hits);
    gauge("pagoda:grammar_cache_bytes", "Size of the cached grammars in bytes.", grammars.cache_bytes);
    gauge("pagoda:num_requests_waiting_for_grammar", "Number of requests that wait for the grammar compiler.",
          grammars.waiting);
  }

  /// Without adapters, the families have no samples.
  void write_adapters() {
    const auto& adapters = metrics_.adapters;
    text_.gauge("pagoda:lora_requests_info", "Unix time of this sample; the labels name the adapters of requests.");
    if (adapters) {
      const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
      text_.sample(now.count(),
                   engine_ + "," +
                       labels({{"max_lora", std::to_string(adapters->max_in_step)},
                               {"running_lora_adapters", boost::algorithm::join(adapters->running, ",")},
                               {"waiting_lora_adapters", boost::algorithm::join(adapters->waiting, ",")}}));
    }
    text_.gauge("pagoda:loaded_adapters", "Number of loaded adapters.");
    if (adapters) text_.sample(adapters->loaded, engine_);
    text_.counter("pagoda:adapter_loads_total", "Number of times that an adapter was loaded.");
    if (adapters) text_.sample(adapters->loads, engine_);
    text_.counter("pagoda:adapter_evictions_total", "Number of adapters that were unloaded to make room for others.");
    if (adapters) text_.sample(adapters->evictions, engine_);
  }

  void write_config() {
    text_.gauge("pagoda:cache_config_info", "Always 1; the labels describe the KV cache.");
    text_.sample(1, labels({{"model_name", model_.name},
                            {"engine", kEngine},
                            {"block_size", std::to_string(model_.block_size)},
                            {"cache_dtype", model_.kv_cache_dtype},
                            {"enable_prefix_caching", model_.enable_prefix_caching ? "True" : "False"},
                            {"num_gpu_blocks", std::to_string(model_.num_device_blocks)},
                            {"num_cpu_blocks", std::to_string(model_.num_host_blocks)}}));
  }

  PrometheusText& text_;
  const EngineMetrics& metrics_;
  const EngineStats& stats_;
  const ModelInfo& model_;
  std::string engine_;
};

/// Text of a family.
struct Family {
  std::string head;  ///< lines with name, help and type
  std::string samples;
};

std::vector<Family> families_of(std::string_view text) {
  std::vector<Family> families;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n') + 1);
    // A family may have no samples: for example those of replicas, of a model that is not loaded.
    if (line.starts_with("# HELP ")) families.emplace_back();
    (line.starts_with('#') ? families.back().head : families.back().samples) += line;
    text.remove_prefix(line.size());
  }
  return families;
}

}  // namespace

double kv_cache_usage(const EngineStats& stats) {
  if (stats.device_blocks_total == 0) return 0;
  const auto used = stats.device_blocks_total - stats.device_blocks_free - stats.device_blocks_cached;
  return static_cast<double>(used) / static_cast<double>(stats.device_blocks_total);
}

void write_engine_metrics(PrometheusText& text, const std::vector<ModelMetrics>& engines) {
  // Each engine writes the same families, and the samples of a family must be together.
  std::vector<std::vector<Family>> families;
  for (const auto& engine : engines) {
    std::string own;
    PrometheusText own_text(own);
    Writer(own_text, engine.metrics, engine.model).write();
    families.push_back(families_of(own));
  }
  for (std::size_t i = 0; i < families.front().size(); ++i) {
    text.add_lines(families.front()[i].head);
    for (const auto& own : families) text.add_lines(own.at(i).samples);
  }
}

}  // namespace pagoda::metrics
